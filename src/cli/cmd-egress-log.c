/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch egress log: one line per stream, and one for each request that hutch-tap carried. The
 * records of a stream's beginning and end are merged into one line; with -f each is printed as it
 * comes.
 */
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/cli.h"
#include "cli/egress-log.h"
#include "cli/view.h"
#include "names/why.h"

enum {
	LOOK_AGAIN = 1000, /* ms: a new file is found within this time */
};

struct line {
	char id[AUDIT_ID_MAX + 1];
	uint64_t time, order;
	json_t *o;
};

struct lines {
	struct line *v;
	size_t n, cap;
	uint64_t since;
	bool json, follow, any;
};

/* ---- one line ---- */

static const char *verdict_of(const json_t *o)
{
	if (str_eq(egress_text(o, "verdict"), "deny"))
		return "denied";
	/* Allowed, but the connection failed: no address, or no server there. */
	if (str_eq(egress_text(o, "verdict"), "end") && !egress_text(o, "address")[0])
		return "failed";
	return "allowed";
}

static const char *bytes_of(const json_t *o, const char *key, char out[static 32])
{
	if (!json_is_integer(json_object_get(o, key)))
		return "-";
	view_size(egress_number(o, key), out, 32);
	return out;
}

static void print_padded(const char *s, int width)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64 * 1024);

	(void)str_escape(&b, s, strlen(s));
	(void)printf("%-*s  ", width, b.len > 0 ? buf_text(&b) : "-");
}

static bool is_request(const json_t *o)
{
	return json_object_get(o, "method") != NULL;
}

static void print_request(const json_t *o)
{
	cli_puts(stdout, egress_text(o, "method"));
	(void)putchar(' ');
	cli_puts(stdout, egress_text(o, "path"));
	if (egress_number(o, "status") > 0)
		(void)printf(" %llu", (unsigned long long)egress_number(o, "status"));
	if (egress_text(o, "secret")[0])
		(void)printf("; secret %s", egress_text(o, "secret"));
	if (egress_text(o, "masked")[0])
		(void)printf("; masked: %s", egress_text(o, "masked"));
	if (egress_text(o, "reason")[0])
		(void)fputs("; ", stdout);
}

static void print_why(const json_t *o)
{
	const char *parts[] = { egress_text(o, "rule"), egress_text(o, "reason"),
				egress_text(o, "detail") };
	const char *between = "";

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (parts[i][0]) {
			(void)fputs(between, stdout);
			cli_puts(stdout, parts[i]);
			between = i == 0 ? "; " : ": ";
		}
	if (egress_number(o, "count") > 0)
		(void)printf("%s%llu times", between,
			     (unsigned long long)egress_number(o, "count"));
}

static void print_text(const struct line *l)
{
	char time[CLOCK_RFC3339_MAX], out[32], in[32], port[16] = "-";

	(void)clock_format(l->time, time);
	time[STRLEN("2026-11-15T08:00:00")] = '\0';
	if (egress_number(l->o, "port") > 0)
		(void)snprintf(port, sizeof(port), "%llu",
			       (unsigned long long)egress_number(l->o, "port"));
	(void)printf("%sZ  %-16s  ", time, l->id);
	print_padded(egress_text(l->o, "name"), 28);
	print_padded(egress_text(l->o, "address"), 15);
	(void)printf("%5s  %9s  %9s  %-7s  ", port, bytes_of(l->o, "bytes_out", out),
		     bytes_of(l->o, "bytes_in", in), verdict_of(l->o));
	if (is_request(l->o))
		print_request(l->o);
	print_why(l->o);
	(void)putchar('\n');
}

static int print_json(const struct line *l)
{
	char time[CLOCK_RFC3339_MAX];
	_cleanup_json_ json_t *o = json_copy(l->o);
	_cleanup_free_ char *text = NULL;

	if (!o || json_put(o, "time", json_string(clock_format(l->time, time))) < 0 ||
	    json_put(o, "sandbox", json_string(l->id)) < 0)
		return -ENOMEM;
	text = json_write_line(o);
	return text && puts(text) >= 0 ? 0 : -ENOMEM;
}

