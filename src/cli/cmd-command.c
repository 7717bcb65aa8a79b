/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch attach, logs, wait, signal, shell, and ps -e: commands that run without hutch. Output is
 * read from their records; only input, signals and the terminal size pass through the keeper.
 */
#include <signal.h>
#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "cli/cli-record.h"
#include "cli/view.h"
#include "state/kept.h"

enum {
	REPLAY = 2048, /* bytes of output shown when a terminal is re-entered */
};

static int open_handle(const struct invocation *inv, struct handle *h)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	struct err e = ERR_INIT;

	if (state_root_open(&root, &e) < 0 || handle_open(&root, inv->args[0], h, &e) < 0)
		return cli_fail(inv, &e);
	return EXIT_OK;
}

/* ---- output ---- */

struct printing {
	bool streams[3]; /* 0: report dropped output */
	bool json;
	uint64_t since;
};

static json_t *bytes_json(const struct record_piece *p, bool text)
{
	size_t n = sodium_base64_ENCODED_LEN(p->n_data, sodium_base64_VARIANT_ORIGINAL);
	_cleanup_free_ char *out = NULL;

	if (text)
		return json_stringn(p->data, p->n_data);
	out = malloc(n);
	if (!out)
		return NULL;
	return json_string(sodium_bin2base64(out, n, (const unsigned char *)p->data, p->n_data,
					     sodium_base64_VARIANT_ORIGINAL));
}

/* Prints one line per piece; bytes that are not text are in base64. */
static int print_json(const struct record_piece *p)
{
	char time[CLOCK_RFC3339_MAX];
	bool text = p->n_data > 0 && utf8_valid(p->data, p->n_data);
	_cleanup_json_ json_t *j =
		p->stream == 0 ? JSON_OBJECT({ "offset", json_number(p->offset) },
					     { "dropped", json_number(p->n) })
			       : JSON_OBJECT({ "offset", json_number(p->offset) },
					     { "stream",
					       json_string(p->stream == 1 ? "stdout" : "stderr") },
					     { "time", json_string(clock_format(p->time, time)) },
					     { text ? "text" : "base64", bytes_json(p, text) });
	_cleanup_free_ char *line = j ? json_write_line(j) : NULL;

	return line && puts(line) >= 0 ? 0 : -EIO;
}

static int print_piece(const struct printing *how, const struct record_piece *p)
{
	FILE *f = p->stream == 1 ? stdout : stderr;
	char text[64];

	if (!how->streams[p->stream] || (p->stream > 0 && p->time < how->since))
		return 0;
	if (how->json)
		return print_json(p);
	if (p->stream > 0)
		return fwrite(p->data, 1, p->n_data, f) == p->n_data ? 0 : -EIO;
	(void)fflush(stdout);
	(void)session_gap(text, sizeof(text), p);
	return fputs(text, stderr) >= 0 ? 0 : -EIO;
}

/* Prints the output from the cursor on, and flushes. 0 or -errno. */
static int print_all(const struct printing *how, struct record_cursor *c, struct handle *h,
		     struct err *e)
{
	struct record_piece p;
	int r;

	while ((r = record_next(c, &h->info, &p, e)) > 0)
		if (print_piece(how, &p) < 0)
			return err_set(e, -EIO, "cannot write the output: %s", strerror(errno));
	if (r == 0 && (fflush(stdout) != 0 || fflush(stderr) != 0))
		return err_errno(e, "cannot write the output");
	return r;
}

/* Prints until the command or its sandbox ends. If `how` is NULL, only waits. */
static int follow(const struct printing *how, uint64_t from, struct handle *h, struct err *e)
{
	_cleanup_follow_ struct follow f = FOLLOW_INIT;
	struct record_cursor c;
	int r = follow_open(h, &f, e);

	record_cursor_init(&c, h->fd, from);
	while (r == 0) {
		r = handle_refresh(h, e);
		if (r == 0 && how)
			r = print_all(how, &c, h, e);
		/* The state was read before printing, so print once more for output in between. */
		if (r == 0 && h->lost)
			return 0;
		if (r == 0 && h->info.slot.state == RECORD_ENDED)
			return how ? print_all(how, &c, h, e) : 0;
		if (r == 0)
			r = follow_wait(&f, e);
	}
	return r;
}

