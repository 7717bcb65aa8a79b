/* SPDX-License-Identifier: Apache-2.0 */
/* hutch fork, hutch snapshot create: copies of a microVM that runs. */
#include <string.h>

#include "cli-sandbox.h"
#include "sandbox.h"
#include "str.h"

enum {
	FORKS_MAX = 100,
};

int cmd_snapshot_create(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	char name[SANDBOX_SNAPSHOT];
	struct err e = ERR_INIT;

	if (cli_state_open(&root, &e) < 0 || sandbox_find(&root, inv->args[0], &b, &e) < 0 ||
	    sandbox_save(&b, false, name, &e) < 0)
		return cli_fail(inv, &e);
	(void)puts(name);
	return EXIT_OK;
}

static int take_count(const struct invocation *inv, uint64_t *ret)
{
	const char *text = cli_option(inv, "count");

	*ret = 1;
	if (text && (str_to_u64(text, strlen(text), FORKS_MAX, ret) < 0 || *ret == 0))
		return cli_usage(inv, "--count '%s': expected a number from 1 to %d", text,
				 FORKS_MAX);
	return EXIT_OK;
}

int cmd_fork(struct invocation *inv)
{
	_cleanup_(sandbox_fork_end) struct sandbox_fork f = { 0 };
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	struct err e = ERR_INIT;
	uint64_t n;
	int code = take_count(inv, &n);

	if (code != EXIT_OK)
		return code;
	if (cli_state_open(&root, &e) < 0 || sandbox_find(&root, inv->args[0], &b, &e) < 0 ||
	    sandbox_fork_begin(&b, &f, &e) < 0)
		return cli_fail(inv, &e);
	for (uint64_t i = 0; i < n; i++) {
		_cleanup_sandbox_ struct sandbox one = SANDBOX_INIT;

		if (sandbox_fork_one(&root, &f, &one, &e) < 0)
			return cli_fail(inv, &e);
		(void)puts(one.id);
	}
	return EXIT_OK;
}
