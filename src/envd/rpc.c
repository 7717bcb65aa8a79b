/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream collects its messages in `out`, envelope by envelope, and rpc_flush() writes them: so a
 * short command is one answer with a length, in one write. The length of an envelope is filled in
 * when it is closed (`open_at` is its start).
 *
 * A stream has two timers. The keepalive timer is not reset with every message: when it fires, it
 * checks when the last one was sent, and waits for the rest. A client that does not read gets no
 * keepalive, because enough bytes are queued for it.
 */
#include "envd/rpc.h"

#include <stdarg.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/str.h"

enum {
	KEEPALIVE_S = 90, /* default of Keepalive-Ping-Interval */
	KEEPALIVE_MAX_S = 24 * 3600,
	FLAG_END = 2,
	AUTHORIZATION_MAX = 1024,
	STATUS_MEDIA_TYPE = 415,
	STATUS_ERROR = 500,
};

struct rpc {
	struct request *request;
	bool stream;
	struct buf out;
	size_t open_at;
	struct loop_timer deadline, silence;
	uint64_t interval, sent; /* ns */
	const char *keepalive;
	void (*expired)(struct request *r);
	void (*have)(struct request *r);
};

static const struct {
	const char *name;
	int status;
} codes[] = {
	[RPC_CANCELED] = { "canceled", 499 },
	[RPC_UNKNOWN] = { "unknown", 500 },
	[RPC_INVALID_ARGUMENT] = { "invalid_argument", 400 },
	[RPC_DEADLINE_EXCEEDED] = { "deadline_exceeded", 504 },
	[RPC_NOT_FOUND] = { "not_found", 404 },
	[RPC_ALREADY_EXISTS] = { "already_exists", 409 },
	[RPC_PERMISSION_DENIED] = { "permission_denied", 403 },
	[RPC_RESOURCE_EXHAUSTED] = { "resource_exhausted", 429 },
	[RPC_FAILED_PRECONDITION] = { "failed_precondition", 400 },
	[RPC_ABORTED] = { "aborted", 409 },
	[RPC_UNIMPLEMENTED] = { "unimplemented", 501 },
	[RPC_INTERNAL] = { "internal", 500 },
	[RPC_UNAVAILABLE] = { "unavailable", 503 },
	[RPC_UNAUTHENTICATED] = { "unauthenticated", 401 },
};
static_assert(ARRAY_SIZE(codes) == RPC_CODE_MAX, "one for each code");

enum rpc_code rpc_of_wire(enum wire_code code)
{
	static const enum rpc_code of[] = {
		[WIRE_DONE] = RPC_UNKNOWN,
		[WIRE_INVALID] = RPC_INVALID_ARGUMENT,
		[WIRE_NOT_FOUND] = RPC_NOT_FOUND,
		[WIRE_EXISTS] = RPC_ALREADY_EXISTS,
		[WIRE_PERMISSION] = RPC_PERMISSION_DENIED,
		[WIRE_NOT_DIRECTORY] = RPC_INVALID_ARGUMENT,
		[WIRE_IS_DIRECTORY] = RPC_INVALID_ARGUMENT,
		[WIRE_NOT_EMPTY] = RPC_FAILED_PRECONDITION,
		[WIRE_NO_SPACE] = RPC_RESOURCE_EXHAUSTED,
		[WIRE_TOO_MANY] = RPC_RESOURCE_EXHAUSTED,
		[WIRE_NO_USER] = RPC_UNAUTHENTICATED,
		[WIRE_CANNOT_EXECUTE] = RPC_INVALID_ARGUMENT,
		[WIRE_IO] = RPC_INTERNAL,
		[WIRE_UNSUPPORTED] = RPC_UNIMPLEMENTED,
		[WIRE_GONE] = RPC_UNAVAILABLE,
		[WIRE_TIMEOUT] = RPC_DEADLINE_EXCEEDED,
	};
	static_assert(ARRAY_SIZE(of) == WIRE_CODE_MAX, "one for each code");

	return (size_t)code < ARRAY_SIZE(of) ? of[code] : RPC_INTERNAL;
}

/* ---- life of a stream ---- */

static void on_deadline(struct loop_timer *t);
static void on_silence(struct loop_timer *t);

static void forget(struct request *r)
{
	struct rpc *rpc = r->rpc;

	r->rpc = NULL;
	loop_del_timer(&rpc->deadline);
	loop_del_timer(&rpc->silence);
	buf_done(&rpc->out);
	free(rpc);
}

static struct rpc *make(struct request *r, bool stream)
{
	struct rpc *rpc = calloc(1, sizeof(*rpc));

	if (!rpc) {
		request_fail(r, STATUS_ERROR, "out of memory");
		return NULL;
	}
	*rpc = (struct rpc){ .request = r, .stream = stream, .out = BUF_INIT(RPC_OUT_MAX) };
	rpc->deadline = (struct loop_timer){ .cb = on_deadline, .arg = rpc };
	rpc->silence = (struct loop_timer){ .cb = on_silence, .arg = rpc };
	r->rpc = rpc;
	r->forget = forget;
	return rpc;
}

