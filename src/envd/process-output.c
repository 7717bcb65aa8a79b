/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends a command's output from its record to a client. Each client has its own cursor and is
 * served while its connection takes bytes, so a slow or stopped client delays neither the command
 * nor other clients. pump() continues when the record grows or the connection has room; without
 * room the record is not watched, so an endless command causes no wakeups. The timer `again` has
 * two uses:
 *
 * - A client that reads as fast as a command writes would block the loop: after TURN_MAX bytes the
 *   loop serves others.
 * - A piece of data ends between two characters if possible, because older clients decode each
 * piece separately. A possible start of a character waits for the rest, HOLD_MS at most.
 *
 * Missing bytes of the record end the stream with an error that says how many and where; otherwise
 * wrong output would look right.
 */
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/str.h"
#include "envd/process.h"

enum {
	PIECE_MAX = 32 * 1024,
	PIECE_TERMINAL = 16 * 1024,
	TURN_MAX = 256 * 1024,
	HOLD_MS = 500,
	STATUS_TEXT = 64,
};

struct output {
	struct request *r;
	int fd;
	bool terminal, offsets;
	struct record_reader reader;
	struct record_cursor cursor;
	struct record_info info;
	struct loop_timer again;
	bool holding, late; /* `again` is for held bytes; HOLD_MS is over */
	unsigned int stream;
	uint64_t offset; /* of piece[0] */
	size_t n;
	char *piece; /* PIECE_MAX bytes; NULL while empty, as in most streams */
};

static const char keepalive[] = "{\"event\":{\"keepalive\":{}}}";

/* ---- events ---- */

static void put_start(struct request *r, uint32_t pid)
{
	(void)buf_printf(rpc_open(r), "{\"event\":{\"start\":{\"pid\":%u}}}", pid);
	rpc_close(r);
}

/* Sends the first `n` collected bytes. */
static void put_data(struct output *o, size_t n)
{
	const char *name = o->terminal ? "pty" : o->stream == 1 ? "stdout" : "stderr";
	struct buf *b;

	if (n == 0)
		return;
	b = rpc_open(o->r);
	(void)buf_printf(b, "{\"event\":{\"data\":{\"%s\":\"", name);
	(void)base64_put(b, o->piece, n);
	if (o->offsets)
		(void)buf_printf(b, "\",\"offset\":\"%llu", (unsigned long long)o->offset);
	(void)buf_puts(b, "\"}}}");
	rpc_close(o->r);
	o->n -= n;
	o->offset += n;
	memmove(o->piece, o->piece + n, o->n);
	if (rpc_waiting(o->r) >= HTTP_SERVER_AHEAD)
		rpc_flush(o->r);
}

/* Names signals as Go's os.ProcessState does, because clients expect that. */
static void signal_text(unsigned int number, char out[static STATUS_TEXT])
{
	static const char *const names[] = {
		[1] = "hangup",
		[2] = "interrupt",
		[3] = "quit",
		[4] = "illegal instruction",
		[5] = "trace/breakpoint trap",
		[6] = "aborted",
		[7] = "bus error",
		[8] = "floating point exception",
		[9] = "killed",
		[10] = "user defined signal 1",
		[11] = "segmentation fault",
		[12] = "user defined signal 2",
		[13] = "broken pipe",
		[14] = "alarm clock",
		[15] = "terminated",
	};

	if (number > 0 && number < ARRAY_SIZE(names))
		(void)snprintf(out, STATUS_TEXT, "signal: %s", names[number]);
	else
		(void)snprintf(out, STATUS_TEXT, "signal: signal %u", number);
}

/* If the keeper knows the reason of a signal, the error includes it. */
static json_t *error_json(const struct record_slot *s, const char *status)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2048);

	(void)buf_puts(&b, status);
	if (s->text[0]) {
		(void)buf_puts(&b, ": ");
		(void)str_escape(&b, s->text, strlen(s->text));
	}
	return json_string(buf_text(&b));
}

static void put_end(struct output *o)
{
	const struct record_slot *s = &o->info.slot;
	bool exited = s->how == RECORD_EXITED;
	char status[STATUS_TEXT];
	json_t *end;

	if (exited)
		(void)snprintf(status, sizeof(status), "exit status %u", s->value);
	else
		signal_text(s->value, status);
	end = JSON_OBJECT({ "exitCode", json_integer(exited ? (json_int_t)s->value : -1) },
			  { "exited", json_boolean(exited) }, { "status", json_string(status) });
	if (end && !(exited && s->value == 0) && json_put(end, "error", error_json(s, status)) < 0)
		end = (json_decref(end), NULL);
	rpc_put(o->r, JSON_OBJECT({ "event", JSON_OBJECT({ "end", end }) }));
}

/* ---- ends: the output is freed ---- */

static void end_output(struct output *o)
{
	const struct record_slot *s = &o->info.slot;

	put_data(o, o->n);
	if (s->how == RECORD_EXITED || s->how == RECORD_SIGNALED) {
		put_end(o);
		rpc_end(o->r);
	} else {
		rpc_fail(o->r, rpc_of_wire(s->value), "%s",
			 s->text[0] ? s->text : wire_code_name(s->value));
	}
}

