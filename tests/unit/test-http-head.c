/* SPDX-License-Identifier: Apache-2.0 */
/* Heads, chunks and queries: how they are parsed, and above all which are refused. */
#include "unit.h"

#include <string.h>

#include "base/str.h"
#include "fail.h"
#include "http-lex/http-chunk.h"
#include "http/http-head.h"
#include "http/http-query.h"
#include "http/http-server.h"

#define END "\r\n\r\n"

/* Returns the status of the refusal, or 0 with the head; -1 if it is incomplete. */
static int parse_n(const char *text, size_t n, struct http_head *h)
{
	_cleanup_free_ char *copy = unit_copy(text, n);
	struct http_scan s = { 0 };
	struct http_refusal why = { 0 };
	int r = http_head_scan(&s, copy, n, &why);

	if (r == 0)
		return -1;
	if (r == 1)
		r = http_head_parse(copy, s.pos, h, &why);
	assert_true(r == 0 || (r == -EBADMSG && why.status >= 400 && why.why));
	return r == 0 ? 0 : why.status;
}

static int parse(const char *text, struct http_head *h)
{
	return parse_n(text, strlen(text), h);
}

static int status_of(const char *text)
{
	_cleanup_(http_head_done) struct http_head h = { 0 };

	return parse(text, &h);
}

TEST(test_request)
{
	_cleanup_(http_head_done) struct http_head h = { 0 };

	assert_int_equal(parse("POST /a%20b/c?x=1&y=%2F HTTP/1.1\r\n"
			       "Host: example.com:8080\r\n"
			       "content-LENGTH: 12\r\n"
			       "Accept: a\r\n"
			       "x_key:\tvalue of it \t\r\n"
			       "ACCEPT:  b\r\n"
			       "Cookie: a=1\r\n"
			       "Cookie: b=2\r\n"
			       "Empty:" END,
			       &h),
			 0);
	assert_string_equal(h.method, "POST");
	assert_string_equal(h.target, "/a%20b/c");
	assert_string_equal(h.path, "/a b/c");
	assert_string_equal(h.query, "x=1&y=%2F");
	assert_string_equal(h.host, "example.com:8080");
	assert_int_equal(h.length, 12);
	assert_int_equal(h.minor, 1);
	assert_true(h.keep);
	assert_false(h.expect);
	assert_int_equal(h.n_fields, 6);
	assert_string_equal(h.fields[2].name, "Accept");
	assert_string_equal(h.fields[2].value, "a, b");
	assert_string_equal(http_head_field(&h, "x_key"), "value of it");
	assert_string_equal(http_head_field(&h, "cookie"), "a=1; b=2");
	assert_string_equal(http_head_field(&h, "empty"), "");
	assert_null(http_head_field(&h, "x"));
}

