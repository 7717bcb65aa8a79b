/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker: a child process that handles untrusted bytes. Before it reads the first of them it has
 *
 *   - its own user ids, 0 to 65534, mapped to a range that owns nothing else on the host,
 *   - its own mount, network (empty), pid, IPC and UTS namespaces,
 *   - four capabilities in that user namespace (ownership, permissions) and no_new_privs,
 *   - Landlock, if supported: writes below the work directory, reads below the input and /usr,
 *   - limits on time, memory, descriptors and file size, and nothing on descriptors 0 to 2,
 *   - a parent-death signal: it ends when its master ends.
 */
#pragma once

#include "base/proc.h"
#include "image/channel.h"
#include "image/ids.h"

/* Where the worker sees an input directory. */
#define CONFINE_INPUT "/tmp"

struct confine_job {
	const struct id_ranges *ids;
	int work;  /* the only writable directory */
	int input; /* readable: a file, or a directory tree; or -EBADF */
	/*
	 * Runs in the worker, which exits afterwards. The result and `e` go to the master in the
	 * last packet, with the contents of `m`.
	 */
	int (*run)(const struct confine_job *job, int sock, struct channel_msg *m, struct err *e);
	const void *arg;
};

/* Starts the worker. *ret_sock is the channel; its first packet may already report a failure. */
int confine_start(const struct confine_job *job, struct proc *ret, int *ret_sock, struct err *e);
