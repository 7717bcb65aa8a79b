/* SPDX-License-Identifier: Apache-2.0 */
/* hutch secret set, rotate, refresh, ls, rm */
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli-audit.h"
#include "cli/secret-input.h"
#include "cli/secret-refresh.h"

enum {
	CELL_MAX = 64 * 1024,
	SOURCE_WIDTH = 40,
};

/* "2026-11-15T08:00:00Z": seconds are precise enough for people. */
static const char *shown(uint64_t wall, char out[static CLOCK_RFC3339_MAX])
{
	(void)clock_format(wall, out);
	memcpy(out + STRLEN("2026-11-15T08:00:00"), "Z", 2);
	return out;
}

/* Keeps values out of core dumps, and from other processes of the user: ptrace(2). */
static void hide_memory(void)
{
	/* The sanitizers' runtime traces its own process. */
	if (!SANITIZED)
		(void)prctl(PR_SET_DUMPABLE, 0);
}

static int check_name(const struct invocation *inv, const char *name)
{
	struct err e = ERR_INIT;

	if (strchr(name, '='))
		return cli_usage(inv,
				 "expected the name alone: a value is not an argument, because "
				 "other users see command lines (ps); consider this value leaked");
	return secret_name_check(name, &e) < 0 ? cli_usage(inv, "%s", e.msg) : EXIT_OK;
}

/* ---- records ---- */

/* Records the intent; on failure the secret must not change. */
static int intend(const char *op, const char *name, const char *source, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	cli_audit_begin(&p, op, "name", name);
	if (source)
		audit_put_text(&p, "source", source);
	return cli_audit(AUDIT_SECRET, &p, e);
}

static void outcome_of(const struct invocation *inv, const char *op, const char *name,
		       const struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	cli_audit_begin(&p, op, "name", name);
	audit_put_text(&p, "result", e->num ? "failed" : "done");
	if (e->num)
		audit_put_text(&p, "text", e->msg);
	cli_audit_try(inv, AUDIT_SECRET, &p);
}

static void outcome(const struct invocation *inv, const char *name, const struct err *e)
{
	outcome_of(inv, inv->cmd->name, name, e);
}

/* ---- set, rotate ---- */

/* Reads the value and stores it. */
static int change(const struct invocation *inv, const struct secret_origin *origin,
		  enum secret_how how, struct err *e)
{
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	_cleanup_secret_ struct buf value = BUF_INIT(0);
	const char *name = inv->args[0];
	int r = secret_input_read(inv, name, origin, &value, e);

	if (r < 0)
		return err_wrap(e, "nothing is changed");
	(void)umask(077); /* not before: a command has the caller's */
	r = secret_store_open(true, &s, e);
	if (r == 0)
		r = intend(inv->cmd->name, name, secret_source_name(origin->source), e);
	if (r == 0) {
		r = secret_set(&s, name, &value, origin, how, e);
		outcome(inv, name, e);
	}
	return r;
}

/* Reads the command line; the process may then hold a value. */
static int prepare(const struct invocation *inv, struct secret_origin *ret)
{
	int r = secret_input_source(inv, ret);

	if (r == EXIT_OK)
		r = check_name(inv, inv->args[0]);
	if (r == EXIT_OK)
		hide_memory();
	return r;
}

/* Fails before a value is asked for. */
static int check_new(const char *name, struct err *e)
{
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	int r = secret_store_open(false, &s, e);

	if (r == 0)
		r = secret_has(&s, name, e);
	return r == 1 ? secret_exists(name, e) : r;
}

/* ---- refresh ---- */

/* Gets a token; prints when it expires. */
static int refresh(const struct invocation *inv, const char *name, bool force)
{
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	char result[SECRET_REFRESH_TEXT];
	struct err e = ERR_INIT;
	int r = secret_store_open(false, &s, &e);

	if (r == 0)
		r = intend("refresh", name, NULL, &e);
	if (r == 0) {
		r = secret_refresh(&s, name, force, result, &e);
		outcome_of(inv, "refresh", name, &e);
	}
	if (r < 0)
		return cli_fail(inv, &e);
	(void)printf("%s: %s\n", name, result);
	return EXIT_OK;
}