static int print_line(const struct lines *w, const struct line *l)
{
	if (l->time < w->since)
		return 0;
	if (w->json)
		return print_json(l);
	print_text(l);
	return 0;
}

/* ---- turning records into lines ---- */

/* Consumes `o`. */
static int add(struct lines *w, const struct egress_event *ev, json_t *o)
{
	struct line *v, l = { .time = ev->time, .order = w->n, .o = o };

	if (!o)
		return -ENOMEM;
	(void)snprintf(l.id, sizeof(l.id), "%s", ev->id);
	if (w->follow) {
		int r = print_line(w, &l);

		json_decref(o);
		return r;
	}
	if (w->n == w->cap) {
		v = reallocarray(w->v, w->cap ? 2 * w->cap : 256, sizeof(*v));
		if (!v) {
			json_decref(o);
			return -ENOMEM;
		}
		w->v = v;
		w->cap = w->cap ? 2 * w->cap : 256;
	}
	w->v[w->n++] = l;
	return 0;
}

/* Finds the line of a stream that has not ended; short streams are near the end. */
static struct line *open_line(struct lines *w, const struct egress_event *ev)
{
	for (size_t i = w->n; i-- > 0;)
		if (str_eq(w->v[i].id, ev->id) &&
		    str_eq(egress_text(w->v[i].o, "verdict"), "allow") && !is_request(w->v[i].o) &&
		    egress_number(w->v[i].o, "stream") == egress_number(ev->o, "stream"))
			return &w->v[i];
	return NULL;
}

/* The "host" of a record is the "name" of a line. */
static json_t *members_of(const json_t *o)
{
	json_t *copy = json_copy((json_t *)o), *host = json_object_get(o, "host");

	if (copy && host &&
	    (json_object_del(copy, "host") < 0 || json_object_set(copy, "name", host) < 0)) {
		json_decref(copy);
		return NULL;
	}
	return copy;
}

static int add_event(struct lines *w, const struct egress_event *ev)
{
	bool begins = str_eq(egress_text(ev->o, "verdict"), "allow");
	struct line *before =
		begins || w->follow || !json_is_integer(json_object_get(ev->o, "stream"))
			? NULL
			: open_line(w, ev);
	json_t *o = members_of(ev->o);
	int r;

	if (!before)
		return add(w, ev, o);
	r = o ? json_object_update(before->o, o) : -1;
	json_decref(o);
	return r < 0 ? -ENOMEM : 0;
}

/* "name:port" of a sum; port 0 is a DNS query. Requests have their verdict in front. */
static json_t *summed(const char *text, uint64_t count)
{
	const bool allowed = str_has_prefix(text, "allow ");
	const char *colon = strrchr(text, ':');
	size_t n = colon ? (size_t)(colon - text) : strlen(text);
	uint64_t port = 0, events = MIN(count, (uint64_t)INT64_MAX);

	if (strchr(text, ' ')) {
		const char *name = strchr(text, ' ') + 1;

		n -= MIN(n, (size_t)(name - text));
		text = name;
	}
	if (colon)
		(void)str_to_u64(colon + 1, strlen(colon + 1), UINT16_MAX, &port);
	return JSON_OBJECT({ "verdict", json_string(allowed ? "allow" : "deny") },
			   { "name", json_stringn(text, n) }, { "port", json_number(port) },
			   { "count", json_number(events) },
			   { "reason", json_string("too many to be recorded one by one") });
}

static int add_sum(struct lines *w, const struct egress_event *ev)
{
	uint64_t others = egress_number(ev->o, "others");
	json_t *key;
	size_t i;
	int r = 0;

	json_array_foreach(json_object_get(ev->o, "keys"), i, key)
	{
		if (r == 0 && egress_text(key, "text")[0])
			r = add(w, ev,
				summed(egress_text(key, "text"), egress_number(key, "count")));
	}
	return r == 0 && others > 0 ? add(w, ev, summed("(others)", others)) : r;
}

static int on_event(const struct egress_event *ev, void *arg)
{
	if (ev->kind == AUDIT_EGRESS)
		return add_event(arg, ev);
	if (ev->kind == AUDIT_HTTP || ev->kind == AUDIT_LLM)
		return add(arg, ev, members_of(ev->o));
	return ev->kind == AUDIT_EGRESS_SUM ? add_sum(arg, ev) : 0;
}

