/* SPDX-License-Identifier: Apache-2.0 */
/* The lexer for HTTP heads: above all, input that no caller can let pass. */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "base/util.h"
#include "http-lex/http-lex.h"

#define TEXT(s) ((struct http_text){ s, sizeof(s) - 1 })

static void assert_text(struct http_text t, const char *want)
{
	assert_int_equal(t.n, strlen(want));
	assert_memory_equal(t.s, want, t.n);
}

static void classes(void **state)
{
	static const char marks[] = "!#$%&'*+-.^_`|~";

	for (int c = 0; c < 256; c++) {
		const char s[] = { (char)c };
		bool alnum =
			(c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');

		assert_int_equal(http_token_len(s, 1),
				 alnum || memchr(marks, c, sizeof(marks) - 1));
		assert_int_equal(http_value_valid(s, 1), c == '\t' || (c >= ' ' && c != 0x7f));
		assert_int_equal(http_target_valid((struct http_text){ s, 1 }),
				 c > ' ' && c < 0x7f);
		assert_int_equal(http_is_control(s[0]), c < ' ' || c == 0x7f);
	}
	assert_int_equal(http_token_len("a:b", 3), 1);
	assert_int_equal(http_token_len("abc", 2), 2);
	assert_true(http_text_is(TEXT("Host"), "hOST"));
	assert_false(http_text_is(TEXT("Host"), "hosts"));
	assert_false(http_text_is(TEXT("Hosts"), "host"));
}

/* Scans all bytes at once and one by one, which must agree; *ret_pos is the end of the scan. */
static enum http_scanned scan(const char *data, size_t n, size_t *ret_pos)
{
	_cleanup_free_ char *copy = unit_copy(data, n);
	struct http_scan whole = { 0 }, grown = { 0 }, bytes = { 0 };
	enum http_scanned r = http_scan_head(&whole, copy, n), k = HTTP_SCAN_MORE;

	for (size_t i = 1; i <= n && k == HTTP_SCAN_MORE; i++)
		k = http_scan_head(&grown, copy, i);
	assert_int_equal(k, r);
	assert_true(grown.pos == whole.pos && grown.lines == whole.lines);
	for (k = HTTP_SCAN_MORE; bytes.pos < n && (k == HTTP_SCAN_MORE || k == HTTP_SCAN_LINE);)
		k = http_scan_byte(&bytes, copy[bytes.pos]);
	assert_int_equal(k == HTTP_SCAN_LINE ? HTTP_SCAN_MORE : k, r);
	assert_true(bytes.pos == whole.pos && bytes.lines == whole.lines);
	*ret_pos = whole.pos;
	return r;
}

static void ends_of_heads(void **state)
{
	static const struct {
		struct http_text head;
		enum http_scanned result;
		size_t pos;
	} row[] = {
		{ TEXT("A\r\nB\r\n\r\nrest"), HTTP_SCAN_HEAD, 8 },
		{ TEXT("\r\n\n"), HTTP_SCAN_HEAD, 2 }, /* an empty head is the caller's decision */
		{ TEXT("A\xc3\xa4\t \xff\r\n\r\n"), HTTP_SCAN_HEAD, 10 },
		{ TEXT(""), HTTP_SCAN_MORE, 0 },
		{ TEXT("A\r\nB\r\n\r"), HTTP_SCAN_MORE, 7 },
		/* bare LF */
		{ TEXT("\n"), HTTP_SCAN_BAD_END, 0 },
		{ TEXT("A\nB\r\n\r\n"), HTTP_SCAN_BAD_END, 1 },
		{ TEXT("A\r\nB\n\r\n"), HTTP_SCAN_BAD_END, 4 },
		{ TEXT("A\r\n\n"), HTTP_SCAN_BAD_END, 3 },
		/* bare CR */
		{ TEXT("A\rB\r\n\r\n"), HTTP_SCAN_BAD_END, 2 },
		{ TEXT("A\r\r\n\r\n"), HTTP_SCAN_BAD_END, 2 },
		{ TEXT("A\r\n\rB"), HTTP_SCAN_BAD_END, 4 },
		{ TEXT("A\r\0\n"), HTTP_SCAN_BAD_END, 2 },
		/* control characters */
		{ TEXT("A\0B\r\n\r\n"), HTTP_SCAN_CONTROL, 1 },
		{ TEXT("A\r\n\0\r\n"), HTTP_SCAN_CONTROL, 3 },
		{ TEXT("A: \x0b\r\n\r\n"), HTTP_SCAN_CONTROL, 3 },
		{ TEXT("A: \x1b[0m\r\n\r\n"), HTTP_SCAN_CONTROL, 3 },
		{ TEXT("A: \x7f\r\n\r\n"), HTTP_SCAN_CONTROL, 3 },
		{ TEXT("\x16\x03\x01"), HTTP_SCAN_CONTROL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		size_t pos = 0;

		assert_int_equal(scan(row[i].head.s, row[i].head.n, &pos), row[i].result);
		assert_int_equal(pos, row[i].pos);
	}
}

static void lines(void **state)
{
	static const char head[] = "first\r\n second \r\n\r\nbody";
	struct http_scan s = { 0 };
	struct http_text line = { 0 };

	assert_int_equal(http_scan_line(&s, head, 3, &line), HTTP_SCAN_MORE);
	assert_null(line.s);
	assert_int_equal(http_scan_line(&s, head, sizeof(head) - 1, &line), HTTP_SCAN_LINE);
	assert_text(line, "first");
	assert_int_equal(http_scan_line(&s, head, sizeof(head) - 1, &line), HTTP_SCAN_LINE);
	assert_text(line, " second ");
	assert_int_equal(http_scan_line(&s, head, sizeof(head) - 1, &line), HTTP_SCAN_HEAD);
	assert_text(line, "");
	assert_int_equal(s.lines, 2);
	assert_int_equal(s.pos, sizeof(head) - 1 - 4);
}

static void request_lines(void **state)
{
	static const struct http_text bad[] = {
		TEXT(""),
		TEXT("GET"),
		TEXT("GET "),
		TEXT("GET /"),
		TEXT("GET / "),
		TEXT("GET / HTTP/1"),
		TEXT("GET / HTTP/1.1 "),
		TEXT("GET / HTTP/1.10"),
		TEXT("GET / http/1.1"),
		TEXT("GET / HTTP/1,1"),
		TEXT("GET / HTTP/a.1"),
		TEXT("GET  / HTTP/1.1"),
		TEXT("GET /  HTTP/1.1"),
		TEXT("GET /a b HTTP/1.1"),
		TEXT(" GET / HTTP/1.1"),
		TEXT("GET\t/ HTTP/1.1"),
		TEXT("GET /\tHTTP/1.1"),
		TEXT("G(T / HTTP/1.1"),
		TEXT("G\0T / HTTP/1.1"),
		TEXT("ABCDEFGHIJKLMNOPQRSTUVWXY / HTTP/1.1"),
	};
	struct http_request_line l;

	assert_int_equal(http_request_line_parse(TEXT("GET /a?b HTTP/1.0"), &l), 0);
	assert_text(l.method, "GET");
	assert_text(l.target, "/a?b");
	assert_int_equal(l.major, '1');
	assert_int_equal(l.minor, '0');
	assert_int_equal(http_request_line_parse(TEXT("PRI * HTTP/2.0"), &l), 0);
	assert_int_equal(l.major, '2');
	assert_int_equal(http_request_line_parse(TEXT("ABCDEFGHIJKLMNOPQRSTUVWX  HTTP/1.1"), &l),
			 0);
	assert_text(l.target, "");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_free_ char *copy = unit_copy(bad[i].s, bad[i].n);

		assert_int_equal(http_request_line_parse((struct http_text){ copy, bad[i].n }, &l),
				 -EBADMSG);
	}
}

static void statuses(void **state)
{
	static const struct {
		const char *head;
		int status;
	} row[] = {
		{ "HTTP/1.1 200 OK\r\n", 200 },
		{ "HTTP/1.0 599 ", 599 },
		{ "HTTP/1.1 100\r\n", 100 },
		{ "HTTP/1.1 200", 0 },
		{ "", 0 },
		{ "HTTP/1.1 200x", -EBADMSG },
		{ "HTTP/1.1 200\n", -EBADMSG },
		{ "HTTP/1.1 2000 OK", -EBADMSG },
		{ "HTTP/1.1 20 OK", -EBADMSG },
		{ "HTTP/1.1 099 OK", -EBADMSG },
		{ "HTTP/1.1 600 OK", -EBADMSG },
		{ "HTTP/1.1 +20 OK", -EBADMSG },
		{ "HTTP/1.1  200 OK", -EBADMSG },
		{ "HTTP/1.1\t200 OK", -EBADMSG },
		{ "HTTP/1.2 200 OK", -EBADMSG },
		{ "HTTP/2 200", -EBADMSG },
		{ "http/1.1 200 OK", -EBADMSG },
		{ " HTTP/1.1 200 OK", -EBADMSG },
		{ "\r\nHTTP/1.1 200 OK", -EBADMSG },
		{ "HTTP/1.1\r\n", -EBADMSG },
		{ "SSH-", -EBADMSG },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		size_t n = strlen(row[i].head);
		int r = 0;

		/* Every prefix: an error is found at the first bad byte. */
		for (size_t k = 0; k <= n && r == 0; k++) {
			_cleanup_free_ char *copy = unit_copy(row[i].head, k);

			r = http_status_parse(copy, k);
		}
		assert_int_equal(r, row[i].status);
	}
	assert_int_equal(http_status_parse("HTTP/1.1 2\0000 ", 13), -EBADMSG);
}

static void headers(void **state)
{
	static const struct {
		struct http_text line;
		const char *name, *value; /* NULL: rejected */
	} row[] = {
		{ TEXT("A:b"), "A", "b" },
		{ TEXT("Host:\t h:80 \t"), "Host", "h:80" },
		{ TEXT("a-b_c:"), "a-b_c", "" },
		{ TEXT("A: \t "), "A", "" },
		{ TEXT("A: b: c\td"), "A", "b: c\td" },
		{ TEXT("A: \xc3\xa4"), "A", "\xc3\xa4" },
		{ TEXT("Content-Length: 1, 1"), "Content-Length", "1, 1" }, /* not a number */
		{ TEXT(""), NULL, NULL },
		{ TEXT("A"), NULL, NULL },
		{ TEXT(":"), NULL, NULL },
		{ TEXT(": b"), NULL, NULL },
		{ TEXT("A : b"), NULL, NULL },
		{ TEXT("A\t: b"), NULL, NULL },
		{ TEXT("Transfer-Encoding : chunked"), NULL, NULL },
		{ TEXT(" A: b"), NULL, NULL }, /* folded */
		{ TEXT("\tb"), NULL, NULL },
		{ TEXT("A b: c"), NULL, NULL },
		{ TEXT("A[]: b"), NULL, NULL },
		{ TEXT("A\0: b"), NULL, NULL },
		{ TEXT("A\xc3\xa4: b"), NULL, NULL },
		{ TEXT("\"A\": b"), NULL, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(row); i++) {
		_cleanup_free_ char *copy = unit_copy(row[i].line.s, row[i].line.n);
		struct http_header h;
		int r = http_header_parse((struct http_text){ copy, row[i].line.n }, &h);

		assert_int_equal(r, row[i].name ? 0 : -EBADMSG);
		if (!row[i].name)
			continue;
		assert_text(h.name, row[i].name);
		assert_text(h.value, row[i].value);
	}
}

/* Two fields of one name, and two forms of a length, stay two fields: the caller rejects them. */
static void nothing_is_merged(void **state)
{
	static const char head[] = "Content-Length: 5\r\ncontent-length: 6\r\n"
				   "Transfer-Encoding: chunked\r\n\r\n";
	static const char *const values[] = { "5", "6", "chunked" };
	struct http_scan s = { 0 };
	struct http_text line;
	struct http_header h;
	size_t n = 0;

	while (http_scan_line(&s, head, sizeof(head) - 1, &line) == HTTP_SCAN_LINE) {
		assert_true(n < ARRAY_SIZE(values));
		assert_int_equal(http_header_parse(line, &h), 0);
		assert_int_equal(http_text_is(h.name, "content-length"), n < 2);
		assert_text(h.value, values[n++]);
	}
	assert_int_equal(n, ARRAY_SIZE(values));
	assert_int_equal(s.pos, sizeof(head) - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(classes),
		cmocka_unit_test(ends_of_heads),
		cmocka_unit_test(lines),
		cmocka_unit_test(request_lines),
		cmocka_unit_test(statuses),
		cmocka_unit_test(headers),
		cmocka_unit_test(nothing_is_merged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