static int run_secret_refresh(struct invocation *inv)
{
	const bool force = cli_option(inv, "force");
	int r = EXIT_OK, code = EXIT_OK;

	for (int i = 0; r == EXIT_OK && i < inv->n_args; i++)
		r = check_name(inv, inv->args[i]);
	if (r != EXIT_OK)
		return r;
	for (int i = 0; i < inv->n_args; i++) {
		r = refresh(inv, inv->args[i], force);
		code = r == EXIT_OK ? code : r;
	}
	return code;
}

/* The first token shows whether the credential works. It stays set if not. */
static int finish(const struct invocation *inv, const struct secret_origin *origin,
		  const char *done)
{
	(void)printf("%s: %s\n", inv->args[0], done);
	return secret_is_refreshed(origin->source) ? refresh(inv, inv->args[0], false) : EXIT_OK;
}

static int run_secret_set(struct invocation *inv)
{
	const bool replace = cli_option(inv, "replace");
	struct secret_origin origin;
	struct err e = ERR_INIT;
	int r = prepare(inv, &origin);

	if (r != EXIT_OK)
		return r;
	r = replace ? 0 : check_new(inv->args[0], &e);
	if (r == 0)
		r = change(inv, &origin, replace ? SECRET_REPLACE : SECRET_NEW, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	return finish(inv, &origin, "set");
}

static bool has_source(const struct invocation *inv)
{
	return cli_option(inv, "file") || cli_option(inv, "env") || cli_option(inv, "exec") ||
	       cli_option(inv, "oauth") || cli_option(inv, "github-app");
}

/* Without an option, a secret from a command comes from this command again. */
static void use_command(const struct secret_info *info, const char *words[static SECRET_ARGS_MAX],
			struct secret_origin *origin)
{
	size_t n = MIN(json_array_size(info->command), (size_t)SECRET_ARGS_MAX);

	for (size_t i = 0; i < n; i++)
		words[i] = json_string_value(json_array_get(info->command, i));
	if (n > 0)
		*origin = (struct secret_origin){ .source = SECRET_EXEC, .command = words, .n = n };
}

static int run_secret_rotate(struct invocation *inv)
{
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	_cleanup_secret_info_ struct secret_info info = { 0 };
	const char *words[SECRET_ARGS_MAX + 1] = { NULL };
	struct secret_origin origin;
	struct err e = ERR_INIT;
	int r = prepare(inv, &origin);

	if (r != EXIT_OK)
		return r;
	r = secret_store_open(false, &s, &e);
	if (r == 0)
		r = secret_find(&s, inv->args[0], &info, &e);
	if (r == 0 && !has_source(inv) && secret_is_refreshed(info.source))
		return cli_usage(inv,
				 "a new credential of '%s' comes from --oauth or --github-app; "
				 "'hutch secret refresh' gets a new token",
				 inv->args[0]);
	if (r == 0 && !has_source(inv))
		use_command(&info, words, &origin);
	if (r == 0)
		r = change(inv, &origin, SECRET_ROTATE, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	return finish(inv, &origin, "rotated");
}

/* ---- ls ---- */

enum {
	NAME,
	SOURCE,
	HOSTS,
	SET,
	USED,
	COLUMNS
};

/* Appends escaped text. */
static void put(struct buf *b, const char *text)
{
	(void)str_escape(b, text, strlen(text));
}

static void put_list(struct buf *b, const char *before, const json_t *list, const char *between)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		(void)buf_puts(b, i ? between : before);
		put(b, json_string_value(json_array_get(list, i)));
	}
}

/* Cuts long text between characters. */
static void cut(struct buf *b, size_t n)
{
	if (b->len <= n)
		return;
	for (n -= STRLEN("..."); n > 0 && ((unsigned char)b->data[n] & 0xc0) == 0x80;)
		n--;
	b->len = n;
	(void)buf_puts(b, "...");
}

