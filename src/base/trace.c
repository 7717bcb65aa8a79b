/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One state per process. A sink may itself cause trace lines (sending a line sends a frame); `busy`
 * stops that recursion.
 */
#include "base/trace.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/str.h"

enum {
	US = 1000,
	SECOND = 1000000,
	COLUMNS = 5, /* before the text */
};

const char *const trace_kind_names[TRACE_KINDS + 1] = {
	[TRACE_FRAME] = "frame",     [TRACE_NOTE] = "note",	  [TRACE_STATE] = "state",
	[TRACE_VERDICT] = "verdict", [TRACE_SYSCALL] = "syscall", [TRACE_TIME] = "time",
	[TRACE_LOG] = "log",	     [TRACE_LOST] = "lost",
};
static_assert(TRACE_TEXT_MAX + 2 * TRACE_ID_MAX + 48 <= TRACE_LINE_MAX, "a line is never cut");

#ifdef HUTCH_TRACE
bool trace_on;
#endif

static struct {
	char process[sizeof(((struct trace_line *)0)->process)];
	char sandbox[TRACE_ID_MAX + 1], request[TRACE_ID_MAX + 1];
	trace_printer *print;
	bool busy;
	trace_sink *sink;
	void *arg;
	uint64_t last; /* time of the last step, us */
} state = { .process = "hutch" };

/* ---- settings ---- */

static void decide(void)
{
#ifdef HUTCH_TRACE
	trace_on = state.print || state.sink;
#endif
	state.last = clock_mono() / US;
}

void trace_set_process(const char *name)
{
	(void)snprintf(state.process, sizeof(state.process), "%s", name);
}

void trace_set_sandbox(const char *id)
{
	(void)snprintf(state.sandbox, sizeof(state.sandbox), "%s", id);
}

void trace_set_request(const char *id)
{
	(void)snprintf(state.request, sizeof(state.request), "%s", id);
}

const char *trace_request(void)
{
	return state.request;
}

void trace_print_by(trace_printer *print)
{
	state.print = print;
	decide();
}

void trace_to(trace_sink *sink, void *arg)
{
	state.sink = sink;
	state.arg = arg;
	decide();
}

bool trace_has_sink(void)
{
	return state.sink;
}

/* ---- lines ---- */

/* Cuts between characters or escapes; each is at most 10 bytes long. */
void trace_fill(struct trace_line *line, enum trace_kind kind, const char *text, size_t n)
{
	size_t used = 0;

	line->kind = kind;
	for (size_t i = 0; i < n;) {
		_cleanup_buf_ struct buf one = BUF_INIT(16);
		uint32_t cp;
		size_t len;

		if (text[i] >= ' ' && text[i] <= '~' && text[i] != '\\') {
			if (used == TRACE_TEXT_MAX)
				break;
			line->text[used++] = text[i++];
			continue;
		}
		len = MAX(utf8_decode(text + i, n - i, &cp), (size_t)1);
		if (str_escape(&one, text + i, len) < 0 || used + one.len > TRACE_TEXT_MAX)
			break;
		memcpy(line->text + used, one.data, one.len);
		used += one.len;
		i += len;
	}
	line->text[used] = '\0';
}

static void put(const struct trace_line *line, bool printed)
{
	if (state.busy)
		return;
	state.busy = true;
	if (printed && state.print)
		state.print(line);
	if (state.sink)
		state.sink(state.arg, line);
	state.busy = false;
}

static void write_own(enum trace_kind kind, const char *request, const char *text, bool printed)
{
	struct trace_line line = { .us = clock_mono() / US };

	memcpy(line.process, state.process, sizeof(line.process));
	memcpy(line.sandbox, state.sandbox, sizeof(line.sandbox));
	(void)snprintf(line.request, sizeof(line.request), "%s", request ? request : state.request);
	trace_fill(&line, kind, text, strlen(text));
	put(&line, printed);
}

void trace_write(enum trace_kind kind, const char *request, const char *fmt, ...)
{
	char text[TRACE_TEXT_MAX + 1];
	int saved = errno;
	va_list ap;

	if (!trace_on || state.busy)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	write_own(kind, request, text, true);
	errno = saved;
}

void trace_log(const char *text)
{
	int saved = errno;

	if (trace_on && !state.busy)
		write_own(TRACE_LOG, NULL, text, false);
	errno = saved;
}

