/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace lines for clients: `hutch debug`. A client that opens the operation trace reads lines as
 * DATA until its channel closes. With the first reader the keeper turns on its own lines, asks the
 * guest for lines on a channel of the same operation, and asks the warden by a note; the warden
 * answers with the read end of a pipe. After the last reader all three stop.
 *
 * Nothing waits for a reader. A line without credit, or without room in the client's link, is
 * dropped and counted, and the next line sent says how many were dropped. The guest's lines are
 * untrusted: the keeper stamps, escapes and cuts them, and drops those that come too fast.
 *
 * During a start with HUTCH_LOG=debug, lines go to stderr, the sandbox's log, without a reader. The
 * keeper then asks the guest too, right after HELLO, until the sandbox serves.
 */
#include <stdarg.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/trace.h"
#include "keeper/command.h"
#include "keeper/serve.h"

enum {
	GUEST_LINES = 2000, /* per second */
	LAST_READS = 32,    /* more than a pipe holds */
};

/* ---- to the readers ---- */

/* False: no credit or no room now. */
static bool send_text(struct trace_reader *r, const char *text, size_t n)
{
	struct link *l = r->client->port.link;
	ssize_t sent;

	if (r->client->gone || !link_ready(l) || link_credit(l, r->ch, 0) < n)
		return false;
	sent = link_data(l, r->ch, 0, text, n);
	client_check(r->client, sent < 0 ? (int)sent : 0);
	return sent == (ssize_t)n;
}

static void send_line(struct trace_reader *r, const struct trace_line *line)
{
	char text[TRACE_LINE_MAX], lost[TRACE_LINE_MAX];
	size_t n = trace_format(line, text), m = 0;

	if (r->lost > 0) {
		struct trace_line l = *line;

		l.kind = TRACE_LOST;
		(void)snprintf(l.text, sizeof(l.text), "%llu lines dropped: they were not read",
			       (unsigned long long)r->lost);
		m = trace_format(&l, lost);
	}
	if (m > 0 &&
	    (link_credit(r->client->port.link, r->ch, 0) < m + n || !send_text(r, lost, m))) {
		r->lost++;
		return;
	}
	if (m > 0)
		r->lost = 0;
	r->lost += !send_text(r, text, n);
}

static void on_line(void *arg, const struct trace_line *line)
{
	struct keeper *k = arg;

	for (size_t i = 0; i < k->tracing.n; i++)
		send_line(&k->tracing.readers[i], line);
}

/* ---- the current state, for a new reader ---- */

static void tell(struct keeper *k, struct trace_reader *r, const char *request, const char *fmt,
		 ...) _printf_(4, 5);
static void tell(struct keeper *k, struct trace_reader *r, const char *request, const char *fmt,
		 ...)
{
	struct trace_line line = { .us = clock_mono() / 1000, .process = "keeper" };
	char text[TRACE_TEXT_MAX + 1];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)snprintf(line.sandbox, sizeof(line.sandbox), "%s", k->spec->id);
	(void)snprintf(line.request, sizeof(line.request), "%s", request);
	trace_fill(&line, TRACE_STATE, text, strlen(text));
	send_line(r, &line);
}

static size_t held(const struct relay *r, enum way way)
{
	size_t n = 0;

	for (unsigned int i = 0; i < WIRE_STREAMS; i++)
		n += r->flows[way][i].held.len - r->flows[way][i].done;
	return n;
}

static const char *input_of(const struct relay *r)
{
	if (!r->has_input)
		return "none";
	if (r->flows[TO_GUEST][0].eof)
		return "ended";
	return r->input_ch != 0 ? "open" : "open, no client attached";
}