static void fill_row(const struct secret_info *i, struct buf row[static COLUMNS])
{
	char time[CLOCK_RFC3339_MAX];

	put(&row[NAME], i->name);
	if (!i->set) {
		(void)buf_puts(&row[SOURCE], "unreadable");
		for (size_t k = HOSTS; k < COLUMNS; k++)
			(void)buf_puts(&row[k], "-");
		return;
	}
	(void)buf_puts(&row[SOURCE], secret_source_name(i->source));
	put_list(&row[SOURCE], ": ", i->command, " ");
	cut(&row[SOURCE], SOURCE_WIDTH);
	put_list(&row[HOSTS], "", i->hosts, ",");
	if (row[HOSTS].len == 0)
		(void)buf_puts(&row[HOSTS], "-");
	(void)buf_puts(&row[SET], shown(i->set, time));
	(void)buf_puts(&row[USED], i->used ? shown(i->used, time) : "never");
}

typedef struct buf secret_row[COLUMNS];

static void print_rows(secret_row *rows, size_t n)
{
	int width[COLUMNS] = { 0 };

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < COLUMNS; k++)
			width[k] = MAX(width[k], (int)rows[i][k].len);
	for (size_t i = 0; i < n; i++)
		(void)printf("%-*s  %-*s  %-*s  %-*s  %s\n", width[NAME], buf_text(&rows[i][NAME]),
			     width[SOURCE], buf_text(&rows[i][SOURCE]), width[HOSTS],
			     buf_text(&rows[i][HOSTS]), width[SET], buf_text(&rows[i][SET]),
			     buf_text(&rows[i][USED]));
}

/* Row 0 is the heading. */
static int print_table(const struct secret_info *list, size_t n)
{
	static const char *const heading[COLUMNS] = { "NAME", "SOURCE", "HOSTS", "SET",
						      "LAST USED" };
	secret_row *rows = calloc(n + 1, sizeof(*rows));

	if (!rows)
		return -ENOMEM;
	for (size_t i = 0; i <= n; i++)
		for (size_t k = 0; k < COLUMNS; k++)
			rows[i][k].max = CELL_MAX;
	for (size_t k = 0; k < COLUMNS; k++)
		(void)buf_puts(&rows[0][k], heading[k]);
	for (size_t i = 0; i < n; i++)
		fill_row(&list[i], rows[i + 1]);
	print_rows(rows, n + 1);
	for (size_t i = 0; i <= n; i++)
		for (size_t k = 0; k < COLUMNS; k++)
			buf_done(&rows[i][k]);
	free(rows);
	return 0;
}

static json_t *time_json(uint64_t time)
{
	char text[CLOCK_RFC3339_MAX];

	return time > 0 ? json_string(clock_format(time, text)) : json_null();
}

static json_t *info_json(const struct secret_info *i)
{
	return JSON_OBJECT(
		{ "name", json_string(i->name) },
		{ "source", i->set ? json_string(secret_source_name(i->source)) : json_null() },
		{ "command", i->command ? json_incref(i->command) : json_null() },
		{ "hosts", i->hosts ? json_incref(i->hosts) : json_array() },
		{ "set", time_json(i->set) }, { "used", time_json(i->used) },
		{ "error", i->trouble.num ? cli_json_text(i->trouble.msg) : json_null() });
}

static int print_json(const struct secret_info *list, size_t n)
{
	_cleanup_json_ json_t *array = json_array();

	for (size_t i = 0; array && i < n; i++)
		if (json_push(array, info_json(&list[i])) < 0)
			return cli_print_json(NULL, EXIT_OK);
	return cli_print_json(TAKE_PTR(array), EXIT_OK);
}

