/* SPDX-License-Identifier: Apache-2.0 */
/* hutch fork, hutch snapshot create: copies of a running microVM. */
#include <string.h>

#include "base/str.h"
#include "cli/cli-sandbox.h"
#include "sandbox/sandbox.h"

enum {
	FORKS_MAX = 100,
};

static int run_snapshot_create(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	char name[SANDBOX_SNAPSHOT];
	struct err e = ERR_INIT;

	if (cli_state_open(&root, &e) < 0 || sandbox_find(&root, inv->args[0], &b, &e) < 0 ||
	    sandbox_save(&b, WIRE_SAVE_KEEP, name, &e) < 0)
		return cli_fail(inv, &e);
	(void)puts(name);
	return EXIT_OK;
}

int cli_take_count(const struct invocation *inv, unsigned int max, unsigned int *ret)
{
	const char *text = cli_option(inv, "count");
	uint64_t n = 1;

	if (text && (str_to_u64(text, strlen(text), max, &n) < 0 || n == 0))
		return cli_usage(inv, "--count '%s': expected a number from 1 to %u", text, max);
	*ret = (unsigned int)n;
	return EXIT_OK;
}

static int run_fork(struct invocation *inv)
{
	_cleanup_(sandbox_fork_end) struct sandbox_fork f = SANDBOX_FORK_INIT;
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	struct err e = ERR_INIT;
	unsigned int n = 0;
	int code = cli_take_count(inv, FORKS_MAX, &n);

	if (code != EXIT_OK)
		return code;
	if (cli_state_open(&root, &e) < 0 || sandbox_find(&root, inv->args[0], &b, &e) < 0 ||
	    sandbox_fork_begin(&b, &f, &e) < 0)
		return cli_fail(inv, &e);
	for (unsigned int i = 0; i < n; i++) {
		_cleanup_sandbox_ struct sandbox one = SANDBOX_INIT;

		if (sandbox_fork_one(&root, &f, "", &one, &e) < 0)
			return cli_fail(inv, &e);
		(void)puts(one.id);
	}
	return EXIT_OK;
}

/* clang-format off */
const struct command cmd_snapshot_create = {
	.name = "create", .args = "ID", .min_args = 1, .max_args = 1,
	.summary = "save the memory and the disk of a running microVM",
	.help = "The sandbox pauses while it is saved. Prints the name of the snapshot: 'hutch create --snapshot NAME'\n"
		"starts a sandbox from it, even after a reboot of the host, with the policy that its agent has then.",
	.run = run_snapshot_create,
};

const struct command cmd_fork = {
	.name = "fork", .args = "ID", .min_args = 1, .max_args = 1,
	.summary = "make copies of a running microVM",
	.help = "Each copy has the memory, processes, files and policy of the original, but its own name, random numbers,\n"
		"limits and records. The original keeps running. Its commands continue in each copy, in records of the\n"
		"copy.",
	.options = OPTIONS(
		{ "count", 'n', "N", "number of copies, default 1" }),
	.run = run_fork,
};
/* clang-format on */