/* Returns hutch's exit status for a command that has ended or is lost. */
static int outcome(const struct invocation *inv, const struct handle *h)
{
	_cleanup_spec_ struct spec spec = { 0 };
	struct session_result result = { .how = SESSION_LOST };
	struct err e = ERR_INIT;

	if (spec_read(h->b.dir, &spec, &e) < 0)
		return cli_fail(inv, &e);
	if (!h->lost)
		session_result_of(&h->info, &result);
	return cli_report(inv, &spec, &h->b, &result, false);
}

/* ---- logs, wait ---- */

static int take_from(const struct invocation *inv, uint64_t *ret)
{
	const char *text = cli_option(inv, "from");

	if (text && str_to_u64(text, strlen(text), INT64_MAX, ret) < 0)
		return cli_usage(inv, "--from '%s': expected a number of bytes", text);
	return EXIT_OK;
}

static int run_logs(struct invocation *inv)
{
	_cleanup_handle_ struct handle h = HANDLE_INIT;
	bool out = cli_option(inv, "stdout"), err = cli_option(inv, "stderr");
	struct printing how = { .streams = { true, out || !err, err || !out },
				.json = cli_option(inv, "json") };
	struct record_cursor c;
	struct err e = ERR_INIT;
	uint64_t from = 0;
	int code = take_from(inv, &from), r;

	if (code == EXIT_OK)
		code = cli_since(inv, &how.since);
	if (code == EXIT_OK)
		code = open_handle(inv, &h);
	if (code != EXIT_OK)
		return code;
	record_cursor_init(&c, h.fd, from);
	r = cli_option(inv, "follow") ? follow(&how, from, &h, &e) : print_all(&how, &c, &h, &e);
	return r < 0 ? cli_fail(inv, &e) : EXIT_OK;
}

static int run_wait(struct invocation *inv)
{
	_cleanup_handle_ struct handle h = HANDLE_INIT;
	struct err e = ERR_INIT;
	int code = open_handle(inv, &h);

	if (code != EXIT_OK)
		return code;
	if (follow(NULL, 0, &h, &e) < 0)
		return cli_fail(inv, &e);
	return cli_option(inv, "json") ? cli_print_json(record_json(&h), EXIT_OK)
				       : outcome(inv, &h);
}

/* ---- attach ---- */

/* Attaches through the keeper: input, signals, a terminal. */
static int attach_live(const struct invocation *inv, struct handle *h, uint64_t from, bool input)
{
	_cleanup_spec_ struct spec spec = { 0 };
	_cleanup_close_ int fd = -EBADF;
	bool terminal = (h->info.head.flags & RECORD_TERMINAL) && isatty(STDIN_FILENO);
	const struct session_spec s = {
		.attach = h->info.head.number,
		.record = h->fd,
		.from = from,
		.input = input || terminal,
		.terminal = terminal,
		.in = STDIN_FILENO,
		.out = STDOUT_FILENO,
		.err = STDERR_FILENO,
	};
	struct session_result result = { 0 };
	struct err e = ERR_INIT;

	if (spec_read(h->b.dir, &spec, &e) < 0 || sandbox_connect(&h->b, &fd, &e) < 0 ||
	    session_run(fd, &s, &result, &e) < 0)
		return cli_fail(inv, &e);
	if (result.how == SESSION_DETACHED) {
		(void)fprintf(stderr, "\r\nhutch: left %s/%llu, which keeps running\r\n", h->b.id,
			      (unsigned long long)h->info.head.number);
		return EXIT_OK;
	}
	if (result.how == SESSION_REFUSED && result.number == WIRE_NOT_FOUND &&
	    handle_refresh(h, &e) == 0 && !handle_lives(h))
		return -EAGAIN; /* it has ended since */
	return cli_report(inv, &spec, &h->b, &result, false);
}

