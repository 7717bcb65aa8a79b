/* SPDX-License-Identifier: Apache-2.0 */
/* What qemu-jail.c and qemu-confine.c share: what the warden hands to the process that becomes
 * QEMU. */
#pragma once

#include <sched.h>

#include "engine/qemu-jail.h"

enum {
	QEMU_TREES_MAX = 12,
	QEMU_LINK_MAX = 64,
	/* Of the jail, beside its user namespace. */
	QEMU_NAMESPACES = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
			  CLONE_NEWCGROUP,
};

/* What is put into the root: a detached mount, or a symbolic link. */
struct qemu_tree {
	const char *to;
	int fd;
	bool directory;
	char link[QEMU_LINK_MAX];
};

struct qemu_trees {
	struct qemu_tree t[QEMU_TREES_MAX];
	size_t n;
};

struct qemu_pipes {
	int in, out; /* what QEMU has as stdin, and as stdout and stderr */
	int report;
	int warden; /* a pidfd */
};

/*
 * Confines this process to its jail, up to the execution of QEMU. 0, or -errno with the name of the
 * stage in *ret_at; p->report is where that can be reported.
 */
int qemu_confine(const struct qemu_jail *j, const struct qemu_trees *trees, struct qemu_pipes *p,
		 const char **ret_at);

/* Makes the mounted directory `path` the root, and takes off the old one with all that is in it. 0
 * or -errno. */
int qemu_enter_root(const char *path);
