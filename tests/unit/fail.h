/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fault injection. The test program is linked with --wrap for the calls listed in meson.build
 * (fail_wrap_args), and jansson allocates through base/json-memory.c. A test can make the n-th call
 * fail, and a sweep over n reaches every error path of an operation.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

enum {
	FAIL_SWEEP_MAX = 100000 /* more faults in one operation: an endless loop */
};

/*
 * Makes the n-th wrapped call (from 1) after this one fail with `error`, once; allocations always
 * fail with ENOMEM. EINTR counts only calls that a signal can interrupt.
 */
void fail_arm(unsigned int n, int error);
bool fail_reached(void); /* since fail_arm() */
void fail_off(void);

/* Number of open file descriptors of this process. */
size_t fail_count_fds(void);

/*
 * One step of FAIL_SWEEP: checks the result `r` of a run with `error` armed that started with `fds`
 * open file descriptors. Returns whether there is a next step.
 */
bool fail_step(int r, int error, unsigned int n, size_t fds, const char *what, const char *file,
	       int line);

/*
 * Runs `expr`, which returns 0 or more, or -errno, and cleans up after itself. Each run injects a
 * fault into the first, second, third ... call, until no call is left. Each run must succeed or
 * fail cleanly and leave no file descriptor open; LeakSanitizer finds leaked memory. An interrupted
 * call must have no effect.
 */
#define FAIL_SWEEP(expr)                  \
	do {                              \
		FAIL_SWEEP_(expr, EIO);   \
		FAIL_SWEEP_(expr, EINTR); \
	} while (0)

#define FAIL_SWEEP_(expr, error)                                                   \
	for (unsigned int n_ = 1, more_ = 1; more_; n_++) {                        \
		size_t fds_ = fail_count_fds();                                    \
		int r_;                                                            \
                                                                                   \
		fail_arm(n_, error);                                               \
		r_ = (expr);                                                       \
		more_ = fail_step(r_, error, n_, fds_, #expr, __FILE__, __LINE__); \
	}
