/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/front.h"

#include <string.h>

#include "base/str.h"

#define METHOD "CONNECT "

enum {
	SOCKS_VERSION = 5,
	SOCKS_NO_AUTH = 0,
	SOCKS_PASSWORD = 2,
	SOCKS_NO_METHOD = 0xff,
	SOCKS_PASSWORD_VERSION = 1,
	SOCKS_COMMAND_CONNECT = 1,
	SOCKS_IPV4 = 1,
	SOCKS_NAME = 3,
	SOCKS_IPV6 = 4,
};

/* The messages of SOCKS5, in order. */
enum step {
	STEP_METHODS,
	STEP_PASSWORD,
	STEP_REQUEST,
};

static const struct {
	unsigned int status;
	const char *phrase;
	uint8_t socks;
} results[FRONT_RESULT_MAX] = {
	[FRONT_OK] = { 200, "Connection established", 0 },
	[FRONT_DENIED] = { 403, "Forbidden", 2 },
	[FRONT_UNREACHABLE] = { 502, "Bad Gateway", 4 },
	[FRONT_REFUSED] = { 502, "Bad Gateway", 5 },
	[FRONT_TIMEOUT] = { 504, "Gateway Timeout", 6 },
	[FRONT_BUSY] = { 503, "Service Unavailable", 1 },
	[FRONT_MALFORMED] = { 400, "Bad Request", 1 },
	[FRONT_UNSUPPORTED] = { 501, "Not Implemented", 7 },
};

static void bad(struct front *f, enum front_result result, const char *reason)
{
	f->state = FRONT_BAD;
	f->result = result;
	f->reason = reason;
}

static void done(struct front *f)
{
	f->state = FRONT_DONE;
}

/* ---- HTTP ---- */

static void read_request_line(struct front *f)
{
	struct http_text line = { (const char *)f->line, f->n - STRLEN("\r\n") };
	struct http_request_line l;
	struct err e = ERR_INIT;

	if (line.n < STRLEN(METHOD) || memcmp(line.s, METHOD, STRLEN(METHOD)) != 0)
		bad(f, FRONT_UNSUPPORTED,
		    "only CONNECT is understood here: connect directly, or use https");
	else if (http_request_line_parse(line, &l) < 0 || l.major != '1' || l.minor > '1')
		bad(f, FRONT_MALFORMED, "the request line is not CONNECT NAME:PORT HTTP/1.1");
	else if (target_parse(l.target.s, l.target.n, &f->target, &e) < 0)
		bad(f, FRONT_MALFORMED, "the target of CONNECT is not NAME:PORT");
}

/* Header fields are dropped: nothing depends on them, and none is forwarded. */
static void feed_http(struct front *f, uint8_t c)
{
	bool first = f->scan.lines == 0;

	if (f->scan.pos == FRONT_HEAD_MAX || (first && f->n == sizeof(f->line))) {
		bad(f, FRONT_MALFORMED, "the head of the request is too long");
		return;
	}
	if (first)
		f->line[f->n++] = c;
	switch (http_scan_byte(&f->scan, (char)c)) {
	case HTTP_SCAN_MORE:
		return;
	case HTTP_SCAN_LINE:
		if (first)
			read_request_line(f);
		return;
	case HTTP_SCAN_HEAD:
		if (first)
			read_request_line(f); /* an empty line */
		else
			done(f);
		return;
	case HTTP_SCAN_BAD_END:
		bad(f, FRONT_MALFORMED, "a line does not end in CR LF");
		return;
	case HTTP_SCAN_CONTROL:
		bad(f, FRONT_MALFORMED, "a control character in the head of the request");
		return;
	}
}

/* ---- SOCKS5 ---- */

/* Returns the message's length as far as the received bytes show it; more bytes may show more. */
static size_t message_length(const struct front *f)
{
	const uint8_t *m = f->line;

	switch ((enum step)f->step) {
	case STEP_METHODS:
		return f->n < 2 ? 2 : 2U + m[1];
	case STEP_PASSWORD:
		if (f->n < 2 || f->n < 3U + m[1])
			return f->n < 2 ? 2 : 3U + m[1];
		return 3U + m[1] + m[2 + m[1]];
	case STEP_REQUEST:
		if (f->n < 5)
			return 5;
		if (m[3] == SOCKS_IPV4)
			return 4 + 4 + 2;
		return m[3] == SOCKS_IPV6 ? 4 + 16 + 2 : 5U + m[4] + 2;
	}
	return 0;
}

static void put2(struct buf *out, uint8_t a, uint8_t b)
{
	(void)buf_put_be(out, a, 1);
	(void)buf_put_be(out, b, 1);
}

static void choose_method(struct front *f, struct buf *out)
{
	const uint8_t *m = f->line;

	if (memchr(m + 2, SOCKS_NO_AUTH, m[1])) {
		put2(out, SOCKS_VERSION, SOCKS_NO_AUTH);
		f->step = STEP_REQUEST;
	} else if (memchr(m + 2, SOCKS_PASSWORD, m[1])) {
		put2(out, SOCKS_VERSION, SOCKS_PASSWORD);
		f->step = STEP_PASSWORD;
	} else {
		put2(out, SOCKS_VERSION, SOCKS_NO_METHOD);
		bad(f, FRONT_UNSUPPORTED, NULL);
	}
}