static int attach(const struct invocation *inv, struct handle *h, uint64_t from, bool input)
{
	const struct printing how = { .streams = { true, true, true } };
	bool terminal = (h->info.head.flags & RECORD_TERMINAL) && isatty(STDIN_FILENO);
	struct err e = ERR_INIT;
	int code =
		handle_lives(h) && (input || terminal) ? attach_live(inv, h, from, input) : -EAGAIN;

	if (code != -EAGAIN)
		return code;
	if (follow(&how, from, h, &e) < 0)
		return cli_fail(inv, &e);
	return outcome(inv, h);
}

static int run_attach(struct invocation *inv)
{
	_cleanup_handle_ struct handle h = HANDLE_INIT;
	uint64_t from = 0;
	int code = take_from(inv, &from);

	if (code == EXIT_OK)
		code = open_handle(inv, &h);
	return code != EXIT_OK ? code : attach(inv, &h, from, cli_option(inv, "interactive"));
}

/* ---- signal ---- */

static int signal_number(const char *text)
{
	uint64_t n;

	if (str_to_u64(text, strlen(text), 64, &n) == 0)
		return n > 0 ? (int)n : -EINVAL;
	if (str_has_prefix(text, "SIG"))
		text += 3;
	for (int i = 1; i < 32; i++)
		if (sigabbrev_np(i) && str_eq(sigabbrev_np(i), text))
			return i;
	return -EINVAL;
}

static int run_signal(struct invocation *inv)
{
	_cleanup_handle_ struct handle h = HANDLE_INIT;
	_cleanup_close_ int fd = -EBADF;
	struct session_spec s = { .record = -EBADF, .out = STDOUT_FILENO, .err = STDERR_FILENO };
	struct session_result result = { 0 };
	struct err e = ERR_INIT;
	int number = signal_number(inv->args[1]), code;

	if (number < 0)
		return cli_usage(inv,
				 "'%s' is not a signal: expected a number, or a name such as TERM",
				 inv->args[1]);
	code = open_handle(inv, &h);
	if (code != EXIT_OK)
		return code;
	s.attach = h.info.head.number;
	s.signal = (unsigned int)number;
	if (!handle_lives(&h)) {
		(void)err_set(&e, -ESRCH, "command %s is not running", inv->args[0]);
		return cli_fail(inv, &e);
	}
	if (sandbox_connect(&h.b, &fd, &e) < 0 || session_run(fd, &s, &result, &e) < 0)
		return cli_fail(inv, &e);
	if (result.how == SESSION_DETACHED)
		return EXIT_OK;
	(void)err_set(&e, -ESRCH, "command %s: %s", inv->args[0],
		      result.text[0] ? result.text : "its sandbox has ended");
	return cli_fail(inv, &e);
}

/* ---- shell ---- */

static int start_shell(struct invocation *inv, const char *name, struct handle *h)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	static const char *const argv[] = {
		"/bin/sh", "-c",
		"if command -v bash >/dev/null; then exec bash -l; else exec sh -l; fi", NULL
	};
	_cleanup_spec_ struct spec spec = { 0 };
	struct session_spec s = { .argv = argv,
				  .user = cli_option(inv, "user"),
				  .cwd = cli_option(inv, "workdir"),
				  .name = name,
				  .detach = true,
				  .terminal = true };
	struct session_result result = { 0 };
	struct err e = ERR_INIT;
	int code;

	if (state_root_open(&root, &e) < 0 || spec_read(h->b.dir, &spec, &e) < 0)
		return cli_fail(inv, &e);
	code = cli_exec(inv, &root, &spec, &h->b, &s, &result);
	return result.how == SESSION_DETACHED || code != EXIT_OK ? code : EXIT_HUTCH;
}

static int find_shell(struct invocation *inv, const char *name, struct handle *h)
{
	char text[SPEC_ID + RECORD_NAME_MAX + 2];

	(void)snprintf(text, sizeof(text), "%.16s/%.63s", inv->args[0], name);
	{
		_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
		struct err e = ERR_INIT;
		int r = state_root_open(&root, &e);

		if (r == 0)
			r = handle_open(&root, text, h, &e);
		if (r == -ENOENT && h->b.dir >= 0)
			return EXIT_OK; /* the sandbox exists, the command does not */
		return r < 0 ? cli_fail(inv, &e) : EXIT_OK;
	}
}

