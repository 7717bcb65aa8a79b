/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the mounted cgroup hierarchies. */
#pragma once

#include <stdbool.h>

#include "base/util.h"

enum cgroup_mode {
	CGROUP_NONE,
	CGROUP_V1,
	CGROUP_HYBRID,
	CGROUP_V2,
	CGROUP_MODE_MAX
};

/* Controllers by their v2 names; v1 calls io "blkio", v2 has the freezer built in. */
enum cg {
	CG_CPU,
	CG_MEMORY,
	CG_PIDS,
	CG_FREEZER,
	CG_IO,
	CG_MAX
};

enum {
	CGROUP_PATH_MAX = 256
};

struct cgroup_layout {
	enum cgroup_mode mode;
	char v2[CGROUP_PATH_MAX];	  /* mount point of cgroup2; "" if none */
	char own[2 * CGROUP_PATH_MAX];	  /* path of our own group in it */
	char v1[CG_MAX][CGROUP_PATH_MAX]; /* mount point for each controller; "" if not v1 */
	bool v2_has[CG_MAX];		  /* offered to our own v2 group */
	bool disabled[CG_MAX];		  /* on the kernel command line */
};

/*
 * Reads the layout from /proc below `root_fd`. Always fills in *ret; a missing file counts as
 * empty. -errno if an existing file cannot be read.
 */
int cgroup_layout_read(int root_fd, struct cgroup_layout *ret);
const char *cgroup_controller_name(enum cg c);
