/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What QEMU runs in. A QEMU that its guest has taken over has: an empty root that nobody can write,
 * a network without a device, no process but its own, no capability, ids that nobody else has, the
 * descriptors of qemu.h, and system calls without what a machine does not need.
 */
#pragma once

#include "base/proc.h"
#include "engine/cgroup.h"
#include "engine/qemu.h"

/* A directory (with what is mounted below it), file or symbolic link of the host that the jail has
 * until it is sealed, read only. */
struct qemu_jail_file {
	const char *from, *to; /* absolute; `to` has one component */
	bool optional;	       /* where the host does not have it, the jail has not either */
};

struct qemu_jail {
	const struct cgroup *group; /* it is in it from its birth */
	uint32_t ids;		    /* what id 0 of its user namespace is in ours */
	bool rootless;		    /* we are root only in a user namespace of our own */
	uint64_t pids; /* the most processes of its user namespace; 0: the group has the limit */
	uint64_t file; /* no file that it writes grows beyond that */
	const char *program, *const *argv;  /* a path of the jail; no environment */
	const struct qemu_jail_file *files; /* up to one without `from` */
	const int *fds;			    /* QEMU_FDS; from 3 on; -EBADF: none */
	bool proc;			    /* it needs /proc/self/fd until it is sealed */
	bool kvm;			    /* and /dev/kvm */
};

enum {
	QEMU_JAIL_ID = 1, /* of the user namespace: QEMU's user and group */
	QEMU_JAIL_NOFILE = 256,
};

/*
 * Starts the program; it has executed when this returns. It is our child, and dies with us. What
 * it says on stdout and stderr is in *ret_said (a pipe that does not wait: what is too much is
 * lost), which the caller owns. Nothing stays behind on failure.
 */
int qemu_jail_start(const struct qemu_jail *j, struct proc *ret, int *ret_said, struct err *e);

/* Takes away all that the jail has been given by `files`, `proc` and `kvm`: its root is empty and
 * read only then. */
int qemu_jail_seal(const struct proc *qemu, struct err *e);
