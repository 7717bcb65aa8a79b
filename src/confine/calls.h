/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls allowed in a sandbox, with any engine; all others fail with EPERM. Stricter than
 * the defaults of container engines: no new namespaces, no io_uring, only unix, TCP, UDP and ping
 * sockets, no input into terminals, one ABI.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call {
	const char *name;
	int number;
};

/* Lists that end with an entry without a name. Allowed calls: with any arguments. Absent calls fail
 * with ENOSYS, so that callers fall back. Ignored calls succeed without effect. */
extern const struct call calls_allowed[], calls_absent[], calls_ignored[];

/* Holds if (argument & mask) == value; without a mask, if the argument is anything but 0. */
struct call_compare {
	int argument;
	uint64_t mask, value;
};

/* If all comparisons hold, the call is allowed, or (`allow` false) succeeds without effect. */
struct call_rule {
	struct call call;
	bool allow;
	const struct call_compare *compare;
	size_t n;
};

/* Passes all rules for calls that depend on their arguments to `take`, which returns 0 or -errno.
 */
typedef int call_rule_fn(const struct call_rule *rule, void *arg);
int calls_conditional(call_rule_fn *take, void *arg);