static void tell_relay(struct keeper *k, struct trace_reader *reader, const struct relay *r)
{
	const uint64_t now = clock_mono();
	char limit[64] = "none";

	if (!r->command) {
		tell(k, reader, r->request, "%s on guest channel %u", wire_op_name(r->op),
		     r->guest_ch);
		return;
	}
	if (r->clock.left > 0)
		(void)snprintf(limit, sizeof(limit), "in %llu s, when it is resumed",
			       (unsigned long long)(r->clock.left / NSEC_PER_SEC));
	if (r->clock.timer.slot != 0)
		(void)snprintf(
			limit, sizeof(limit), "in %llu s",
			(unsigned long long)((MAX(r->clock.timer.when, now) - now) / NSEC_PER_SEC));
	tell(k, reader, r->request,
	     "command %llu: %s, pid %u, guest channel %u; input %s; %zu bytes wait to be read by "
	     "it, %zu by its client; time limit %s",
	     (unsigned long long)r->command->record.number,
	     r->open.len > 0   ? "waits for a record"
	     : r->pid == 0     ? "asked for"
	     : r->guest_ch > 0 ? "runs"
			       : "has ended",
	     r->pid, r->guest_ch, input_of(r), held(r, TO_GUEST), held(r, TO_CLIENT), limit);
}

static void tell_now(struct keeper *k, struct trace_reader *reader)
{
	tell(k, reader, "", "%s, %zu clients, %zu commands and file operations%s",
	     k->life.paused ? "paused" : "serving", k->clients.n, k->relays.n,
	     k->journal.error ? "; the audit log cannot be written" : "");
	for (const struct relay *r = k->relays.list; r; r = r->next)
		tell_relay(k, reader, r);
}

/* ---- from the guest ---- */

static void guest_line(void *arg, const char *text, size_t n)
{
	struct keeper *k = arg;
	struct tracing *t = &k->tracing;
	const uint64_t now = clock_mono();
	struct trace_line line = { .us = now / 1000, .process = "guest" };
	enum trace_kind kind = TRACE_LOST;
	size_t used = 0;

	if (now - t->window > NSEC_PER_SEC) {
		if (t->guest_lost > 0)
			TRACE(TRACE_LOST, "%llu lines of the guest dropped: too many at once",
			      (unsigned long long)t->guest_lost);
		t->window = now;
		t->in_window = 0;
		t->guest_lost = 0;
	}
	if (t->in_window++ >= GUEST_LINES) {
		t->guest_lost++;
		return;
	}
	/* A line is "KIND TEXT"; one without a kind is shown unchanged. */
	for (unsigned int i = 0; i < TRACE_KINDS; i++) {
		const size_t len = strlen(trace_kind_names[i]);

		if (n > len && text[len] == ' ' && memcmp(text, trace_kind_names[i], len) == 0) {
			kind = (enum trace_kind)i;
			used = len + 1;
		}
	}
	(void)snprintf(line.sandbox, sizeof(line.sandbox), "%s", k->spec->id);
	trace_fill(&line, used > 0 ? kind : TRACE_LOG, text + used, n - used);
	trace_pass(&line);
}

bool tracing_guest_data(struct keeper *k, uint32_t ch, const void *data, size_t n)
{
	struct tracing *t = &k->tracing;

	if (ch == 0 || ch != t->guest_ch)
		return false;
	trace_feed(&t->guest, data, n, guest_line, k);
	return true;
}

void tracing_guest_closed(struct keeper *k, uint32_t ch)
{
	if (ch == k->tracing.guest_ch)
		k->tracing.guest_ch = 0;
}

static void close_guest(struct keeper *k)
{
	uint32_t ch = k->tracing.guest_ch;

	k->tracing.guest_ch = 0;
	if (ch != 0)
		keeper_check(k, link_close(k->guest.link, ch, WIRE_DONE, NULL));
}

/* Opens a new channel for each reader: the guest then reports its current state. */
static void ask_guest(struct keeper *k)
{
	close_guest(k);
	k->tracing.guest.n = 0;
	if (!k->save.begun && !k->ended &&
	    link_open(k->guest.link, WIRE_OP_TRACE, NULL, NULL, &k->tracing.guest_ch) < 0)
		k->tracing.guest_ch = 0; /* tracing works without the guest's lines */
}