/* ---- messages ---- */

struct buf *rpc_open(struct request *r)
{
	struct buf *out = &r->rpc->out;

	r->rpc->open_at = out->len;
	(void)buf_put_be(out, 0, RPC_HEADER);
	return out;
}

static void close_envelope(struct rpc *rpc, unsigned int flags)
{
	size_t n = rpc->out.len - rpc->open_at - RPC_HEADER;
	char *at;

	if (rpc->out.err)
		return;
	at = rpc->out.data + rpc->open_at;
	at[0] = (char)flags;
	for (unsigned int i = 1; i < RPC_HEADER; i++)
		at[i] = (char)(uint8_t)(n >> 8 * (RPC_HEADER - 1 - i));
}

void rpc_close(struct request *r)
{
	close_envelope(r->rpc, 0);
}

size_t rpc_waiting(const struct request *r)
{
	return r->rpc->out.len;
}

/* Appends a value; NULL (out of memory) becomes an error of the buffer. */
static void put_json(struct buf *b, json_t *value)
{
	_cleanup_json_ json_t *j = value;
	_cleanup_free_ char *text = j ? json_write_line(j) : NULL;

	if (text)
		(void)buf_puts(b, text);
	else if (!b->err)
		b->err = -ENOMEM;
}

void rpc_flush(struct request *r)
{
	struct rpc *rpc = r->rpc;

	if (rpc->out.err) /* cut from the loop, because the caller still uses r */
		(void)loop_set_timer(r->api->config->loop, &rpc->deadline, 0);
	if (rpc->out.err || rpc->out.len == 0)
		return;
	if (!r->begun)
		request_begin(r, 200, RPC_STREAM, -1);
	request_write(r, rpc->out.data, rpc->out.len);
	buf_reset(&rpc->out);
	rpc->sent = clock_mono();
}

void rpc_put(struct request *r, json_t *message)
{
	put_json(rpc_open(r), message);
	rpc_close(r);
}

void rpc_send(struct request *r, json_t *message)
{
	rpc_put(r, message);
	rpc_flush(r);
}

/* ---- ends ---- */

static void finish_stream(struct request *r)
{
	_cleanup_buf_ struct buf out = r->rpc->out;

	r->rpc->out = (struct buf)BUF_INIT(0);
	if (out.err) {
		request_cut(r);
	} else if (!r->begun) {
		request_text(r, 200, RPC_STREAM, out.data, out.len);
	} else {
		request_finish(r, out.data, out.len);
	}
}

static void end_stream(struct request *r, json_t *value)
{
	put_json(rpc_open(r), value);
	close_envelope(r->rpc, FLAG_END);
	finish_stream(r);
}

void rpc_end(struct request *r)
{
	end_stream(r, json_object());
}

static json_t *error_json(enum rpc_code code, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * REQUEST_TEXT_MAX);

	(void)str_escape(&b, text, strlen(text));
	return JSON_OBJECT({ "code", json_string(codes[code].name) },
			   { "message", json_string(buf_text(&b)) });
}

void rpc_fail(struct request *r, enum rpc_code code, const char *fmt, ...)
{
	char text[REQUEST_TEXT_MAX];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	if (r->rpc && r->rpc->stream)
		end_stream(r, JSON_OBJECT({ "error", error_json(code, text) }));
	else
		request_answer(r, codes[code].status, error_json(code, text));
}

void rpc_fail_err(struct request *r, enum rpc_code code, const struct err *e)
{
	char text[REQUEST_TEXT_MAX];

	rpc_fail(r, code, "%s", request_reason(r, codes[code].status, e, text));
}

void rpc_fail_status(struct request *r, enum rpc_code code, const char *fmt, ...)
{
	char text[REQUEST_TEXT_MAX];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	assert(!r->begun);
	request_answer(r, codes[code].status, error_json(code, text));
}

void rpc_answer(struct request *r, json_t *message)
{
	if (!r->rpc || !r->rpc->stream) {
		request_answer(r, 200, message);
		return;
	}
	rpc_put(r, message);
	rpc_end(r);
}

/* ---- the request ---- */

/* Compares the content type, ignoring parameters. */
static bool type_is(const struct request *r, const char *type)
{
	const char *field = http_field(r->x, "content-type");
	size_t n = strlen(type);

	return field && strncasecmp(field, type, n) == 0 &&
	       (field[n] == '\0' || field[n] == ';' || field[n] == ' ');
}