void trace_pass(const struct trace_line *line)
{
	if (trace_on)
		put(line, true);
}

int trace_step(const char *name)
{
	const uint64_t now = clock_mono() / US, took = now - state.last;

	state.last = now;
	trace_write(TRACE_TIME, NULL, "%s, %llu us", name, (unsigned long long)took);
	return 0;
}

static const char *column(const char *s)
{
	return s[0] ? s : "-";
}

size_t trace_format(const struct trace_line *line, char out[static TRACE_LINE_MAX])
{
	int n = snprintf(out, TRACE_LINE_MAX, "%llu.%06llu %-6s %s %s %-7s %s\n",
			 (unsigned long long)(line->us / SECOND),
			 (unsigned long long)(line->us % SECOND), line->process,
			 column(line->sandbox), column(line->request), trace_kind_names[line->kind],
			 line->text);

	return MIN((size_t)MAX(n, 0), (size_t)TRACE_LINE_MAX - 1);
}

static int parse_time(const char *s, size_t n, uint64_t *ret)
{
	const char *point = memchr(s, '.', n);
	uint64_t whole, rest;

	if (!point || n - (size_t)(point - s) != 7)
		return -EINVAL;
	for (size_t i = 1; i <= 6; i++)
		if (!ascii_is_digit(point[i]))
			return -EINVAL;
	if (str_to_u64(s, (size_t)(point - s), UINT64_MAX / SECOND / 2, &whole) < 0)
		return -EINVAL;
	rest = 0;
	for (size_t i = 1; i <= 6; i++)
		rest = rest * 10 + (uint64_t)(point[i] - '0');
	*ret = whole * SECOND + rest;
	return 0;
}

static int copy_column(const char *s, size_t n, char *out, size_t max)
{
	if (n >= max)
		return -EINVAL;
	for (size_t i = 0; i < n; i++)
		if (s[i] < '!' || s[i] > '~')
			return -EINVAL;
	memcpy(out, s, n);
	out[n] = '\0';
	if (str_eq(out, "-"))
		out[0] = '\0';
	return 0;
}

static int kind_of(const char *s, size_t n, enum trace_kind *ret)
{
	for (unsigned int i = 0; i < TRACE_KINDS; i++)
		if (strlen(trace_kind_names[i]) == n && memcmp(trace_kind_names[i], s, n) == 0) {
			*ret = (enum trace_kind)i;
			return 0;
		}
	return -EINVAL;
}

int trace_parse(const char *text, size_t n, struct trace_line *ret)
{
	struct trace_line l = { 0 };
	const char *words[COLUMNS];
	size_t lens[COLUMNS], at = 0;

	for (size_t i = 0; i < COLUMNS; i++) {
		size_t from = at;

		while (at < n && text[at] != ' ')
			at++;
		words[i] = text + from;
		lens[i] = at - from;
		if (lens[i] == 0)
			return -EINVAL;
		while (at < n && text[at] == ' ')
			at++;
	}
	/* A compromised keeper may send any bytes. */
	if (n - at > TRACE_TEXT_MAX || !str_is_visible(text + at, n - at) ||
	    parse_time(words[0], lens[0], &l.us) < 0 ||
	    copy_column(words[1], lens[1], l.process, sizeof(l.process)) < 0 ||
	    copy_column(words[2], lens[2], l.sandbox, sizeof(l.sandbox)) < 0 ||
	    copy_column(words[3], lens[3], l.request, sizeof(l.request)) < 0 ||
	    kind_of(words[4], lens[4], &l.kind) < 0)
		return -EINVAL;
	memcpy(l.text, text + at, n - at);
	*ret = l;
	return 0;
}

void trace_new_request(char out[static TRACE_REQUEST + 1])
{
	uint64_t number = 0;

	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		number = clock_wall() ^ (uint64_t)getpid() << 48; /* an id, not a secret */
	(void)snprintf(out, TRACE_REQUEST + 1, "%016llx", (unsigned long long)number);
}

void trace_feed(struct trace_lines *l, const char *data, size_t n,
		void (*each)(void *arg, const char *line, size_t n), void *arg)
{
	for (size_t i = 0; i < n; i++) {
		if (data[i] == '\n') {
			each(arg, l->text, l->n);
			l->n = 0;
		} else if (l->n < sizeof(l->text)) {
			l->text[l->n++] = data[i];
		}
	}
}