/* ---- from the warden ---- */

static void warden_line(void *arg, const char *text, size_t n)
{
	struct trace_line line;

	(void)arg;
	if (trace_parse(text, n, &line) == 0)
		trace_pass(&line);
}

static void close_pipe(struct keeper *k)
{
	loop_del_fd(&k->tracing.pipe);
	if (k->tracing.piped)
		k->tracing.pipe.fd = fd_close(k->tracing.pipe.fd);
	k->tracing.piped = false;
}

static bool read_pipe(struct keeper *k)
{
	char bytes[4096];
	ssize_t n = read(k->tracing.pipe.fd, bytes, sizeof(bytes));

	if (n > 0)
		trace_feed(&k->tracing.warden, bytes, (size_t)n, warden_line, k);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		close_pipe(k);
	return n > 0;
}

static void on_pipe(struct loop_fd *src, uint32_t events)
{
	(void)events;
	(void)read_pipe(src->arg);
}

void tracing_last(struct keeper *k)
{
	for (int i = 0; k->tracing.piped && i < LAST_READS && read_pipe(k); i++)
		;
}

bool tracing_warden(struct keeper *k, int fd)
{
	close_pipe(k);
	if (k->tracing.n == 0) { /* the last reader closed meanwhile */
		(void)fd_close(fd);
		return true;
	}
	k->tracing.pipe = (struct loop_fd){ .cb = on_pipe, .arg = k };
	k->tracing.warden.n = 0;
	if (loop_add_fd(k->loop, &k->tracing.pipe, fd, EPOLLIN) < 0)
		return false;
	k->tracing.piped = true;
	return true;
}

static void tell_warden(struct keeper *k, bool on)
{
	if (k->warden.fd >= 0)
		(void)note_send(k->warden.fd, NOTE_WANT_TRACE, on, NULL, 0);
}

/* ---- readers come and go ---- */

void tracing_opened(struct client *c, uint32_t ch)
{
	struct keeper *k = c->keeper;
	struct tracing *t = &k->tracing;
	struct link *l = c->port.link;

#ifndef HUTCH_TRACE
	client_check(c,
		     link_close(l, ch, WIRE_UNSUPPORTED, "hutch-keeper was built without tracing"));
	return;
#endif
	if (t->n == TRACE_READERS_MAX) {
		client_check(c,
			     link_close(l, ch, WIRE_TOO_MANY, "too many clients read trace lines"));
		return;
	}
	client_check(c, link_accept(l, ch, NULL));
	t->readers[t->n] = (struct trace_reader){ .client = c, .ch = ch };
	tell_now(k, &t->readers[t->n]);
	t->n++;
	if (t->n == 1) {
		trace_to(on_line, k);
		tell_warden(k, true);
	}
	ask_guest(k);
}

static void end_all(struct keeper *k)
{
	trace_to(NULL, NULL);
	close_pipe(k);
	close_guest(k);
	tell_warden(k, false);
}

void tracing_drop(const struct client *c, uint32_t ch)
{
	struct tracing *t = &c->keeper->tracing;
	const size_t before = t->n;

	for (size_t i = 0; i < t->n;)
		if (t->readers[i].client == c && (ch == 0 || t->readers[i].ch == ch))
			t->readers[i] = t->readers[--t->n];
		else
			i++;
	if (before > 0 && t->n == 0)
		end_all(c->keeper);
}

void tracing_hello(struct keeper *k)
{
	if (trace_on)
		ask_guest(k);
}

void tracing_served(struct keeper *k)
{
	TRACE(TRACE_STATE, "serving: the start is over");
	trace_set_request("");
	log_trace(false);
	if (k->tracing.n == 0)
		close_guest(k);
}

void tracing_done(struct keeper *k)
{
	k->tracing.n = 0;
	if (trace_has_sink())
		trace_to(NULL, NULL);
	if (k->loop)
		close_pipe(k);
}
