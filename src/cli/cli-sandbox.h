/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the commands that read sandboxes. */
#pragma once

#include "cli/cli.h"
#include "sandbox/sandbox.h"

/* Opens the state of all sandboxes, after reclaiming the remains of dead ones. */
int cli_state_open(struct state_root *ret, struct err *e);

/* Options that cli_plan() reads. */
/* clang-format off */
#define OPTS_COMMANDS                                                                   \
	{ "env", 'e', "NAME=VALUE", "set a variable (can be repeated)" },               \
	{ "user", 'u', "USER", "run commands as this user: a name, UID or UID:GID" },   \
	{ "workdir", 'w', "DIR", "start commands in this directory" }
#define OPTS_SANDBOX                                                                    \
	OPT_INCLUDE,                                                                    \
	{ "agent", 'a', "AGENT", "agent whose policy applies" },                         \
	{ "image", 0, "IMAGE", "the root tree to start from" },                         \
	{ "level", 0, "LEVEL", "minimum isolation level: container or microvm" },       \
	{ "memory", 'm', "SIZE", "memory, such as 256MiB" },                            \
	{ "cpus", 0, "N", "processors, such as 0.5" },                                  \
	{ "disk", 0, "SIZE", "space for written files" },                               \
	{ "scratch", 0, "KIND", "where written files are kept: disk, memory" },         \
	{ "pids", 0, "N", "processes and threads" },                                    \
	{ "best-effort", 0, NULL, "start even if this host cannot enforce these limits" }, \
	{ "timeout", 0, "TIME", "time limit of a command, such as 30s" },               \
	{ "ttl", 0, "TIME", "maximum lifetime of the sandbox" }
/* clang-format on */

/* A sandbox as requested by the options of `hutch create` or, if `once`, `hutch run`. */
struct cli_plan {
	struct spec policy; /* from the policy and the image */
	struct spec with;   /* the same with the options applied; borrows its texts */
	const char *const *env;
};
int cli_plan(const struct invocation *inv, bool once, struct cli_plan *ret);
void cli_plan_done(struct cli_plan *p);

/* Reads --count: 1 to `max`, default 1. */
int cli_take_count(const struct invocation *inv, unsigned int max, unsigned int *ret);
