/* SPDX-License-Identifier: Apache-2.0 */
/* hutch snapshot ls, rm */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli-audit.h"
#include "cli/cli-sandbox.h"
#include "cli/view.h"
#include "sandbox/sandbox.h"
#include "snapshot/snapshot.h"

enum {
	ID_SHOWN = 16, /* digits of a template's longer key; still unique */
};

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void print_row(const json_t *one)
{
	char size[32], age[VALUE_HINT_MAX];
	uint64_t created = 0;

	(void)printf("%-*.*s  ", ID_SHOWN, ID_SHOWN, text_of(one, "id"));
	if (json_object_get(one, "error")) {
		cli_puts(stdout, text_of(one, "error"));
		(void)fputc('\n', stdout);
		return;
	}
	(void)clock_parse(text_of(one, "created"), &created);
	view_size((uint64_t)json_integer_value(json_object_get(one, "bytes")), size, sizeof(size));
	(void)printf("%-8s  %10s  %6s  ", text_of(one, "kind"), size, view_age(created, age));
	cli_puts(stdout, text_of(json_object_get(one, "info"), "image"));
	(void)fputc('\n', stdout);
}

static int run_snapshot_ls(struct invocation *inv)
{
	_cleanup_json_ json_t *list = NULL;
	struct err e = ERR_INIT;
	const json_t *one;
	size_t i;

	if (snapshot_list(&list, &e) < 0)
		return cli_fail(inv, &e);
	if (cli_option(inv, "json"))
		return cli_print_json(TAKE_PTR(list), EXIT_OK);
	json_array_foreach(list, i, one)
	{
		print_row(one);
	}
	return EXIT_OK;
}

/* Finds the one id with this prefix. */
static int find(const char *prefix, char ret[static SNAPSHOT_KEY + 1], struct err *e)
{
	_cleanup_json_ json_t *list = NULL;
	const json_t *one;
	size_t i;
	int r = snapshot_list(&list, e);

	if (r < 0)
		return r;
	ret[0] = '\0';
	json_array_foreach(list, i, one)
	{
		if (prefix[0] == '\0' || !str_has_prefix(text_of(one, "id"), prefix))
			continue;
		if (ret[0])
			return err_set(e, -EINVAL, "more than one snapshot begins with '%.80s'",
				       prefix);
		(void)snprintf(ret, SNAPSHOT_KEY + 1, "%s", text_of(one, "id"));
	}
	return ret[0] ? 0 : err_set(e, -ENOENT, "no snapshot '%.80s': hutch snapshot ls", prefix);
}

/* Removes a snapshot only after the intent is recorded. */
static int remove_one(const struct invocation *inv, const char *prefix)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	char key[SNAPSHOT_KEY + 1];
	struct err e = ERR_INIT;
	int r = find(prefix, key, &e);

	if (r == 0)
		r = sandbox_needs_snapshot(key, &e);
	if (r == 0) {
		cli_audit_begin(&p, "rm", "snapshot", key);
		r = cli_audit(AUDIT_IMAGE, &p, &e);
	}
	if (r == 0)
		r = snapshot_remove(key, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	(void)printf("%s: removed\n", key);
	return EXIT_OK;
}

static int run_snapshot_rm(struct invocation *inv)
{
	int code = EXIT_OK;

	for (int i = 0; i < inv->n_args; i++) {
		int one = remove_one(inv, inv->args[i]);

		code = code == EXIT_OK ? one : code;
	}
	return code;
}

/* clang-format off */
static const struct command cmd_snapshot_ls = {
	.name = "ls", .args = "",
	.summary = "list templates and snapshots of microVMs",
	.help = "A template is a booted VM that no sandbox uses: sandboxes of level microvm start as clones of one. Hutch\n"
		"makes a template when it is first needed. Prints id, kind, disk usage, age and image.",
	.options = OPTIONS(OPT_JSON), .run = run_snapshot_ls,
};

static const struct command cmd_snapshot_rm = {
	.name = "rm", .args = "ID...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "remove templates and snapshots",
	.help = "ID is an id or a prefix of one. Sandboxes that were started from one continue without it. The snapshot of a\n"
		"suspended sandbox stays.",
	.run = run_snapshot_rm,
};

const struct command cmd_snapshot = {
	.name = "snapshot", .args = "",
	.summary = "save microVMs, list and remove snapshots and templates",
	.sub = COMMANDS(&cmd_snapshot_create, &cmd_snapshot_ls, &cmd_snapshot_rm),
};
/* clang-format on */
