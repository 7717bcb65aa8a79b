/* SPDX-License-Identifier: Apache-2.0 */
/* The jail that QEMU runs in. A guest that has taken over its QEMU process has: an empty read-only
 * root directory, a network namespace without devices, no other process, no capability, ids that no
 * other process uses, the descriptors of qemu.h, and a reduced set of system calls. */
#pragma once

#include "base/proc.h"
#include "engine/cgroup.h"
#include "engine/qemu.h"

/* A directory (with mounts below), file or symbolic link of the host, read-only in the jail until
 * it is sealed. */
struct qemu_jail_file {
	const char *from, *to; /* absolute; `to` has one component */
	bool optional;	       /* skipped if the host lacks it */
};

struct qemu_jail {
	const struct cgroup *group; /* entered before QEMU starts */
	uint32_t ids;		    /* id 0 of its user namespace, as we see it */
	bool rootless;		    /* we are root only in our own user namespace */
	uint64_t pids;	 /* limit of processes in its user namespace; 0: the group has it */
	uint64_t file;	 /* largest file that it may write */
	uint64_t memory; /* the size of QEMU_MEMORY, an empty file; 0: none */
	const char *program, *const *argv;  /* a path inside the jail */
	const char *const *env;		    /* NULL: empty */
	const struct qemu_jail_file *files; /* ends with an entry without `from` */
	const int *fds;			    /* QEMU_FDS entries, used from 3 on; -EBADF: none */
	bool kvm;			    /* needs /dev/kvm */
};

enum {
	QEMU_JAIL_ID = 1, /* QEMU's user and group in the user namespace */
	QEMU_JAIL_NOFILE = 256,
};

/* Starts the program and returns after its execve(2). It is our child and dies with us. *ret_said,
 * which the caller owns, is a pipe with its stdout and stderr; it never blocks QEMU, which loses
 * output when the pipe is full. Leaves nothing behind on failure. */
int qemu_jail_start(const struct qemu_jail *j, struct proc *ret, int *ret_said, struct err *e);

/* Removes all that `files`, `memory` and `kvm` provided: the root directory is then empty and
 * read-only. */
int qemu_jail_seal(const struct proc *qemu, struct err *e);
