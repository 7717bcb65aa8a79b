/* SPDX-License-Identifier: Apache-2.0 */
/* hutch ps: lists running sandboxes, and with --all also ended ones that are kept. */
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli-record.h"
#include "cli/view.h"
#include "state/kept.h"

struct row {
	char id[SPEC_ID + 1];
	char agent[64], image[IMAGE_NAME_MAX + 1], owner[SPEC_OWNER_MAX + 1];
	const char *state;
	uint64_t created, ended_at;
	enum end_reason ended; /* END_REASONS: not ended */
	char why[192];	       /* the same in words; of a running one: what is wrong, or "" */
	int exit;	       /* status of its last command; -1: none */
};

/* ---- reading ---- */

static void read_spec(struct row *row, const struct spec *spec)
{
	struct err ignored = ERR_INIT;

	row->created = spec->created;
	(void)snprintf(row->agent, sizeof(row->agent), "%s", spec->agent);
	(void)snprintf(row->image, sizeof(row->image), "%s", spec->image);
	(void)spec_owner(spec, row->owner, &ignored);
}

/* Returns the exit status of the last command, as `hutch wait` would. */
static int last_exit(const struct sandbox *b)
{
	_cleanup_close_ int fd = -EBADF;
	struct handle h = { .b = *b, .fd = -EBADF };
	struct session_result result = { .how = SESSION_LOST };
	struct err ignored = ERR_INIT;

	if (record_newest(b, &h, &ignored) < 0)
		return -1;
	fd = h.fd;
	if (!h.lost)
		session_result_of(&h.info, &result);
	return cli_exit_code(&result);
}

static void read_end(struct row *row, const struct sandbox *b, const struct spec *spec,
		     const struct end *end)
{
	row->ended = end->reason;
	row->ended_at = end->time;
	row->exit = last_exit(b);
	view_end(spec, end, row->why, sizeof(row->why));
}

static struct row row_of(const char *id)
{
	struct row row = { .state = "damaged", .ended = END_REASONS, .exit = -1 };

	(void)snprintf(row.id, sizeof(row.id), "%s", id);
	return row;
}

/* Says what is wrong with a running sandbox. */
static void read_trouble(struct row *row, int dir)
{
	struct err ignored = ERR_INIT;
	struct life life = { 0 };

	(void)life_read(dir, &life, &ignored);
	if (life.stopped != LIFE_RUNS || life.disk_lost)
		(void)snprintf(row->why, sizeof(row->why), "%s",
			       life.disk_lost ? LIFE_LOST_TEXT : life_stop_texts[life.stopped]);
}

/* Reads an entry of sandboxes/. False if it is not shown, or has gone since. */
static bool read_living(const struct state_root *root, const char *id, bool all, struct row *ret)
{
	_cleanup_spec_ struct spec spec = { 0 };
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	struct err ignored = ERR_INIT;
	enum state_phase phase;
	struct end end = { 0 };

	b.dir = openat(root->dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (b.dir < 0 || spec_read(b.dir, &spec, &ignored) < 0)
		return false;
	phase = state_phase(b.dir);
	*ret = row_of(id);
	ret->state = state_phase_names[phase];
	read_spec(ret, &spec);
	if (phase == STATE_ENDED && end_read(b.dir, &end, &ignored) == 0)
		read_end(ret, &b, &spec, &end);
	if (phase == STATE_RUNNING || phase == STATE_STOPPED || phase == STATE_PAUSED)
		read_trouble(ret, b.dir);
	return all || state_phase_lives(phase) || phase == STATE_STARTING;
}

/* Reads an entry of ended/. Unreadable ones are shown too, so that they can be removed. */
static bool read_kept(const struct state_root *root, const char *id, struct row *ret)
{
	_cleanup_spec_ struct spec spec = { 0 };
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	struct err ignored = ERR_INIT;
	struct end end = { 0 };

	b.dir = kept_open(root, id);
	if (b.dir == -ENOENT)
		return false;
	*ret = row_of(id);
	if (b.dir < 0 || spec_read(b.dir, &spec, &ignored) < 0 ||
	    end_read(b.dir, &end, &ignored) < 0)
		return true;
	ret->state = state_phase_names[STATE_ENDED];
	read_spec(ret, &spec);
	read_end(ret, &b, &spec, &end);
	return true;
}

static int newest_first(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	return x->created == y->created ? strcmp(x->id, y->id) : x->created < y->created ? 1 : -1;
}

static bool has_row(const struct row *rows, size_t n, const char *id)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(rows[i].id, id))
			return true;
	return false;
}

static int read_rows(const struct state_root *root, bool all, struct row **ret, size_t *ret_n,
		     struct err *e)
{
	_cleanup_free_ char(*ids)[SPEC_ID + 1] = NULL, (*ended)[SPEC_ID + 1] = NULL;
	size_t n = 0, n_ended = 0, living;
	struct row *rows;

