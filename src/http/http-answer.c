/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses. Bytes are written at once; bytes that the socket does not accept wait in the
 * connection's buffer. None of these functions calls the handler back: the loop starts the next
 * request, calls room() and ends the connection.
 */
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "http/http-inner.h"

enum {
	CHUNK_HEAD_MAX = 24,
	DATE_MAX = 40,
};

static const struct {
	int status;
	const char *phrase;
} phrases[] = {
	{ 200, "OK" },
	{ 201, "Created" },
	{ 202, "Accepted" },
	{ 204, "No Content" },
	{ 206, "Partial Content" },
	{ 301, "Moved Permanently" },
	{ 302, "Found" },
	{ 304, "Not Modified" },
	{ 307, "Temporary Redirect" },
	{ 400, "Bad Request" },
	{ 401, "Unauthorized" },
	{ 403, "Forbidden" },
	{ 404, "Not Found" },
	{ 405, "Method Not Allowed" },
	{ 408, "Request Timeout" },
	{ 409, "Conflict" },
	{ 410, "Gone" },
	{ 411, "Length Required" },
	{ 412, "Precondition Failed" },
	{ 413, "Content Too Large" },
	{ 414, "URI Too Long" },
	{ 415, "Unsupported Media Type" },
	{ 416, "Range Not Satisfiable" },
	{ 417, "Expectation Failed" },
	{ 421, "Misdirected Request" },
	{ 422, "Unprocessable Content" },
	{ 426, "Upgrade Required" },
	{ 429, "Too Many Requests" },
	{ 431, "Request Header Fields Too Large" },
	{ 500, "Internal Server Error" },
	{ 501, "Not Implemented" },
	{ 502, "Bad Gateway" },
	{ 503, "Service Unavailable" },
	{ 504, "Gateway Timeout" },
	{ 505, "HTTP Version Not Supported" },
	{ 507, "Insufficient Storage" },
};

static const char *phrase_of(int status)
{
	for (size_t i = 0; i < ARRAY_SIZE(phrases); i++)
		if (phrases[i].status == status)
			return phrases[i].phrase;
	return "";
}

void http_answer_reset(struct conn *c)
{
	buf_done(&c->fields);
	c->answer = ANSWER_NONE;
	c->chunked = c->bodiless = c->bad_fields = c->full = false;
	c->answer_left = -1;
	c->room = NULL;
}

