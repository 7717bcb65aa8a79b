/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of a sandbox, whichever engine runs it: what is allowed, and EPERM for
 * everything else. Tighter than what container engines ship: no namespaces by any call, no
 * io_uring, no sockets but unix, TCP, UDP and ping ones, no typing into terminals, one ABI.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct call {
	const char *name;
	int number;
};

/* Up to one without a name: allowed whatever their arguments; "not there" rather than "not allowed"
 * (ENOSYS), so that callers fall back to what is; done, without doing it. */
extern const struct call calls_allowed[], calls_absent[], calls_ignored[];

/* Holds if (argument & mask) == value; without a mask, if the argument is anything but 0. */
struct call_compare {
	int argument;
	uint64_t mask, value;
};

/* Where all comparisons hold, the call is allowed, or else done without doing it. */
struct call_rule {
	struct call call;
	bool allow;
	const struct call_compare *compare;
	size_t n;
};

/* Gives all rules for calls that depend on their arguments to `take`, which returns 0 or -errno. */
typedef int call_rule_fn(const struct call_rule *rule, void *arg);
int calls_conditional(call_rule_fn *take, void *arg);
