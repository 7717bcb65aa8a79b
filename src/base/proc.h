/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes: started without a shell, held by pidfd, never signalled by a pid that may have
 * been reused.
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

/* Everything a child receives. */
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

/* fork(2). Returns 1 in the child; 0 in the parent, which owns *ret; or -errno. */
int proc_fork(struct proc *ret);

/* Same, with the child in the v2 control group `group` from its first instruction on. */
int proc_fork_into(int group, struct proc *ret);

/* Holds a child that another process made for us. Only we can reap it, so the number is not reused.
 * 0; -ECHILD if it is not our child; or -errno. */
int proc_adopt(pid_t pid, struct proc *ret);

/*
 * For a child: the kernel sends it `signo` when its parent ends. A change of ids resets this.
 * -ESRCH if `parent` has ended already, which the kernel does not report; `parent` 0: not checked,
 * for a child in another pid namespace or one that does not know its parent. 0 or -errno.
 */
int proc_die_with(pid_t parent, int signo);

/* Sends a signal through the pidfd. 0 or -errno (-ESRCH: it has ended). */
int proc_signal(const struct proc *p, int sig);

/*
 * Waits until the process ends, at most until `deadline` (clock_mono(); UINT64_MAX: no limit) and
 * reaps it. *ret_info as from waitid(2). -ETIME if the deadline passed and the process still runs;
 * -ECHILD if it was reaped before. The pidfd stays open until proc_done(), because it may be in an
 * event loop.
 */
int proc_wait(struct proc *p, uint64_t deadline, siginfo_t *ret_info);

/*
 * Kills and reaps a running process, closes the pidfd; for _cleanup_proc_. A child that we may not
 * signal (setuid) is left alone, not waited for.
 */
void proc_done(struct proc *p);

/*
 * Runs a program to its end with stdin from /dev/null and collects stdout (and stderr, if
 * `with_stderr`) in `out`, up to out->max. Its environment is PATH and LC_ALL=C.UTF-8; it has its
 * own session. Kills it, with its process group, at the deadline (-ETIME) or when it writes more
 * (-EFBIG). *ret_status is the exit status, or 128 + signal. Does not wait for processes it leaves
 * behind.
 */
int proc_capture(const char *path, const char *const *argv, bool with_stderr, uint64_t deadline,
		 struct buf *out, int *ret_status, struct err *e);

/* For a child before it executes: no signal is ignored or blocked. */
void proc_reset_signals(void);

/* Returns the directory of this program's file. 0 or -errno. */
int proc_own_directory(char ret[static PATH_MAX]);

/* Returns whether the program DIR/BELOW/NAME exists, and its path without links. */
bool proc_find_in(const char *dir, const char *below, const char *name, char ret[static PATH_MAX]);

/*
 * Looks `name` up in the fixed list of system directories (not $PATH). 0, -ENOENT, or
 * -ENAMETOOLONG.
 */
int proc_find(const char *name, char *out, size_t n);