static void take_password(struct front *f, struct buf *out)
{
	put2(out, SOCKS_PASSWORD_VERSION, f->line[0] == SOCKS_PASSWORD_VERSION ? 0 : 1);
	if (f->line[0] == SOCKS_PASSWORD_VERSION)
		f->step = STEP_REQUEST;
	else
		bad(f, FRONT_MALFORMED, "the version of the password's message is not 1");
}

/* Some programs send an address as a name. */
static int read_host(const char *s, size_t n, struct target *t)
{
	struct err e = ERR_INIT;

	if (addr_parse(s, n, &t->addr, &e) == 0) {
		t->is_addr = true;
		return t->addr.prefix == (t->addr.family == 4 ? 32 : 128) ? 0 : -EINVAL;
	}
	return name_parse(s, n, &t->name, &e);
}

static void read_request(struct front *f)
{
	const uint8_t *m = f->line;
	struct target t = { .port = (uint16_t)(m[f->n - 2] << 8 | m[f->n - 1]) };
	int r = 0;

	if (m[0] != SOCKS_VERSION || m[2] != 0) {
		bad(f, FRONT_MALFORMED, "the request is not one of SOCKS5");
		return;
	}
	if (m[1] != SOCKS_COMMAND_CONNECT) {
		bad(f, FRONT_UNSUPPORTED, "only CONNECT is understood here");
		return;
	}
	if (m[3] == SOCKS_NAME) {
		r = read_host((const char *)m + 5, m[4], &t);
	} else {
		t.is_addr = true;
		t.addr.family = m[3] == SOCKS_IPV4 ? 4 : 6;
		t.addr.prefix = m[3] == SOCKS_IPV4 ? 32 : 128;
		memcpy(t.addr.bytes, m + 4, t.addr.prefix / 8);
	}
	if (r < 0 || t.port == 0) {
		bad(f, FRONT_MALFORMED, "the request has no valid name or address and port");
		return;
	}
	f->target = t;
	done(f);
}

static void feed_socks(struct front *f, uint8_t c, struct buf *out)
{
	assert(f->n < sizeof(f->line));
	f->line[f->n++] = c;
	/* Checked before the length that depends on it. */
	if (f->step == STEP_REQUEST && f->n == 4 && c != SOCKS_IPV4 && c != SOCKS_NAME &&
	    c != SOCKS_IPV6) {
		bad(f, FRONT_MALFORMED, "the kind of address is not known");
		return;
	}
	if (f->n < message_length(f))
		return;
	if (f->step == STEP_METHODS)
		choose_method(f, out);
	else if (f->step == STEP_PASSWORD)
		take_password(f, out);
	else
		read_request(f);
	f->n = 0;
}

/* ---- both ---- */

size_t front_feed(struct front *f, const void *data, size_t n, struct buf *out)
{
	const uint8_t *p = data;
	size_t i = 0;

	if (f->kind == FRONT_UNKNOWN && n > 0)
		f->kind = p[0] == SOCKS_VERSION ? FRONT_SOCKS5 : FRONT_CONNECT;
	while (i < n && f->state == FRONT_MORE) {
		if (f->kind == FRONT_SOCKS5)
			feed_socks(f, p[i++], out);
		else
			feed_http(f, p[i++]);
	}
	return i;
}

/* Copies a reason as one line of printable ASCII. Returns its length. */
static size_t plain_reason(const char *reason, char out[static FRONT_REASON_MAX])
{
	size_t n = reason ? strnlen(reason, FRONT_REASON_MAX) : 0;

	for (size_t i = 0; i < n; i++)
		out[i] = reason[i] < 0x20 || reason[i] > 0x7e ? '?' : reason[i];
	return n;
}

static void put_http(struct buf *b, enum front_result result, const char *reason)
{
	char text[FRONT_REASON_MAX];
	int n = (int)plain_reason(reason, text);

	(void)buf_printf(b, "HTTP/1.1 %u %s\r\n", results[result].status, results[result].phrase);
	if (result == FRONT_OK)
		(void)buf_puts(b, "\r\n");
	else
		(void)buf_printf(b,
				 "Content-Type: text/plain\r\nContent-Length: %d\r\n"
				 "Connection: close\r\nX-Hutch-Reason: %.*s\r\n\r\n%.*s\n",
				 n + 1, n, text, n, text);
}

void front_put_reply(struct buf *b, enum front_kind kind, enum front_result result,
		     const char *reason)
{
	static const uint8_t nowhere[] = { 0, SOCKS_IPV4, 0, 0, 0, 0, 0, 0 };

	assert(result < FRONT_RESULT_MAX);
	if (kind != FRONT_SOCKS5) {
		put_http(b, result, reason);
		return;
	}
	put2(b, SOCKS_VERSION, results[result].socks);
	(void)buf_put(b, nowhere, sizeof(nowhere));
}