/* Writes names of days and months independent of the locale. */
static void put_date(struct buf *b)
{
	static const char days[] = "SunMonTueWedThuFriSat";
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	time_t now = (time_t)(clock_wall() / NSEC_PER_SEC);
	struct tm tm;

	if (!gmtime_r(&now, &tm))
		return;
	(void)buf_printf(b, "Date: %.3s, %02d %.3s %d %02d:%02d:%02d GMT\r\n",
			 days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon,
			 tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

static bool text_valid(const char *s)
{
	return http_value_valid(s, strlen(s));
}

/* Only this file sets the headers for the length of a response and for keeping the connection. */
static bool name_valid(const char *s)
{
	size_t n = strlen(s);

	return n > 0 && http_token_len(s, n) == n && strcasecmp(s, "content-length") != 0 &&
	       strcasecmp(s, "transfer-encoding") != 0 && strcasecmp(s, "connection") != 0;
}

void http_add_field(struct exchange *x, const char *name, const char *value)
{
	struct conn *c = http_conn_of(x);

	assert(c->held && c->answer == ANSWER_NONE);
	if (!text_valid(value) || !name_valid(name) ||
	    buf_printf(&c->fields, "%s: %s\r\n", name, value) < 0)
		c->bad_fields = true;
}

/* Returns whether the connection can be kept after dropping the unread body. */
static bool can_keep(const struct conn *c)
{
	if (!c->head.keep || c->server->stopping)
		return false;
	if (c->body_done)
		return true;
	/* A client that waits for 100 may or may not send the body, so the next byte is ambiguous.
	 */
	return !c->head.expect && (c->head.length < 0 || c->left <= HTTP_SERVER_DRAIN);
}

static void put_framing(struct conn *c, struct buf *b, int64_t length)
{
	if (c->chunked)
		(void)buf_puts(b, "Transfer-Encoding: chunked\r\n");
	else if (length >= 0)
		(void)buf_printf(b, "Content-Length: %lld\r\n", (long long)length);
	if (!c->keep)
		(void)buf_puts(b, "Connection: close\r\n");
	(void)buf_puts(b, "\r\n");
}

/* Begins the response and writes its head into `b`. */
static void put_head(struct conn *c, struct buf *b, int status, const char *type, int64_t length)
{
	bool empty = status == 204 || status == 304;

	assert(c->answer == ANSWER_NONE && status >= 200 && status <= 599);
	c->answer = ANSWER_BEGUN;
	c->keep = can_keep(c);
	c->chunked = length < 0 && !empty && c->head.minor == 1;
	if (length < 0 && !empty && !c->chunked)
		c->keep = false;
	c->bodiless = empty || (c->head.method && str_eq(c->head.method, "HEAD"));
	c->answer_left = c->bodiless ? -1 : length;
	(void)buf_printf(b, "HTTP/1.1 %d %s\r\n", status, phrase_of(status));
	put_date(b);
	if (type)
		(void)buf_printf(b, "Content-Type: %s\r\n", type);
	(void)buf_put(b, buf_text(&c->fields), c->fields.len);
	put_framing(c, b, empty ? -1 : length);
	buf_done(&c->fields);
}

static void complete(struct conn *c)
{
	c->answer = ANSWER_DONE;
	c->held = false;
	c->use = BODY_DROP;
	c->began = clock_mono();
	http_conn_kick(c);
}

static void send_whole(struct conn *c, int status, const char *type, const void *data, size_t n)
{
	_cleanup_buf_ struct buf head = BUF_INIT(2 * HTTP_FIELDS_OUT_MAX);
	struct iovec iov[2];

	put_head(c, &head, status, type, (int64_t)n);
	c->broken |= head.err < 0;
	iov[0] = (struct iovec){ (void *)buf_text(&head), head.len };
	iov[1] = (struct iovec){ (void *)data, c->bodiless ? 0 : n };
	http_io_send(c, iov, ARRAY_SIZE(iov));
	complete(c);
}

void http_answer_refusal(struct conn *c, const struct http_refusal *why)
{
	char text[ERR_MSG_MAX];
	int n = snprintf(text, sizeof(text), "{\"code\":%d,\"message\":\"%s\"}", why->status,
			 why->why);

	c->head.keep = false;
	buf_done(&c->fields);
	send_whole(c, why->status, "application/json", text, (size_t)n);
}

/* A bug of ours; the client learns no details. */
static const struct http_refusal ours = { 500, "the answer cannot be sent" };

void http_answer(struct exchange *x, int status, const char *type, const void *data, size_t n)
{
	struct conn *c = http_conn_of(x);

	assert(c->held && c->phase == CONN_EXCHANGE);
	if (c->bad_fields || (type && !text_valid(type)))
		http_answer_refusal(c, &ours);
	else
		send_whole(c, status, type, data, n);
}

void http_begin(struct exchange *x, int status, const char *type, int64_t length,
		void (*room)(struct exchange *x))
{
	_cleanup_buf_ struct buf head = BUF_INIT(2 * HTTP_FIELDS_OUT_MAX);
	struct conn *c = http_conn_of(x);

	assert(c->held && c->phase == CONN_EXCHANGE);
	c->room = room;
	if (c->bad_fields || (type && !text_valid(type))) {
		c->fault = ours;
	} else {
		put_head(c, &head, status, type, length);
		c->broken |= head.err < 0;
		http_io_send_text(c, buf_text(&head), head.len);
	}
	http_conn_kick(c);
}

bool http_full(const struct exchange *x)
{
	return http_conn_of(x)->full;
}

static void send_chunk(struct conn *c, const void *data, size_t n, const char *behind)
{
	char head[CHUNK_HEAD_MAX];
	int len = snprintf(head, sizeof(head), "%zx\r\n", n);

	struct iovec iov[] = { { head, (size_t)len },
			       { (void *)data, n },
			       { (void *)behind, strlen(behind) } };

	http_io_send(c, iov, ARRAY_SIZE(iov));
}

void http_write(struct exchange *x, const void *data, size_t n)
{
	struct conn *c = http_conn_of(x);

	if (n == 0 || c->broken || c->bodiless || c->fault.status > 0)
		return;
	assert(c->held && (c->phase == CONN_TUNNEL || c->answer == ANSWER_BEGUN));
	if (c->answer_left >= 0 && (uint64_t)c->answer_left < n) {
		/* The client would read excess bytes as the next response. */
		c->broken = true;
	} else if (c->chunked) {
		send_chunk(c, data, n, "\r\n");
	} else {
		c->answer_left -= c->answer_left >= 0 ? (int64_t)n : 0;
		http_io_send_text(c, data, n);
	}
	http_conn_kick(c);
}

void http_end(struct exchange *x)
{
	struct conn *c = http_conn_of(x);

	if (c->held && c->phase == CONN_TUNNEL) {
		c->phase = CONN_EXCHANGE;
		c->keep = false;
		complete(c);
		return;
	}
	assert(c->held && (c->answer == ANSWER_BEGUN || c->fault.status > 0));
	if (c->answer == ANSWER_NONE) {
		http_answer_refusal(c, &c->fault);
		return;
	}
	if (c->broken || c->answer_left > 0) {
		http_cut(x);
		return;
	}
	if (c->chunked && !c->bodiless)
		http_io_send_text(c, "0\r\n\r\n", 5);
	complete(c);
}

void http_finish(struct exchange *x, const void *data, size_t n)
{
	struct conn *c = http_conn_of(x);

	if (n == 0 || !c->chunked || c->bodiless || c->broken || c->fault.status > 0) {
		http_write(x, data, n);
		http_end(x);
		return;
	}
	assert(c->held && c->answer == ANSWER_BEGUN);
	send_chunk(c, data, n, "\r\n0\r\n\r\n");
	complete(c);
}

void http_cut(struct exchange *x)
{
	struct conn *c = http_conn_of(x);

	c->held = false;
	http_conn_close(c);
	http_conn_kick(c);
}

void http_tunnel(struct exchange *x, const struct http_tunnel *ops)
{
	struct conn *c = http_conn_of(x);

	assert(c->held && c->phase == CONN_EXCHANGE && c->answer == ANSWER_NONE &&
	       c->use == BODY_HELD);
	c->phase = CONN_TUNNEL;
	c->tunnel = *ops;
	http_conn_kick(c);
}

void http_tunnel_eof(struct exchange *x)
{
	struct conn *c = http_conn_of(x);

	assert(c->held && c->phase == CONN_TUNNEL);
	c->tunnel_eof = true;
	http_conn_kick(c);
}
