/* SPDX-License-Identifier: Apache-2.0 */
/* hutch pause, resume, ttl: requests to the keeper; the warden decides. */
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli-life.h"
#include "cli/cli-sandbox.h"
#include "client/transfer.h"
#include "policy/value.h"
#include "state/spec.h"

int cli_take_time(const struct invocation *inv, const char *what, const char *text, uint64_t *ret)
{
	const int r = value_duration(text, ret);
	char hint[VALUE_HINT_MAX];

	if (r == 0 && *ret > 0 && *ret <= UINT32_MAX)
		return EXIT_OK;
	if (r < 0 && value_duration_hint(text, hint))
		return cli_usage(inv, "%s '%s': did you mean '%s'?", what, text, hint);
	return cli_usage(inv, "%s '%s': expected a time such as 30s or 5m", what, text);
}

int cli_take_on_timeout(const struct invocation *inv, enum on_timeout *ret)
{
	const char *text = cli_option(inv, "on-timeout");

	if (text && on_timeout_parse(text, ret) < 0)
		return cli_usage(inv, "--on-timeout '%s': expected 'end' or 'pause'", text);
	return EXIT_OK;
}

static int ask(const struct state_root *root, const char *prefix, const struct transfer_life *life,
	       char ret_id[static SPEC_ID + 1], uint64_t *ret_deadline, struct err *e)
{
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_transfer_ struct transfer t = TRANSFER_INIT(-EBADF);
	struct transfer_life now = *life;
	_cleanup_close_ int fd = -EBADF;

	if (sandbox_find(root, prefix, &b, e) < 0)
		return e->num;
	memcpy(ret_id, b.id, sizeof(b.id));
	if (now.want == WIRE_RUNNING && state_is_suspended(b.dir))
		return sandbox_resume(root, &b, now.timeout, e);
	if (sandbox_connect(&b, &fd, e) < 0)
		return e->num;
	t.fd = fd;
	if (transfer_life(&t, &now, ret_deadline, e) == 0)
		return 0;
	/* Its keeper answers as long as it can change anything. */
	if (e->num == -EPIPE && state_is_suspended(b.dir))
		return err_set(e, -ESRCH,
			       "sandbox %s is being suspended, and nothing is changed: hutch "
			       "resume %s",
			       b.id, b.id);
	return err_wrap(e, "sandbox %s", b.id);
}

/* Handles each argument, even after a failure. */
static int for_each(const struct invocation *inv, const struct transfer_life *life)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	struct err e = ERR_INIT;
	int code = EXIT_OK;

	if (cli_state_open(&root, &e) < 0)
		return cli_fail(inv, &e);
	for (int i = 0; i < inv->n_args; i++) {
		char id[SPEC_ID + 1];
		uint64_t deadline;

		if (ask(&root, inv->args[i], life, id, &deadline, &e) < 0)
			code = MAX(code, cli_fail(inv, &e));
		else
			(void)puts(id);
	}
	return code;
}

static int run_pause(struct invocation *inv)
{
	return for_each(inv, &(struct transfer_life){ .want = WIRE_PAUSED });
}

static int run_suspend(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	struct err e = ERR_INIT;
	int code = EXIT_OK;

	if (cli_state_open(&root, &e) < 0)
		return cli_fail(inv, &e);
	for (int i = 0; i < inv->n_args; i++) {
		_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
		char name[SANDBOX_SNAPSHOT];

		if (sandbox_find(&root, inv->args[i], &b, &e) < 0 ||
		    sandbox_save(&b, WIRE_SAVE_SUSPEND, name, &e) < 0)
			code = MAX(code, cli_fail(inv, &e));
		else
			(void)puts(b.id);
	}
	return code;
}

static int run_resume(struct invocation *inv)
{
	struct transfer_life life = { .want = WIRE_RUNNING };
	const char *text = cli_option(inv, "deadline");
	int code = text ? cli_take_time(inv, "--deadline", text, &life.timeout) : EXIT_OK;

	return code == EXIT_OK ? for_each(inv, &life) : code;
}

static int run_ttl(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	enum on_timeout then = ON_TIMEOUTS;
	struct transfer_life life = { 0 };
	char id[SPEC_ID + 1], time[CLOCK_RFC3339_MAX];
	struct err e = ERR_INIT;
	uint64_t deadline = 0;
	int code = cli_take_time(inv, "TIME", inv->args[1], &life.timeout);

	if (code == EXIT_OK)
		code = cli_take_on_timeout(inv, &then);
	if (code != EXIT_OK)
		return code;
	if (then != ON_TIMEOUTS)
		life.on_timeout =
			then == ON_TIMEOUT_PAUSE ? WIRE_TIMEOUT_PAUSES : WIRE_TIMEOUT_ENDS;
	if (cli_state_open(&root, &e) < 0 || ask(&root, inv->args[0], &life, id, &deadline, &e) < 0)
		return cli_fail(inv, &e);
	(void)puts(deadline > 0 ? clock_format(deadline * NSEC_PER_MSEC, time) : "paused");
	return EXIT_OK;
}

/* clang-format off */
const struct command cmd_pause = {
	.name = "pause", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "pause sandboxes",
	.help = "Freezes every process of the sandbox, which keeps its memory; nothing is written to disk. A paused sandbox\n"
		"has no deadline, and the time limits of its commands stand still. Needs a freezer: see 'hutch receipt'.",
	.run = run_pause,
};

const struct command cmd_suspend = {
	.name = "suspend", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "save microVMs to disk and end them, until they are resumed",
	.help = "Memory and disk are kept, even across a reboot of the host, and use only disk space. After 'hutch resume'\n"
		"processes continue where they were; running commands continue in new records.",
	.run = run_suspend,
};

const struct command cmd_resume = {
	.name = "resume", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "resume paused and suspended sandboxes",
	.help = "A sandbox keeps the rest of its deadline, or gets a new one. A sandbox that its deadline has paused has no\n"
		"deadline afterwards.",
	.options = OPTIONS(
		{ "deadline", 0, "TIME", "new deadline, from now, such as 10m" }),
	.run = run_resume,
};

const struct command cmd_ttl = {
	.name = "ttl", .args = "ID TIME", .min_args = 2, .max_args = 2,
	.summary = "set the deadline of a sandbox: TIME from now",
	.help = "The new deadline may be earlier or later than the old one, but not later than the ttl of the policy allows;\n"
		"pauses do not extend the ttl. Prints the new deadline.",
	.options = OPTIONS(
		{ "on-timeout", 0, "WHAT", "action at the deadline: end, or pause" }),
	.run = run_ttl,
};
/* clang-format on */
