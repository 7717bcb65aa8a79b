/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by qemu-jail.c and qemu-confine.c: what the warden gives the process that becomes QEMU. */
#pragma once

#include <sched.h>

#include "engine/qemu-jail.h"

enum {
	QEMU_TREES_MAX = 12,
	QEMU_LINK_MAX = 64,
	/* The jail's namespaces, in addition to its user namespace. */
	QEMU_NAMESPACES = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
			  CLONE_NEWCGROUP,
};

/* An entry of the jail's root directory: a detached mount or a symbolic link. */
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
	int in, out; /* QEMU's stdin; its stdout and stderr */
	int report;
	int warden; /* a pidfd */
};

/* Confines this process to the jail, up to the execve(2) of QEMU. 0, or -errno with the name of the
 * failed stage in *ret_at; report it on p->report. */
int qemu_confine(const struct qemu_jail *j, const struct qemu_trees *trees, struct qemu_pipes *p,
		 const char **ret_at);