/* Reads the single envelope of a request. */
static int unwrap(const char *data, size_t n, const char **ret, size_t *ret_n, struct err *e)
{
	struct reader in = reader_of(data, n);
	uint64_t flags = reader_be(&in, 1), length = reader_be(&in, RPC_HEADER - 1);

	if (in.err || length != reader_left(&in))
		return err_set(e, -EBADMSG, "the body is not one whole envelope");
	if (flags != 0)
		return err_set(e, -EBADMSG,
			       "an envelope with flags %u: neither compression nor an "
			       "end is expected here",
			       (unsigned int)flags);
	*ret = data + RPC_HEADER;
	*ret_n = (size_t)length;
	return 0;
}

static void on_body(struct exchange *x, const char *data, size_t n)
{
	struct request *r = x->cookie;
	struct err e = ERR_INIT;
	int k = r->rpc->stream ? unwrap(data, n, &data, &n, &e) : 0;

	request_enter(r);
	if (k == 0)
		k = json_read(data, n, &r->body, &e);
	if (k == 0 && !json_is_object(r->body))
		k = err_set(&e, -EINVAL, "the message is not a JSON object");
	if (k == 0)
		r->rpc->have(r);
	else if (k == -ENOMEM)
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "%s", e.msg);
	else
		rpc_fail(r, RPC_INVALID_ARGUMENT, "%s", e.msg);
	request_leave();
}

static void start_reading(struct request *r, bool stream, void (*have)(struct request *r))
{
	struct rpc *rpc = make(r, stream);

	if (!rpc)
		return;
	rpc->have = have;
	http_collect(r->x, HTTP_SERVER_JSON_MAX, on_body);
}

void rpc_read(struct request *r, void (*have)(struct request *r))
{
	if (type_is(r, RPC_STREAM))
		start_reading(r, true, have);
	else if (type_is(r, RPC_JSON))
		start_reading(r, false, have);
	else
		request_fail(r, STATUS_MEDIA_TYPE, "expected " RPC_JSON " or " RPC_STREAM);
}

static bool check_stream(struct request *r)
{
	if (type_is(r, RPC_STREAM))
		return true;
	request_fail(r, STATUS_MEDIA_TYPE, "this method is a stream: expected " RPC_STREAM);
	return false;
}

void rpc_read_stream(struct request *r, void (*have)(struct request *r))
{
	if (check_stream(r))
		start_reading(r, true, have);
}

bool rpc_begin_stream(struct request *r)
{
	return check_stream(r) && make(r, true);
}

int rpc_user(const struct request *r, char user[static RPC_USER_MAX + 1])
{
	const char *field = http_field(r->x, "authorization");
	_cleanup_free_ char *text = NULL;
	size_t n = 0, len;

	user[0] = '\0';
	if (!field)
		return 0;
	if (strlen(field) > AUTHORIZATION_MAX || strncasecmp(field, "basic ", 6) != 0 ||
	    base64_decode(field + 6, strlen(field + 6), &text, &n) < 0)
		return -EINVAL;
	len = strcspn(text, ":");
	if (len == 0 || len > RPC_USER_MAX || strlen(text) != n || !utf8_valid(text, len))
		return -EINVAL;
	memcpy(user, text, len);
	user[len] = '\0';
	return 0;
}

/* ---- timers ---- */

uint64_t rpc_timeout(const struct request *r)
{
	const char *field = http_field(r->x, "connect-timeout-ms");
	uint64_t ms;

	return field && str_to_u64(field, strlen(field), UINT32_MAX, &ms) == 0 ? ms : 0;
}

static void on_deadline(struct loop_timer *t)
{
	struct request *r = ((struct rpc *)t->arg)->request;

	if (r->rpc->expired)
		r->rpc->expired(r);
	rpc_fail(r, RPC_DEADLINE_EXCEEDED, "the time limit of the request was reached");
}

static void on_silence(struct loop_timer *t)
{
	struct rpc *rpc = t->arg;
	struct request *r = rpc->request;

	if (clock_mono() >= rpc->sent + rpc->interval) {
		if (!http_full(r->x)) {
			(void)buf_puts(rpc_open(r), rpc->keepalive);
			rpc_close(r);
			rpc_flush(r);
		}
		rpc->sent = clock_mono();
	}
	(void)loop_set_timer(r->api->config->loop, &rpc->silence, rpc->sent + rpc->interval);
}

int rpc_clocks(struct request *r, const char *keepalive, void (*expired)(struct request *r))
{
	struct rpc *rpc = r->rpc;
	const char *field = http_field(r->x, "keepalive-ping-interval");
	uint64_t s = 0, ms = rpc_timeout(r), now = clock_mono();
	int k;

	if (!field || str_to_u64(field, strlen(field), KEEPALIVE_MAX_S, &s) < 0 || s == 0)
		s = KEEPALIVE_S;
	rpc->keepalive = keepalive;
	rpc->expired = expired;
	rpc->interval = s * NSEC_PER_SEC;
	rpc->sent = now;
	k = loop_set_timer(r->api->config->loop, &rpc->silence, now + rpc->interval);
	if (k == 0 && ms > 0)
		k = loop_set_timer(r->api->config->loop, &rpc->deadline, now + ms * NSEC_PER_MSEC);
	return k;
}