static int run_shell(struct invocation *inv)
{
	_cleanup_handle_ struct handle h = HANDLE_INIT;
	const char *name = cli_option(inv, "name") ? cli_option(inv, "name") : "shell";
	uint64_t from = 0, total;
	int code;

	if (!isatty(STDIN_FILENO))
		return cli_usage(inv, "standard input is not a terminal");
	code = find_shell(inv, name, &h);
	if (code == EXIT_OK && (h.fd < 0 || !handle_lives(&h))) {
		h.fd = fd_close(h.fd);
		code = start_shell(inv, name, &h);
		sandbox_close(&h.b);
		if (code == EXIT_OK)
			code = find_shell(inv, name, &h);
	}
	if (code != EXIT_OK)
		return code;
	if (h.fd < 0) /* it ended at once, and its record was dropped */
		return EXIT_HUTCH;
	total = record_bytes(&h.info);
	from = total > REPLAY ? total - REPLAY : 0;
	return attach(inv, &h, from, true);
}

/* ---- ps -e ---- */

static void print_argv(const struct record_head *h)
{
	for (uint64_t at = 0; at < h->shown; at += strlen(h->argv + at) + 1) {
		(void)fputs(at > 0 ? " " : "", stdout);
		cli_puts(stdout, h->argv + at);
	}
	(void)fputs(h->flags & RECORD_CUT ? " ...\n" : "\n", stdout);
}

static void print_command(const struct handle *h)
{
	char handle[64], state[32], age[VALUE_HINT_MAX];
	struct err ignored = ERR_INIT;
	uint64_t dropped = 0;

	(void)record_dropped(h->fd, &h->info, &dropped, &ignored);
	(void)snprintf(handle, sizeof(handle), "%s/%llu", h->b.id,
		       (unsigned long long)h->info.head.number);
	(void)printf("%-20s  %-12s  %-12s  %10llu  %10llu  %-8s  ", handle,
		     h->info.head.name[0] ? h->info.head.name : "-", record_outcome(h, state),
		     (unsigned long long)record_bytes(&h->info), (unsigned long long)dropped,
		     view_age(h->info.head.start, age));
	print_argv(&h->info.head);
}

/* Lists the commands of one sandbox. */
static int list_one(const struct sandbox *b, json_t *list, struct err *e)
{
	struct handle *records = NULL;
	uint64_t dropped = 0;
	size_t n = 0;
	int r = record_list(b, &records, &n, &dropped, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		if (!list)
			print_command(&records[i]);
		else if (json_push(list, record_json(&records[i])) < 0)
			r = err_oom(e);
	}
	if (r == 0 && !list && dropped > 0)
		(void)fprintf(stderr, "hutch: %llu older commands of %s are no longer kept\n",
			      (unsigned long long)dropped, b->id);
	record_list_free(records, n);
	return r;
}

typedef char sandbox_id[SPEC_ID + 1];

static bool has_id(const sandbox_id *ids, size_t n, const char *id)
{
	for (size_t i = 0; i < n; i++)
		if (str_eq(ids[i], id))
			return true;
	return false;
}

static int list_kept(const struct state_root *root, const char *id, json_t *list, struct err *e)
{
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;

	b.dir = kept_open(root, id);
	(void)snprintf(b.id, sizeof(b.id), "%s", id);
	b.ended = true;
	return b.dir >= 0 ? list_one(&b, list, e) : 0;
}

/* With `all`, also one that has ended since its id was read. */
static int list_living(const struct state_root *root, const char *id, bool all, json_t *list,
		       struct err *e)
{
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	struct err ignored = ERR_INIT;

	if (sandbox_find(root, id, &b, &ignored) < 0 ||
	    (!all && (b.ended || !state_phase_lives(state_phase(b.dir)))))
		return 0;
	return list_one(&b, list, e);
}

