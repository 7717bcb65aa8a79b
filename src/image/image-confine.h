/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: a child process for bytes that nobody trusts. Before it reads the first of them it has
 *   - user ids of its own: 0 to 65534, that map to a range which owns nothing else on the host,
 *   - mount, network, pid, IPC and host name namespaces of its own, the network one empty,
 *   - four capabilities in that user namespace (owners, permissions), no new privileges,
 *   - Landlock, where the kernel has it: writes below the work directory, reads below the input and
 * /usr,
 *   - limits on time, memory, descriptors and file size, nothing on descriptors 0 to 2,
 *   - a master whose end is its end.
 */
#pragma once

#include "channel.h"
#include "ids.h"
#include "proc.h"

/* Where the worker finds an input that is a directory. */
#define CONFINE_INPUT "/tmp"

struct confine_job {
	const struct id_ranges *ids;
	int work;  /* directory that it may write in */
	int input; /* to read from: a file, or a directory and what is below; or -EBADF */
	/*
	 * Runs in the worker, which ends with it. Its result and `e` go to the master in the last
	 * packet, with what it has written to `m`.
	 */
	int (*run)(const struct confine_job *job, int sock, struct channel_msg *m, struct err *e);
	const void *arg;
};

/* Starts the worker. *ret_sock is the channel; the first packet may already say that it failed. */
int confine_start(const struct confine_job *job, struct proc *ret, int *ret_sock, struct err *e);
