/* SPDX-License-Identifier: Apache-2.0 */
/* hutch pool fill, ls, drain */
#include <string.h>

#include "base/str.h"
#include "cli/cli-sandbox.h"
#include "sandbox/spares.h"

enum {
	KEY_SHOWN = 12,
};

static void say(unsigned int there, unsigned int want)
{
	(void)fprintf(stderr, "spare %u of %u\n", there + 1, want);
}

static int run_pool_fill(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_(cli_plan_done) struct cli_plan p = { 0 };
	struct err e = ERR_INIT;
	unsigned int n = 0;
	int code = cli_take_count(inv, SPARES_MAX, &n);

	if (code == EXIT_OK)
		code = cli_plan(inv, false, &p);
	if (code != EXIT_OK)
		return code;
	if (cli_state_open(&root, &e) < 0 ||
	    spares_fill(&root, &p.with, n, sandbox_start_spare, say, &e) < 0)
		return cli_fail(inv, &e);
	return EXIT_OK;
}

static json_t *row_json(const struct spares *s)
{
	return JSON_OBJECT({ "key", json_string(s->key) }, { "agent", cli_json_text(s->agent) },
			   { "image", cli_json_text(s->image) },
			   { "level", json_string(level_names[s->level]) },
			   { "ready", json_integer(s->there) }, { "want", json_integer(s->want) });
}

static int print_json(const struct spares *list, size_t n)
{
	json_t *all = json_array();

	for (size_t i = 0; all && i < n; i++)
		if (json_push(all, row_json(&list[i])) < 0) {
			json_decref(all);
			all = NULL;
		}
	return cli_print_json(all, EXIT_OK);
}

static int run_pool_ls(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_free_ struct spares *list = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;

	if (cli_state_open(&root, &e) < 0 || spares_list(&root, &list, &n, &e) < 0)
		return cli_fail(inv, &e);
	if (cli_option(inv, "json"))
		return print_json(list, n);
	for (size_t i = 0; i < n; i++) {
		(void)printf("%.*s  %-9s  %u of %u ready  ", KEY_SHOWN, list[i].key,
			     level_names[list[i].level], list[i].there, list[i].want);
		cli_puts(stdout, list[i].agent);
		(void)fputs("  ", stdout);
		cli_puts(stdout, list[i].image);
		(void)fputc('\n', stdout);
	}
	return EXIT_OK;
}

/* Returns whether the command line names the key; without arguments, all keys. */
static bool is_meant(const struct invocation *inv, const char *key, bool *found)
{
	bool meant = inv->n_args == 0;

	for (int i = 0; i < inv->n_args; i++)
		if (inv->args[i][0] && str_has_prefix(key, inv->args[i]))
			meant = found[i] = true;
	return meant;
}

static int run_pool_drain(struct invocation *inv)
{
	_cleanup_free_ bool *found = calloc((size_t)inv->n_args + 1, sizeof(*found));
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_free_ struct spares *list = NULL;
	int code = EXIT_OK;
	struct err e = ERR_INIT;
	size_t n = 0;

	if (!found || cli_state_open(&root, &e) < 0 || spares_list(&root, &list, &n, &e) < 0)
		return cli_fail(inv, found ? &e : &(struct err){ -ENOMEM, "out of memory" });
	for (size_t i = 0; i < n; i++) {
		if (!is_meant(inv, list[i].key, found))
			continue;
		if (spares_drain(&root, list[i].key, &e) < 0)
			code = cli_fail(inv, &e);
		else
			(void)printf("%s: drained\n", list[i].key);
	}
	for (int i = 0; i < inv->n_args; i++)
		if (!found[i])
			code = cli_usage(inv, "no pool '%s': see 'hutch pool ls'", inv->args[i]);
	return code;
}

/* clang-format off */
static const struct command cmd_pool_fill = {
	.name = "fill", .args = "",
	.summary = "keep spares of a kind of sandbox ready",
	.help = "A 'hutch run', 'hutch create' or request to hutchd with the same options, policy and image gets a ready\n"
		"spare, and a new spare replaces it. Deadline, --rm and metadata may differ. Returns when the spares are\n"
		"ready.",
	.options = OPTIONS(
		{ "count", 'n', "N", "number of spares, default 1" },
		OPTS_COMMANDS, OPTS_SANDBOX,
		{ "idle", 0, "TIME", "maximum time without a running command" }),
	.run = run_pool_fill,
};

static const struct command cmd_pool_ls = {
	.name = "ls", .args = "",
	.summary = "list the kinds of spares and their number",
	.options = OPTIONS(OPT_JSON), .run = run_pool_ls,
};

static const struct command cmd_pool_drain = {
	.name = "drain", .args = "[KEY...]", .max_args = ARGS_MAX,
	.summary = "end the spares of these kinds, or all spares",
	.run = run_pool_drain,
};

const struct command cmd_pool = {
	.name = "pool", .args = "",
	.summary = "keep spare sandboxes ready",
	.sub = COMMANDS(&cmd_pool_fill, &cmd_pool_ls, &cmd_pool_drain),
};
/* clang-format on */