static int list_all(const struct invocation *inv, const struct state_root *root, json_t *list,
		    struct err *e)
{
	_cleanup_free_ sandbox_id *ids = NULL, *ended = NULL;
	const bool all = cli_option(inv, "all");
	size_t n = 0, n_ended = 0;
	/* In this order, a sandbox that ends now is in both lists, never in neither. */
	int r = state_list(root, &ids, &n, e);

	if (r == 0 && all)
		r = kept_list(root, &ended, &n_ended, e);
	for (size_t i = 0; r == 0 && i < n_ended; i++)
		if (!has_id(ids, n, ended[i]))
			r = list_kept(root, ended[i], list, e);
	for (size_t i = 0; r == 0 && i < n; i++)
		r = list_living(root, ids[i], all, list, e);
	return r;
}

int cli_list_commands(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_json_ json_t *list = cli_option(inv, "json") ? json_array() : NULL;
	struct err e = ERR_INIT;
	int r = cli_state_open(&root, &e);

	if (r == 0 && inv->n_args > 0)
		r = sandbox_find(&root, inv->args[0], &b, &e);
	if (r == 0 && !list)
		(void)printf("%s%-20s  %-12s  %-12s  %10s  %10s  %-8s  COMMAND%s\n",
			     cli_style(inv, "\033[1m"), "HANDLE", "NAME", "STATE", "BYTES",
			     "DROPPED", "AGE", cli_style(inv, "\033[0m"));
	if (r == 0)
		r = inv->n_args > 0 ? list_one(&b, list, &e) : list_all(inv, &root, list, &e);
	if (r < 0)
		return cli_fail(inv, &e);
	return list ? cli_print_json(TAKE_PTR(list), EXIT_OK) : EXIT_OK;
}

/* clang-format off */
#define OPT_FROM                                                                        \
	{ "from", 0, "OFFSET", "begin at this byte of the output" }

const struct command cmd_shell = {
	.name = "shell", .args = "ID", .min_args = 1, .max_args = 1,
	.summary = "open a shell in a sandbox, or return to an open one",
	.help = "Ctrl-P Ctrl-Q or closing the terminal leaves the shell, which keeps running until it exits.",
	.options = OPTIONS(
		{ "name", 'n', "NAME", "name of the shell, default 'shell'" },
		{ "env", 'e', "NAME=VALUE", "set a variable (can be repeated)" },
		{ "user", 'u', "USER", "run as this user: a name, UID or UID:GID" },
		{ "workdir", 'w', "DIR", "start in this directory" }),
	.run = run_shell,
};

const struct command cmd_attach = {
	.name = "attach", .args = "HANDLE", .min_args = 1, .max_args = 1,
	.summary = "follow the output of a command, and exit with its status",
	.help = "HANDLE is ID/NUMBER or ID/NAME. A command with a terminal gets this one; Ctrl-P Ctrl-Q leaves it. A slow\n"
		"reader never blocks the command.",
	.options = OPTIONS(
		{ "interactive", 'i', NULL, "pass standard input on" },
		OPT_FROM),
	.run = run_attach,
};

const struct command cmd_logs = {
	.name = "logs", .args = "HANDLE", .min_args = 1, .max_args = 1,
	.summary = "print the recorded output of a command",
	.help = "Also works for an ended sandbox, until 'hutch rm'. Where output was dropped, a line on standard error says\n"
		"how much.",
	.options = OPTIONS(
		OPT_JSON,
		{ "follow", 'f', NULL, "continue until the command ends" },
		OPT_FROM,
		{ "since", 0, "TIME", "only later output; an RFC 3339 time, or a time ago such as 5m" },
		{ "stdout", 0, NULL, "only standard output" },
		{ "stderr", 0, NULL, "only standard error" }),
	.run = run_logs,
};

const struct command cmd_wait = {
	.name = "wait", .args = "HANDLE", .min_args = 1, .max_args = 1,
	.summary = "wait for a command to end, and exit with its status",
	.options = OPTIONS(OPT_JSON), .run = run_wait,
};

const struct command cmd_signal = {
	.name = "signal", .args = "HANDLE SIGNAL", .min_args = 2, .max_args = 2,
	.summary = "send a signal to a command", .run = run_signal,
};
/* clang-format on */