static int run_secret_ls(struct invocation *inv)
{
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	struct secret_info *list = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;
	int r = secret_store_open(false, &s, &e);

	if (r == 0)
		r = secret_store_list(&s, &list, &n, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	if (cli_option(inv, "json"))
		r = print_json(list, n);
	else if (print_table(list, n) < 0)
		r = cli_fail(inv, (err_oom(&e), &e));
	for (size_t i = 0; i < n; i++)
		if (list[i].trouble.num) {
			(void)cli_fail(inv, &list[i].trouble);
			r = EXIT_HUTCH;
		}
	secret_infos_free(list, n);
	return r;
}

/* ---- rm ---- */

static int remove_one(const struct invocation *inv, const struct secret_store *s, const char *name)
{
	struct err e = ERR_INIT;
	int r = intend("rm", name, NULL, &e);

	if (r == 0) {
		r = secret_remove(s, name, &e);
		outcome(inv, name, &e);
	}
	if (r < 0)
		return cli_fail(inv, &e);
	(void)printf("%s: removed\n", name);
	return EXIT_OK;
}

/* A missing name is an error before anything is removed. */
static int run_secret_rm(struct invocation *inv)
{
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	struct err e = ERR_INIT;
	int r = EXIT_OK, code = EXIT_OK;

	for (int i = 0; r == EXIT_OK && i < inv->n_args; i++)
		r = check_name(inv, inv->args[i]);
	if (r != EXIT_OK)
		return r;
	r = secret_store_open(false, &s, &e);
	for (int i = 0; r >= 0 && i < inv->n_args; i++) {
		r = secret_has(&s, inv->args[i], &e);
		if (r == 0)
			r = secret_remove(&s, inv->args[i], &e); /* says what is missing */
	}
	if (r < 0)
		return cli_fail(inv, &e);
	for (int i = 0; i < inv->n_args; i++) {
		r = remove_one(inv, &s, inv->args[i]);
		code = r == EXIT_OK ? code : r;
	}
	return code;
}

/* clang-format off */
static const struct command cmd_secret_set = {
	.name = "set", .args = "NAME [-- COMMAND ARG...]", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "store a secret; its value is never an argument",
	.help = "Reads the value from a prompt without echo, or from standard input if that is no terminal. One newline at\n"
		"its end is removed. Sandboxes never get the value: Hutch adds it outside, to requests to the hosts that the\n"
		"policy binds the secret to ('secrets' in hutch-agent(5)).",
	.options = OPTIONS(
		OPTS_SECRET_SOURCE,
		{ "replace", 0, NULL, "replace the value of an existing secret" }),
	.run = run_secret_set,
};

static const struct command cmd_secret_rotate = {
	.name = "rotate", .args = "NAME [-- COMMAND ARG...]", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "give an existing secret a new value",
	.help = "Without an option, a secret that was set with --exec gets the output of the same command. For others, the\n"
		"value is read as 'hutch secret set' reads it. Running sandboxes use the new value at once.",
	.options = OPTIONS(OPTS_SECRET_SOURCE),
	.run = run_secret_rotate,
};

static const struct command cmd_secret_refresh = {
	.name = "refresh", .args = "NAME...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "get a new token for a secret of --oauth or --github-app",
	.help = "Does nothing while more than a quarter of the token's life is left. Sandboxes do this by themselves.",
	.options = OPTIONS({ "force", 0, NULL, "get a new token in any case" }),
	.run = run_secret_refresh,
};

static const struct command cmd_secret_ls = {
	.name = "ls", .args = "",
	.summary = "list the secrets, without their values", .options = OPTIONS(OPT_JSON), .run = run_secret_ls,
};

static const struct command cmd_secret_rm = {
	.name = "rm", .args = "NAME...", .min_args = 1, .max_args = ARGS_MAX,
	.summary = "remove secrets; running sandboxes lose them at once",
	.run = run_secret_rm,
};

const struct command cmd_secret = {
	.name = "secret", .args = "",
	.summary = "store credentials that requests of sandboxes get outside",
	.sub = COMMANDS(&cmd_secret_set, &cmd_secret_rotate, &cmd_secret_refresh, &cmd_secret_ls, &cmd_secret_rm),
};
/* clang-format on */
