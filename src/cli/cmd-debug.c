/* SPDX-License-Identifier: Apache-2.0 */
/* hutch debug: trace lines of a running sandbox, from its keeper. */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "base/trace.h"
#include "cli/cli-sandbox.h"
#include "client/peer.h"

enum {
	NOW_MS = 2000, /* --now: limit for a guest that does not answer (paused, broken) */
};

struct debug {
	const struct invocation *inv;
	struct loop *loop;
	struct trace_lines lines;
	const char *request, *kind; /* only these; NULL: all */
	bool json, now;
	int code;
	char why[WIRE_TEXT_MAX + 1];
};

static void print_json(const struct trace_line *l)
{
	_cleanup_json_ json_t *j =
		JSON_OBJECT({ "time_us", json_integer((json_int_t)l->us) },
			    { "process", json_string(l->process) },
			    { "sandbox", l->sandbox[0] ? json_string(l->sandbox) : json_null() },
			    { "request", l->request[0] ? json_string(l->request) : json_null() },
			    { "kind", json_string(trace_kind_names[l->kind]) },
			    { "text", cli_json_text(l->text) });
	_cleanup_free_ char *text = j ? json_write_line(j) : NULL;

	(void)puts(text ? text : "{}");
}

static bool wanted(const struct debug *d, const struct trace_line *l)
{
	if (d->request && !str_eq(d->request, l->request))
		return false;
	return !d->kind || str_eq(d->kind, trace_kind_names[l->kind]);
}

static void on_line(void *arg, const char *text, size_t n)
{
	char out[TRACE_LINE_MAX] = "";
	struct debug *d = arg;
	struct trace_line l;

	if (trace_parse(text, n, &l) < 0)
		return;
	if (wanted(d, &l) && d->json)
		print_json(&l);
	else if (wanted(d, &l))
		(void)fwrite(out, 1, trace_format(&l, out), stdout);
	/* The guest's list is the last line about the current state. */
	if (d->now && str_eq(l.process, "guest") && str_has_prefix(l.text, "jobs: "))
		loop_stop(d->loop, 0);
}

static void on_data(struct call *c, unsigned int stream, const char *data, size_t n, void *arg)
{
	struct debug *d = arg;

	trace_feed(&d->lines, data, n, on_line, d);
	(void)fflush(stdout);
	peer_consumed(c, stream, n);
}

/* The end of the sandbox is not an error. */
static void on_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct debug *d = arg;

	(void)c;
	(void)snprintf(d->why, sizeof(d->why), "%s", text[0] ? text : wire_code_name(code));
	d->code = code == WIRE_GONE || code == WIRE_DONE ? EXIT_OK : EXIT_HUTCH;
	loop_stop(d->loop, 0);
}

static void on_time(struct loop_timer *t)
{
	loop_stop(((struct debug *)t->arg)->loop, 0);
}

static int follow(struct debug *d, int fd, struct err *e)
{
	static const struct call_ops ops = { .data = on_data, .closed = on_closed };
	_cleanup_buf_ struct buf none = BUF_INIT(16);
	struct loop_timer timer = { .cb = on_time, .arg = d };
	struct peer *p = NULL;
	struct call *call;
	int r = peer_new(d->loop, fd, NULL, NULL, &p, e);

	if (r == 0)
		r = peer_call(p, WIRE_OP_TRACE, &none, &ops, d, &call, e);
	if (r == 0 && d->now)
		(void)loop_set_timer(d->loop, &timer, clock_mono() + NOW_MS * NSEC_PER_MSEC);
	if (r == 0)
		r = loop_run(d->loop);
	if (r < 0 && e->num == 0)
		(void)err_set(e, r, "cannot wait: %s", strerror(-r));
	loop_del_timer(&timer);
	(void)peer_free(p);
	return r;
}

static int check_kind(const struct invocation *inv, const char *kind)
{
	const char *close;

	for (unsigned int i = 0; kind && i < TRACE_KINDS; i++)
		if (str_eq(kind, trace_kind_names[i]))
			return EXIT_OK;
	if (!kind)
		return EXIT_OK;
	close = str_closest(kind, trace_kind_names);
	if (close)
		return cli_usage(inv, "--kind '%s' is not known; did you mean '%s'?", kind, close);
	return cli_usage(inv, "--kind '%s' is not known", kind);
}

static int run_debug(struct invocation *inv)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_loop_ struct loop *loop = NULL;
	struct debug d = { .inv = inv,
			   .request = cli_option(inv, "request"),
			   .kind = cli_option(inv, "kind"),
			   .json = cli_option(inv, "json"),
			   .now = cli_option(inv, "now") };
	struct err e = ERR_INIT;
	int fd = -EBADF;

	if (check_kind(inv, d.kind) != EXIT_OK)
		return EXIT_USAGE;
	if (cli_state_open(&root, &e) < 0 || sandbox_find(&root, inv->args[0], &b, &e) < 0 ||
	    sandbox_connect(&b, &fd, &e) < 0)
		return cli_fail(inv, &e);
	if (loop_new(&loop) < 0) {
		(void)fd_close(fd);
		(void)err_oom(&e);
		return cli_fail(inv, &e);
	}
	d.loop = loop;
	if (follow(&d, fd, &e) < 0)
		return cli_fail(inv, &e);
	if (d.why[0]) {
		(void)fprintf(stderr, "%s: ", inv->path);
		cli_puts(stderr, d.why);
		(void)fputc('\n', stderr);
	}
	return d.code;
}

/* clang-format off */
const struct command cmd_debug = {
	.name = "debug", .args = "ID", .min_args = 1, .max_args = 1,
	.summary = "print the trace lines of a sandbox as they are written",
	.help = "Prints a line for each frame, note, state change, verdict and timing of the keeper, the warden and the\n"
		"guest, until it is interrupted or the sandbox ends. A line has time, process, sandbox, request, kind and\n"
		"text. See docs/DEBUGGING.md.",
	.options = OPTIONS(
		OPT_JSON,
		{ "now", 0, NULL, "print what runs now and exit" },
		{ "kind", 'k', "KIND", "only frame, note, state, verdict, syscall, time, log or lost" },
		{ "request", 'r', "REQUEST", "only of this request" }),
	.run = run_debug,
};
/* clang-format on */
