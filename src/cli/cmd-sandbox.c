/* SPDX-License-Identifier: Apache-2.0 */
/* hutch receipt, kill, rm */
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/cli-audit.h"
#include "cli/cli-record.h"
#include "cli/view.h"
#include "receipt/receipt.h"
#include "state/kept.h"

/*
 * Reclaims the remains of killed keepers first, so that no dead sandbox is shown. If that fails,
 * lists the sandboxes anyway.
 */
int cli_state_open(struct state_root *ret, struct err *e)
{
	struct err left = ERR_INIT;

	if (state_root_open(ret, e) < 0)
		return e->num;
	if (sandbox_reclaim(ret, &left) < 0) {
		(void)fputs("hutch: ", stderr);
		cli_puts(stderr, left.msg);
		(void)fputc('\n', stderr);
	}
	return 0;
}

/* ---- receipt ---- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void print_layer(const struct invocation *inv, const json_t *layer)
{
	bool yes = json_is_true(json_object_get(layer, "enforced"));
	bool asked = json_is_true(json_object_get(layer, "asked"));
	const char *advice = text_of(layer, "advice");

	(void)printf("%-20s  %s%-12s%s  ", text_of(layer, "name"),
		     cli_style(inv, yes	    ? "\033[32m"
				    : asked ? "\033[1;31m"
					    : "\033[2m"),
		     yes     ? "enforced"
		     : asked ? "not enforced"
			     : "not asked",
		     cli_style(inv, "\033[0m"));
	cli_puts(stdout, text_of(layer, "seen"));
	if (!yes && json_is_true(json_object_get(layer, "best_effort")))
		(void)fputs(" (--best-effort)", stdout);
	(void)fputc('\n', stdout);
	if (!yes && asked && advice[0]) {
		(void)printf("%-36s", "");
		cli_puts(stdout, advice);
		(void)fputc('\n', stdout);
	}
}

/* Not a layer: whether the sandbox can be paused, and by which mechanism. */
static void print_pause(const json_t *receipt)
{
	const json_t *pause = json_object_get(receipt, "pause");

	(void)printf("%-10s  ", "pause");
	cli_puts(stdout, text_of(pause, "by"));
	(void)fputs(": ", stdout);
	cli_puts(stdout, text_of(pause, "seen"));
	(void)fputc('\n', stdout);
}

static void print_facts(json_t *receipt)
{
	const char *name;
	json_t *value;

	json_object_foreach(json_object_get(receipt, "facts"), name, value)
	{
		(void)printf("%-10s  ", name);
		cli_puts(stdout, json_string_value(value) ?: "");
		(void)fputc('\n', stdout);
	}
}

static void print_head(json_t *receipt)
{
	static const char *const keys[] = {
		"sandbox", "level", "engine", "image", "policy", "time"
	};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		(void)printf("%-10s  ", keys[i]);
		cli_puts(stdout, text_of(receipt, keys[i]));
		(void)fputc('\n', stdout);
	}
	print_facts(receipt);
	if (json_object_get(receipt, "pause"))
		print_pause(receipt);
	(void)fputc('\n', stdout);
}

/* Reads receipt.json; the caller owns *ret. -ENOENT if the sandbox never ran. */
static int read_receipt(const struct sandbox *b, json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(RECEIPT_FILE_MAX);
	int r = fd_read_file(b->dir, "receipt.json", &text, e);

	if (r == -ENOENT)
		return err_set(e, r, "sandbox %s has no receipt: it never ran", b->id);
	return r < 0 ? r : json_read(buf_text(&text), text.len, ret, e);
}

static int run_receipt(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_json_ json_t *receipt = NULL;
	struct err e = ERR_INIT;
	const json_t *layer;
	size_t i;

	if (cli_state_open(&root, &e) < 0 || sandbox_find(&root, inv->args[0], &b, &e) < 0 ||
	    read_receipt(&b, &receipt, &e) < 0)
		return cli_fail(inv, &e);
	if (cli_option(inv, "json"))
		return cli_print_json(TAKE_PTR(receipt), EXIT_OK);
	print_head(receipt);
	json_array_foreach(json_object_get(receipt, "layers"), i, layer)
	{
		print_layer(inv, layer);
	}
	return EXIT_OK;
}

/* ---- kill, rm ---- */

/* Records who asks, before acting; a failure to record does not prevent the kill. */
static void record(const struct invocation *inv, const struct sandbox *b)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	cli_audit_begin(&p, inv->cmd->name, "sandbox", b->id);
	cli_audit_try(inv, AUDIT_KILL, &p);
}