static void end_gap(struct output *o, const struct record_piece *p)
{
	const uint64_t behind = p->offset + p->n;

	put_data(o, o->n);
	rpc_fail(o->r, RPC_ABORTED,
		 "%llu bytes of output from offset %llu on are not kept: the command printed more "
		 "than this client read. Raise 'output' in the policy, or continue at offset %llu",
		 (unsigned long long)p->n, (unsigned long long)p->offset,
		 (unsigned long long)behind);
}

/* ---- from the record ---- */

/* Returns how many of `n` bytes do not end inside a character. Invalid bytes count as whole. */
static size_t whole(const char *s, size_t n)
{
	for (size_t k = 1; k <= MIN(n, (size_t)3); k++) {
		uint8_t c = (uint8_t)s[n - k];
		size_t need = c >= 0xf0 && c <= 0xf4 ? 4 : c >= 0xe0 ? 3 : c >= 0xc2 ? 2 : 1;

		if ((c & 0xc0) != 0x80)
			return c <= 0xf4 && need > k ? n - k : n;
	}
	return n;
}

/* -ENOMEM. */
static int gather(struct output *o, const struct record_piece *p)
{
	size_t most = o->terminal ? PIECE_TERMINAL : PIECE_MAX, done = 0;

	if (!o->piece)
		o->piece = malloc(most);
	if (!o->piece)
		return -ENOMEM;
	if (o->stream != p->stream)
		put_data(o, o->n);
	o->stream = p->stream;
	while (done < p->n_data) {
		size_t k = MIN(most - o->n, p->n_data - done);

		if (o->n == 0)
			o->offset = p->offset + done;
		memcpy(o->piece + o->n, p->data + done, k);
		o->n += k;
		done += k;
		if (o->n == most)
			put_data(o, whole(o->piece, o->n));
	}
	return 0;
}

static void drop_piece(struct output *o)
{
	free(o->piece);
	o->piece = NULL;
}

/* All available output is collected, and the command still runs. */
static void rest(struct output *o)
{
	put_data(o, o->late ? o->n : whole(o->piece, o->n));
	o->holding = o->n > 0;
	o->late = false;
	if (o->holding)
		(void)loop_set_timer(o->r->api->config->loop, &o->again,
				     clock_mono() + HOLD_MS * NSEC_PER_MSEC);
	else
		loop_del_timer(&o->again);
	if (!o->holding)
		drop_piece(o);
	rpc_flush(o->r);
}

static void take_turns(struct output *o)
{
	o->holding = false;
	rpc_flush(o->r);
	if (http_full(o->r->x))
		records_watch_del(&o->reader);
	else
		(void)loop_set_timer(o->r->api->config->loop, &o->again, 0);
}

static bool has_room(const struct output *o)
{
	return !o->r->begun || !http_full(o->r->x);
}

/* Sends as much as possible. May end the request. */
static void pump(struct output *o)
{
	struct record_piece p;
	struct err e = ERR_INIT;
	size_t taken = 0;
	bool gap = false;
	int k = 1;

	while (k > 0 && !gap && taken < TURN_MAX && has_room(o)) {
		k = record_next(&o->cursor, &o->info, &p, &e);
		gap = k > 0 && p.stream == 0;
		if (k > 0 && !gap && gather(o, &p) < 0)
			k = err_oom(&e);
		taken += k > 0 ? p.n_data : 0;
	}
	if (k < 0)
		rpc_fail_err(o->r, RPC_INTERNAL, &e);
	else if (gap)
		end_gap(o, &p);
	else if (k > 0)
		take_turns(o);
	else if (o->info.slot.state == RECORD_ENDED)
		end_output(o);
	else
		rest(o);
}

static void on_written(struct record_reader *s)
{
	pump(s->arg);
}

static void on_again(struct loop_timer *t)
{
	struct output *o = t->arg;

	o->late = o->holding;
	pump(o);
}

static int watch(struct output *o)
{
	struct err e = ERR_INIT;

	return o->reader.file ? 0 : records_watch_add(o->r->api->records, &o->reader, o->fd, &e);
}

/* Watches before reading, so that no write is missed. */
static void on_room(struct request *r)
{
	struct output *o = r->data;

	if (watch(o) < 0)
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "too many streams at once");
	else
		pump(o);
}

/* ---- life of an output ---- */

static void output_free(struct output *o)
{
	records_watch_del(&o->reader);
	loop_del_timer(&o->again);
	(void)fd_close(o->fd);
	drop_piece(o);
	free(o);
}

static void on_drop(struct request *r)
{
	output_free(r->data);
}

void output_begin(struct request *r, struct found *f, uint32_t pid, uint64_t offset, bool offsets)
{
	struct output *o = calloc(1, sizeof(*o));

	if (!o) {
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	o->r = r;
	o->fd = TAKE_FD(f->fd);
	o->info = f->info;
	o->terminal = f->info.head.flags & RECORD_TERMINAL;
	o->offsets = offsets;
	o->reader = (struct record_reader){ .wake = on_written, .arg = o };
	o->again = (struct loop_timer){ .cb = on_again, .arg = o };
	record_cursor_init(&o->cursor, o->fd, offset);
	r->data = o;
	r->drop = on_drop;
	r->room = on_room;
	if (watch(o) < 0 || rpc_clocks(r, keepalive, NULL) < 0) {
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "too many streams or clocks at once");
		return;
	}
	put_start(r, pid);
	pump(o);
}