	/* In this order, a sandbox that ends now is in both lists, never in neither. */
	if (state_list(root, &ids, &n, e) < 0 || (all && kept_list(root, &ended, &n_ended, e) < 0))
		return e->num;
	rows = calloc(n + n_ended + 1, sizeof(*rows));
	if (!rows)
		return err_oom(e);
	*ret_n = 0;
	for (size_t i = 0; i < n; i++)
		*ret_n += read_living(root, ids[i], all, &rows[*ret_n]) ||
			  /* It has moved since then. */
			  (all && read_kept(root, ids[i], &rows[*ret_n]));
	living = *ret_n;
	for (size_t i = 0; i < n_ended; i++)
		if (!has_row(rows, living, ended[i]))
			*ret_n += read_kept(root, ended[i], &rows[*ret_n]);
	qsort(rows, *ret_n, sizeof(*rows), newest_first);
	*ret = rows;
	return 0;
}

/* ---- showing ---- */

static json_t *time_json(uint64_t time)
{
	char text[CLOCK_RFC3339_MAX];

	return time > 0 ? json_string(clock_format(time, text)) : json_null();
}

static json_t *text_json(const char *text)
{
	return text[0] ? cli_json_text(text) : json_null();
}

static json_t *row_json(const struct row *row)
{
	const bool other = row->ended != END_REASONS && row->ended != END_CLIENT;

	return JSON_OBJECT(
		{ "id", json_string(row->id) }, { "agent", cli_json_text(row->agent) },
		{ "image", cli_json_text(row->image) }, { "state", json_string(row->state) },
		{ "created", time_json(row->created) },
		{ "ended", other ? json_string(end_reason_names[row->ended]) : json_null() },
		{ "ended_at", time_json(row->ended_at) }, { "reason", text_json(row->why) },
		{ "exit", row->exit >= 0 ? json_integer(row->exit) : json_null() },
		{ "key", text_json(row->owner) });
}

static void print_row(const struct row *row, int agent, int image, bool all)
{
	char exit[16] = "-", age[VALUE_HINT_MAX] = "-";

	if (row->exit >= 0)
		(void)snprintf(exit, sizeof(exit), "%d", row->exit);
	if (row->created > 0)
		(void)view_age(row->created, age);
	(void)printf("%s  %-*s  %-*s  %-9s  ", row->id, agent, row->agent, image, row->image,
		     row->state);
	if (all)
		(void)printf("%-4s  %-4s  ", exit, age);
	cli_puts(stdout, all ? row->why[0] ? row->why : "-" : age);
	(void)fputc('\n', stdout);
}

static void print_rows(const struct invocation *inv, const struct row *rows, size_t n, bool all)
{
	int agent = (int)STRLEN("AGENT"), image = (int)STRLEN("IMAGE");

	for (size_t i = 0; i < n; i++) {
		agent = MAX(agent, (int)strlen(rows[i].agent));
		image = MAX(image, (int)strlen(rows[i].image));
	}
	(void)printf("%s%-16s  %-*s  %-*s  %-9s  %s%s\n", cli_style(inv, "\033[1m"), "ID", agent,
		     "AGENT", image, "IMAGE", "STATE", all ? "EXIT  AGE   REASON" : "AGE",
		     cli_style(inv, "\033[0m"));
	for (size_t i = 0; i < n; i++)
		print_row(&rows[i], agent, image, all);
}

static int run_ps(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_json_ json_t *list = NULL;
	_cleanup_free_ struct row *rows = NULL;
	const bool all = cli_option(inv, "all");
	struct err e = ERR_INIT;
	size_t n = 0;

	if (cli_option(inv, "exec"))
		return cli_list_commands(inv);
	if (inv->n_args > 0)
		return cli_usage(inv, "'%s': an ID goes with --exec", inv->args[0]);
	if (cli_state_open(&root, &e) < 0)
		return cli_fail(inv, &e);
	if (sandbox_restore(&root, &e) < 0)
		(void)fprintf(stderr, "%s: warning: %s\n", inv->path, e.msg);
	if (read_rows(&root, all, &rows, &n, &e) < 0)
		return cli_fail(inv, &e);
	if (!cli_option(inv, "json")) {
		print_rows(inv, rows, n, all);
		return EXIT_OK;
	}
	list = json_array();
	for (size_t i = 0; i < n; i++)
		if (json_push(list, row_json(&rows[i])) < 0)
			return cli_fail(inv, (err_oom(&e), &e));
	return cli_print_json(TAKE_PTR(list), EXIT_OK);
}

/* clang-format off */
const struct command cmd_ps = {
	.name = "ps", .args = "[ID]", .max_args = 1,
	.summary = "list the sandboxes, or (-e) their commands",
	.options = OPTIONS(
		OPT_JSON,
		{ "all", 'a', NULL, "also show ended ones" },
		{ "exec", 'e', NULL, "list commands, of sandbox ID or of all sandboxes" }),
	.run = run_ps,
};
/* clang-format on */