/* The text between "GET " and the version, and the resulting path; NULL: refused. */
TEST(test_targets)
{
	static const struct unit_row row[] = {
		{ "/", "/" },
		{ "//", "/" },
		{ "///a//b", "/a//b" },
		{ "/a/", "/a/" },
		{ "/a.b/..c/...", "/a.b/..c/..." },
		{ "/%e2%82%ac", "/\xe2\x82\xac" },
		{ "/%2fa", "/a" },
		{ "/a?b?c/../d", "/a" },
		{ "/%25", "/%" },
		{ "", NULL },
		{ "*", NULL },
		{ "a", NULL },
		{ "http://h/", NULL },
		{ "h:443", NULL },
		{ "?a", NULL },
		{ "/a#b", NULL },
		{ "/a b", NULL },
		{ "/a\tb", NULL },
		{ "/\xe2\x82\xac", NULL },
		{ "/.", NULL },
		{ "/..", NULL },
		{ "/a/../b", NULL },
		{ "/a/./b", NULL },
		{ "/%2e%2E", NULL },
		{ "/.%2e/a", NULL },
		{ "/a%2f..%2fb", NULL },
		{ "/a/%252e%252e/b", NULL },
		{ "/%2e", NULL },
		{ "/%00", NULL },
		{ "/%0a", NULL },
		{ "/%7f", NULL },
		{ "/%", NULL },
		{ "/%2", NULL },
		{ "/%zz", NULL },
		{ "/%+1", NULL },
		{ "/%c0%ae%c0%ae/", NULL },
		{ "/%ff", NULL },
		{ "/%ed%a0%80", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		_cleanup_(http_head_done) struct http_head h = { 0 };
		char text[256];
		int r;

		(void)snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: h" END, row[i].given);
		r = parse(text, &h);
		if ((r == 0) != (row[i].wanted != NULL))
			print_error("target: %s\n", row[i].given);
		assert_int_equal(r, row[i].wanted ? 0 : 400);
		if (row[i].wanted)
			assert_string_equal(h.path, row[i].wanted);
	}
}

TEST(test_hosts)
{
	static const struct {
		const char *host;
		int status;
	} row[] = {
		{ "h", 0 },
		{ "a.b-c.example", 0 },
		{ "3000-abc_d.sbx.example:49983", 0 },
		{ "127.0.0.1:80", 0 },
		{ "[::1]", 0 },
		{ "[::ffff:1.2.3.4]:1", 0 },
		{ "h:65535", 0 },
		{ "", 400 },
		{ ":80", 400 },
		{ "h:", 400 },
		{ "h:080", 400 },
		{ "h:65536", 400 },
		{ "h:80:80", 400 },
		{ "h:+8", 400 },
		{ "h.", 400 },
		{ ".h", 400 },
		{ "a..b", 400 },
		{ "a b", 400 },
		{ "a,b", 400 },
		{ "a/b", 400 },
		{ "user@h", 400 },
		{ "h%20", 400 },
		{ "\xc3\xa4", 400 },
		{ "::1", 400 },
		{ "[::1", 400 },
		{ "[]", 400 },
		{ "[h]", 400 },
		{ "[::1]80", 400 },
		{ "[::1]:", 400 },
		{ "[fe80::1%25eth0]", 400 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		char text[128];

		(void)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: %s" END, row[i].host);
		if (status_of(text) != row[i].status)
			print_error("host: %s\n", row[i].host);
		assert_int_equal(status_of(text), row[i].status);
	}
}

#define HEAD "POST / HTTP/1.1\r\nHost: h\r\n"

/* Known request smuggling: text that two servers parse differently. All of it is refused. */
TEST(test_smuggling)
{
	static const struct {
		const char *text;
		int status;
	} row[] = {
		{ "\r\nGET / HTTP/1.1\r\nHost: h" END, 400 },
		{ " GET / HTTP/1.1\r\nHost: h" END, 400 },
		{ "GET  / HTTP/1.1\r\nHost: h" END, 400 },
		{ "GET /  HTTP/1.1\r\nHost: h" END, 400 },
		{ "GET / HTTP/1.1 \r\nHost: h" END, 400 },
		{ "GET\t/ HTTP/1.1\r\nHost: h" END, 400 },
		{ "GET /" END, 400 },
		{ "GET / HTTP/1.1\r\nHost: h\n\r\n", 400 },
		{ "GET / HTTP/1.1\nHost: h\n\n", 400 },
		{ "GET / HTTP/1.1\r\nHost: h\r\rX: y" END, 400 },
		{ "GET / HTTP/1.1\r\nHost: h\r X: y" END, 400 },
		{ "GET / http/1.1\r\nHost: h" END, 400 },
		{ "GET / HTTP/1.10\r\nHost: h" END, 400 },
		{ "GET / HTTP/1.2\r\nHost: h" END, 505 },
		{ "GET / HTTP/2.0\r\nHost: h" END, 505 },
		{ "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505 },
		{ "GET / HTTP/0.9\r\nHost: h" END, 505 },
		{ "CONNECT h:443 HTTP/1.1\r\nHost: h" END, 400 },
		{ "OPTIONS * HTTP/1.1\r\nHost: h" END, 400 },
		{ "G(T / HTTP/1.1\r\nHost: h" END, 400 },
		{ "ABCDEFGHIJKLMNOPQRSTUVWXY / HTTP/1.1\r\nHost: h" END, 400 },
		{ "GET / HTTP/1.1" END, 400 },
		{ "GET / HTTP/1.1\r\nX: h" END, 400 },
		{ "GET / HTTP/1.1\r\nHost: h\r\nhost: h" END, 400 },
		{ "GET / HTTP/1.1\r\n Host: h" END, 400 },
		{ HEAD "X: a\r\n b" END, 400 },
		{ HEAD "X: a\r\n\tb" END, 400 },
		{ HEAD "X : a" END, 400 },
		{ HEAD "X\t: a" END, 400 },
		{ HEAD ": a" END, 400 },
		{ HEAD "X" END, 400 },
		{ HEAD "X[]: a" END, 400 },
		{ HEAD "X\xc3\xa4: a" END, 400 },
		{ HEAD "X: a\x0b" END, 400 },
		{ HEAD "X: a\x7f" END, 400 },
		{ HEAD "X: a\x1b[0m" END, 400 },
		{ HEAD "Content-Length: 1\r\nContent-Length: 1" END, 400 },
		{ HEAD "Content-Length: 1\r\nContent-Length: 2" END, 400 },
		{ HEAD "Content-Length: 1, 1" END, 400 },
		{ HEAD "Content-Length: +1" END, 400 },
		{ HEAD "Content-Length: -1" END, 400 },
		{ HEAD "Content-Length: 01" END, 400 },
		{ HEAD "Content-Length: 0x1" END, 400 },
		{ HEAD "Content-Length: 1 1" END, 400 },
		{ HEAD "Content-Length:" END, 400 },
		{ HEAD "Content-Length: 9007199254740993" END, 400 },
		{ HEAD "Content-Length: 18446744073709551617" END, 400 },
		{ HEAD "Content-Length : 1" END, 400 },
		{ HEAD "Content-Length: 1\r\nTransfer-Encoding: chunked" END, 400 },
		{ HEAD "Transfer-Encoding: chunked\r\nContent-Length: 0" END, 400 },
		{ HEAD "Transfer-Encoding: xchunked" END, 400 },
		{ HEAD "Transfer-Encoding: chunked, chunked" END, 400 },
		{ HEAD "Transfer-Encoding: chunked, identity" END, 400 },
		{ HEAD "Transfer-Encoding: identity" END, 400 },
		{ HEAD "Transfer-Encoding: gzip, chunked" END, 400 },
		{ HEAD "Transfer-Encoding: \"chunked\"" END, 400 },
		{ HEAD "Transfer-Encoding: chunked;a=b" END, 400 },
		{ HEAD "Transfer-Encoding:" END, 400 },
		{ HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: x" END, 400 },
		{ HEAD "Transfer-Encoding:\x0b"
		       "chunked" END,
		  400 },
		{ HEAD "Transfer-Encoding\r\n: chunked" END, 400 },
		{ HEAD "Transfer_Encoding: chunked\r\nX: y\r\nx: z" END, 400 },
		{ "POST / HTTP/1.0\r\nTransfer-Encoding: chunked" END, 400 },
		{ HEAD "X-API-Key: a\r\nx-api-key: b" END, 400 },
		{ HEAD "Authorization: a\r\nAuthorization: a" END, 400 },
		{ HEAD "X-Access-Token: a\r\nX-Access-Token: a" END, 400 },
		{ HEAD "Content-Type: a\r\nContent-Type: a" END, 400 },
		{ HEAD "E2b-Sandbox-Id: a\r\nE2b-Sandbox-Id: b" END, 400 },
		{ HEAD "E2b-Sandbox-Port: 1\r\nE2b-Sandbox-Port: 2" END, 400 },
		{ HEAD "Expect: 200-ok" END, 417 },
		/* similar but valid */
		{ HEAD "Content-Length: 0" END, 0 },
		{ HEAD "Content-Length: 9007199254740992" END, 0 },
		{ HEAD "Content-Length:1\t " END, 0 },
		{ HEAD "Transfer-Encoding: Chunked" END, 0 },
		{ HEAD "Transfer_Encoding: chunked" END, 0 },
		{ HEAD "Connection: a\r\nConnection: close, b" END, 0 },
		{ HEAD "X: \xc3\xa4" END, 0 },
		{ HEAD "X: a\tb" END, 0 },
		{ "GET / HTTP/1.0" END, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		if (status_of(row[i].text) != row[i].status)
			print_error("%d for: %s\n", status_of(row[i].text), row[i].text);
		assert_int_equal(status_of(row[i].text), row[i].status);
	}
}

TEST(test_nul)
{
	static const char text[] = "GET / HTTP/1.1\r\nHost: h\r\nX: a\0b" END;
	_cleanup_(http_head_done) struct http_head h = { 0 };

	assert_int_equal(parse_n(text, sizeof(text) - 1, &h), 400);
	assert_int_equal(parse_n("GET /\0 HTTP/1.1\r\nHost: h" END, 28, &h), 400);
}

TEST(test_connection)
{
	static const struct {
		const char *text;
		bool keep, expect;
	} row[] = {
		{ HEAD "\r\n", true, false },
		{ HEAD "Connection: close" END, false, false },
		{ HEAD "Connection: x,CLOSE\t,y" END, false, false },
		{ HEAD "Connection: closer" END, true, false },
		{ HEAD "Connection: Upgrade\r\nUpgrade: websocket" END, true, false },
		{ HEAD "Content-Length: 1\r\nExpect: 100-Continue" END, true, true },
		{ HEAD "Content-Length: 0\r\nExpect: 100-continue" END, true, false },
		{ "GET / HTTP/1.0\r\nConnection: keep-alive" END, false, false },
		{ "PUT / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue" END, false, false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		_cleanup_(http_head_done) struct http_head h = { 0 };

		assert_int_equal(parse(row[i].text, &h), 0);
		assert_int_equal(h.keep, row[i].keep);
		assert_int_equal(h.expect, row[i].expect);
	}
}

/* "GET /" + n bytes, and `fields` fields of `width` bytes each. */
static int sized(size_t target, size_t fields, size_t width)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1 << 20);

	(void)buf_puts(&b, "GET /");
	for (size_t i = 1; i < target; i++)
		(void)buf_putc(&b, 'a');
	(void)buf_puts(&b, " HTTP/1.1\r\nHost: h\r\n");
	for (size_t i = 0; i < fields; i++) {
		size_t end = b.len + width;

		(void)buf_printf(&b, "X%zu: ", i);
		while (b.len < end - 2)
			(void)buf_putc(&b, 'v');
		(void)buf_puts(&b, "\r\n");
	}
	(void)buf_puts(&b, "\r\n");
	assert_int_equal(b.err, 0);
	return status_of(buf_text(&b));
}

TEST(test_limits)
{
	assert_int_equal(sized(HTTP_SERVER_TARGET_MAX, 0, 0), 0);
	assert_int_equal(sized(HTTP_SERVER_TARGET_MAX + 1, 0, 0), 414);
	assert_int_equal(sized(HTTP_SERVER_HEAD_MAX, 0, 0), 414);
	assert_int_equal(sized(1, HTTP_SERVER_FIELDS_MAX - 1, 20), 0);
	assert_int_equal(sized(1, HTTP_SERVER_FIELDS_MAX, 20), 431);
	/* "GET / HTTP/1.1", "Host: h" and the empty line are 27 bytes. */
	assert_int_equal(sized(1, 1, HTTP_SERVER_HEAD_MAX - 27), 0);
	assert_int_equal(sized(1, 1, HTTP_SERVER_HEAD_MAX - 26), 431);
}

/* Byte by byte; a malformed head is refused at its first bad byte. */
TEST(test_scan)
{
	static const char good[] = "GET / HTTP/1.1\r\nHost: h\r\n\r\nbody";
	struct http_scan s = { 0 };
	struct http_refusal why = { 0 };
	size_t head = strlen(good) - 4;

	for (size_t n = 0; n < head; n++)
		assert_int_equal(http_head_scan(&s, good, n, &why), 0);
	assert_int_equal(http_head_scan(&s, good, head + 2, &why), 1);
	assert_int_equal(s.pos, head);
	s = (struct http_scan){ 0 };
	assert_int_equal(http_head_scan(&s, "GET /\n", 6, &why), -EBADMSG);
	s = (struct http_scan){ 0 };
	assert_int_equal(http_head_scan(&s, "\x16\x03\x01", 3, &why), -EBADMSG);
}

/* The body, fed in pieces of `step`; NULL if it is refused or incomplete. */
static const char *unchunk(const char *text, size_t step, char *out, size_t *ret_used)
{
	struct http_chunk c = { 0 };
	size_t n = strlen(text), at = 0, len = 0;
	const char *piece;

	while (at < n && c.state < HTTP_CHUNK_DONE) {
		size_t part = MIN(step, n - at), k;

		for (size_t used = 0; used < part && c.state < HTTP_CHUNK_DONE;) {
			size_t took =
				http_chunk_feed(&c, text + at + used, part - used, &piece, &k);

			assert_true(took > 0);
			memcpy(out + len, piece, k);
			len += k;
			used += took;
			*ret_used = at + used;
		}
		at += part;
	}
	out[len] = '\0';
	return c.state == HTTP_CHUNK_DONE ? out : NULL;
}

TEST(test_chunks)
{
	static const struct {
		const char *text, *body;
		size_t used;
	} row[] = {
		{ "0\r\n\r\n", "", 5 },
		{ "0\r\n\r\nGET /", "", 5 },
		{ "1\r\na\r\n0\r\n\r\n", "a", 11 },
		{ "A\r\n0123456789\r\n2\r\n\r\n\r\n00\r\n\r\n", "0123456789\r\n", 28 },
		{ "0000000000001\r\na\r\n0\r\n\r\n", "a", 23 },
		{ "00000000000001\r\na\r\n0\r\n\r\n", NULL, 0 },
		{ "fffffffffffffffff\r\n", NULL, 0 },
		{ "1\na\n0\n\n", NULL, 0 },
		{ "1\r\na0\r\n\r\n", NULL, 0 },
		{ "1\r\nab\r\n0\r\n\r\n", NULL, 0 },
		{ "1\r\na\n0\r\n\r\n", NULL, 0 },
		{ "\r\n", NULL, 0 },
		{ "\r\n\r\n", NULL, 0 },
		{ " 1\r\na\r\n0\r\n\r\n", NULL, 0 },
		{ "1 \r\na\r\n0\r\n\r\n", NULL, 0 },
		{ "0x1\r\na\r\n0\r\n\r\n", NULL, 0 },
		{ "+1\r\na\r\n0\r\n\r\n", NULL, 0 },
		{ "-1\r\na\r\n0\r\n\r\n", NULL, 0 },
		{ "1;ext=1\r\na\r\n0\r\n\r\n", NULL, 0 },
		{ "1\ta\r\n", NULL, 0 },
		{ "1\r\r\na", NULL, 0 },
		{ "g\r\n", NULL, 0 },
		{ "0\r\nTrailer: x\r\n\r\n", NULL, 0 },
		{ "0\r\n\n", NULL, 0 },
		{ "0\r\n\r", NULL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++)
		for (size_t step = 1; step < 30; step++) {
			char out[64];
			size_t used = 0;
			const char *body = unchunk(row[i].text, step, out, &used);

			if (!row[i].body != !body)
				print_error("chunks: %s\n", row[i].text);
			assert_int_equal(body == NULL, row[i].body == NULL);
			if (!body)
				continue;
			assert_string_equal(body, row[i].body);
			assert_int_equal(used, row[i].used);
		}
}

TEST(test_query)
{
	static const struct {
		const char *query, *value;
		int result;
	} row[] = {
		{ "", NULL, -ENOENT },
		{ "b=1", NULL, -ENOENT },
		{ "aa=1&a=2", "2", 0 },
		{ "a=1&a=2", "1", 0 },
		{ "a", "", 0 },
		{ "a=", "", 0 },
		{ "&&a=x=y&", "x=y", 0 },
		{ "%61=x+y%2Bz", "x y+z", 0 },
		{ "a=%e2%82%ac", "\xe2\x82\xac", 0 },
		{ "a=%", NULL, -EINVAL },
		{ "a=%00", NULL, -EINVAL },
		{ "a=%ff", NULL, -EINVAL },
		{ "%zz=1&a=1", NULL, -EINVAL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		struct exchange x = { .query = row[i].query };
		_cleanup_free_ char *value = NULL;

		assert_int_equal(http_query(&x, "a", &value), row[i].result);
		if (row[i].value)
			assert_string_equal(value, row[i].value);
	}
}

static int whole_parse(void)
{
	static const char text[] = "GET /a?b=c HTTP/1.1\r\nHost: h" END;
	_cleanup_(http_head_done) struct http_head h = { 0 };
	_cleanup_free_ char *value = NULL;
	struct http_refusal why;
	struct exchange x;
	int r = http_head_parse(text, sizeof(text) - 1, &h, &why);

	if (r < 0)
		return r;
	x.query = h.query;
	return http_query(&x, "b", &value);
}

TEST(test_no_memory)
{
	FAIL_SWEEP(whole_parse());
}