static const char *caller(char out[static END_BY_MAX + 1])
{
	(void)snprintf(out, END_BY_MAX + 1, "uid %u", (unsigned int)getuid());
	return out;
}

static int kill_one(const struct invocation *inv, const struct state_root *root, const char *prefix,
		    struct err *e)
{
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	struct err owed = ERR_INIT;
	char by[END_BY_MAX + 1];

	if (sandbox_find(root, prefix, &b, e) < 0)
		return e->num;
	record(inv, &b);
	if (sandbox_kill(root, &b, caller(by), &owed, e) < 0)
		return e->num;
	if (owed.num) {
		(void)fprintf(stderr, "%s: warning: its end is not recorded yet: ", inv->path);
		cli_puts(stderr, owed.msg);
		(void)fputc('\n', stderr);
	}
	(void)puts(b.id);
	return 0;
}

/* Removes a sandbox that has ended or is damaged. */
static int forget(const struct invocation *inv, const struct state_root *root,
		  const struct sandbox *b, struct err *e)
{
	int r;

	record(inv, b);
	r = kept_remove(root, b->id);
	if (r < 0)
		return err_set(e, r, "cannot remove sandbox %s: %s", b->id, strerror(-r));
	(void)puts(b->id);
	return 0;
}

/* Ends a sandbox and removes it without keeping its records. */
static int end_and_remove(const struct invocation *inv, const struct state_root *root,
			  const struct sandbox *b, struct err *e)
{
	struct err owed = ERR_INIT;
	char by[END_BY_MAX + 1];
	int r;

	record(inv, b);
	r = sandbox_kill(root, b, caller(by), &owed, e);
	if (r == 0 && owed.num)
		return err_set(e, owed.num,
			       "sandbox %s has ended, and stays until that can be recorded: %s",
			       b->id, owed.msg);
	/* It has ended, but the disk is too full to record that: removing it frees space. */
	if (r < 0 && r != -ENOSPC && r != -EDQUOT)
		return r;
	(void)FAULT("rm-killed");
	r = state_remove(root, b->id); /* no-op if it was moved, or started with --rm */
	if (r == 0)
		r = kept_remove(root, b->id);
	if (r < 0)
		return err_set(e, r, "cannot remove sandbox %s: %s", b->id, strerror(-r));
	(void)puts(b->id);
	return 0;
}

static int remove_one(const struct invocation *inv, const struct state_root *root,
		      const char *prefix, struct err *e)
{
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	enum state_phase phase;
	int r = sandbox_find(root, prefix, &b, e);

	if (b.ended && (r == 0 || r == -ELOOP || r == -ENOTDIR))
		return forget(inv, root, &b, e);
	if (r < 0)
		return r;
	phase = state_phase(b.dir);
	if (!cli_option(inv, "force") && phase != STATE_ENDED && phase != STATE_DEAD)
		return err_set(e, -EBUSY,
			       "sandbox %s is %s; end it with 'hutch kill', or use 'rm -f'", b.id,
			       state_phase_names[phase]);
	return end_and_remove(inv, root, &b, e);
}

/* Handles each argument, even after a failure. */
static int for_each(const struct invocation *inv, bool removing)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	struct err e = ERR_INIT;
	int code = EXIT_OK;

	if (cli_state_open(&root, &e) < 0)
		return cli_fail(inv, &e);
	for (int i = 0; i < inv->n_args; i++) {
		int r = removing ? remove_one(inv, &root, inv->args[i], &e)
				 : kill_one(inv, &root, inv->args[i], &e);

		if (r < 0)
			code = MAX(code, cli_fail(inv, &e));
	}
	return code;
}

static int run_kill(struct invocation *inv)
{
	return for_each(inv, false);
}

static int run_rm(struct invocation *inv)
{
	return for_each(inv, true);
}

/* clang-format off */
const struct command cmd_receipt = {
	.name = "receipt", .args = "ID", .min_args = 1, .max_args = 1,
	.summary = "show the isolation that the host measured around a sandbox",
	.options = OPTIONS(OPT_JSON), .run = run_receipt,
};

const struct command cmd_kill = {
	.name = "kill", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "end sandboxes", .run = run_kill,
};

const struct command cmd_rm = {
	.name = "rm", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "remove the records of ended sandboxes",
	.options = OPTIONS(
		{ "force", 'f', NULL, "kill running sandboxes first" }),
	.run = run_rm,
};
/* clang-format on */