/* ---- all lines ---- */

static int by_time(const void *a, const void *b)
{
	const struct line *x = a, *y = b;

	if (x->time != y->time)
		return x->time < y->time ? -1 : 1;
	return x->order == y->order ? 0 : x->order < y->order ? -1 : 1;
}

static int print_all(struct lines *w, struct err *e)
{
	int r = 0;

	w->any |= w->n > 0;
	if (w->n > 0)
		qsort(w->v, w->n, sizeof(*w->v), by_time);
	for (size_t i = 0; i < w->n; i++) {
		r = r == 0 ? print_line(w, &w->v[i]) : r;
		json_decref(w->v[i].o);
	}
	free(w->v);
	w->v = NULL;
	w->n = w->cap = 0;
	return r < 0 ? err_oom(e) : 0;
}

/* Runs until hutch is interrupted. */
static int follow(struct egress_reader *reader, struct audit_log *l, struct err *e)
{
	_cleanup_close_ int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	struct pollfd p = { .fd = watch, .events = POLLIN };
	char path[64], events[4096];
	int r = 0;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", l->sandboxes);
	if (watch < 0 || inotify_add_watch(watch, path, IN_MODIFY | IN_CREATE) < 0)
		return err_errno(e, "cannot watch the log");
	while (r == 0) {
		if (fflush(stdout) != 0 || ferror(stdout))
			return err_errno(e, "cannot write the output");
		if (poll(&p, 1, LOOK_AGAIN) < 0 && errno != EINTR)
			return err_errno(e, "cannot wait for the log");
		(void)!read(watch, events, sizeof(events));
		r = egress_read(reader, l, e);
	}
	return r;
}

/* An empty log has two meanings: no connection was tried, or the sandbox has no network. */
static int say_no_network(const struct invocation *inv, struct audit_log *l, struct err *e)
{
	char id[AUDIT_ID_MAX + 1];
	int r = inv->n_args > 0 ? egress_no_network(l, inv->args[0], id, e) : 0;

	if (r > 0)
		(void)fprintf(stderr, "%s: %s: %s\n", inv->path, id, why_text(WHY_NO_NETWORK));
	return r < 0 ? r : 0;
}

static int run_egress_log(struct invocation *inv)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	struct lines w = { .json = cli_option(inv, "json") };
	_cleanup_egress_reader_ struct egress_reader reader = {
		.sandbox = inv->n_args > 0 ? inv->args[0] : "", .event = on_event, .arg = &w
	};
	struct err e = ERR_INIT, print = ERR_INIT;
	int r;

	if (cli_since(inv, &w.since) != EXIT_OK)
		return EXIT_USAGE;
	r = audit_open(&l, &e);
	if (r == 0)
		r = egress_read(&reader, &l, &e);
	/* Records before the damage are still shown. */
	if (print_all(&w, &print) < 0 && r == 0) {
		e = print;
		r = e.num;
	}
	if (r == 0 && !w.any)
		r = say_no_network(inv, &l, &e);
	w.follow = true;
	if (r == 0 && cli_option(inv, "follow"))
		r = follow(&reader, &l, &e);
	return r < 0 ? cli_fail(inv, &e) : EXIT_OK;
}

/* clang-format off */
const struct command cmd_egress_log = {
	.name = "log", .args = "[ID]", .max_args = 1,
	.summary = "print allowed and denied connections of sandboxes",
	.help = "Prints a line for each connection, also of ended sandboxes: time, sandbox, name, address, port, bytes out and\n"
		"in, verdict, and the rule or the reason. With -f, a connection has a line when it begins and one when it\n"
		"ends. Where the policy binds a secret or has rules on HTTP requests, each request has a line, too: method,\n"
		"path, status, the secret that was sent, and why a request was denied.",
	.options = OPTIONS(
		OPT_JSON,
		{ "follow", 'f', NULL, "continue with new connections" },
		{ "since", 0, "TIME", "only later connections; an RFC 3339 time, or a time ago such as 5m" }),
	.run = run_egress_log,
};
/* clang-format on */
