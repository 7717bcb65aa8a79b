/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes: started without a shell, held by pidfd, never signalled by a number that may
 * have been reused.
 */
#pragma once

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

struct proc {
	pid_t pid; /* 0 once reaped */
	int pidfd; /* readable (EPOLLIN) once the process has ended */
};

#define PROC_INIT                         \
	{                                 \
		.pid = 0, .pidfd = -EBADF \
	}
#define _cleanup_proc_ _cleanup_(proc_done)

enum {
	PROC_MORE_MAX = 5
};

/* What a child gets; everything not named here it does not get. */
struct proc_spec {
	const char *path;	 /* absolute; no PATH search (see proc_find) */
	const char *const *argv; /* NULL-terminated */
	const char *const *env;	 /* NULL-terminated; NULL means an empty environment */
	int in, out, err;	 /* become 0, 1, 2; -EBADF means /dev/null */
	const int *more;	 /* become 3, 4, ...; n_more of them, -EBADF as above */
	size_t n_more;
	bool own_session; /* setsid(): no controlling terminal, own process group */
};

/*
 * Starts a child with default signal dispositions, an empty signal mask and only descriptors 0, 1,
 * 2 and `more`. The caller owns *ret. Failure to exec is reported here, not by an exit status.
 */
int proc_spawn(const struct proc_spec *spec, struct proc *ret, struct err *e);

/* fork(2). Returns 1 in the child; 0 in the parent, who owns *ret; or -errno. */
int proc_fork(struct proc *ret);

/* The same, with the child in the v2 control group `group` from its first instruction on. */
int proc_fork_into(int group, struct proc *ret);

/* Holds a child that somebody else has made for us: only we can reap it, so the number is its own.
 * 0, -ECHILD: it is not ours, or -errno. */
int proc_adopt(pid_t pid, struct proc *ret);

/* Sends a signal through the pidfd. 0 or -errno (-ESRCH: it has ended). */
int proc_signal(const struct proc *p, int sig);

/*
 * Waits until the process ends, at most until `deadline` (clock_mono(); UINT64_MAX is for ever) and
 * reaps it. *ret_info as from waitid(2). -ETIME when the deadline passed: the process still runs.
 * The pidfd stays open until proc_done(), for it may be in an event loop. -ECHILD: reaped before.
 */
int proc_wait(struct proc *p, uint64_t deadline, siginfo_t *ret_info);

/*
 * Kills and reaps what still runs, closes the pidfd; for _cleanup_proc_. A child that we may not
 * signal (setuid) is left alone rather than waited for.
 */
void proc_done(struct proc *p);

/*
 * Runs a program to its end with stdin from /dev/null and gathers stdout (and stderr, if
 * `with_stderr`) in `out`, up to out->max. Its environment is PATH and LC_ALL=C.UTF-8, its session
 * its own. Killed, with its process group, at the deadline (-ETIME) or when it writes more
 * (-EFBIG). *ret_status is the exit status, or 128 + signal. Processes it leaves behind are not
 * waited for.
 */
int proc_capture(const char *path, const char *const *argv, bool with_stderr, uint64_t deadline,
		 struct buf *out, int *ret_status, struct err *e);

/* For a child before it executes: nothing is ignored and nothing blocked. */
void proc_reset_signals(void);

/* The directory that this program's file is in. 0 or -errno. */
int proc_own_directory(char ret[static PATH_MAX]);

/* Whether there is a program DIR/BELOW/NAME; its path without links. */
bool proc_find_in(const char *dir, const char *below, const char *name, char ret[static PATH_MAX]);

/*
 * Looks `name` up in the fixed list of system directories (not $PATH). 0, -ENOENT, or
 * -ENAMETOOLONG.
 */
int proc_find(const char *name, char *out, size_t n);
