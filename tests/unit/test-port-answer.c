/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/util.h"
#include "envd/port-answer.h"

static struct port_answer answer;
static const char *why;
static char text[4096];

static int parse(const char *s)
{
	(void)snprintf(text, sizeof(text), "%s", s);
	why = NULL;
	answer = (struct port_answer){ 0 };
	return port_answer_parse(&(struct http_scan){ 0 }, text, strlen(text), &answer, &why);
}

TEST(an_answer)
{
	const char *s = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n"
			"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nConnection: keep-alive\r\n\r\nhello";

	assert_int_equal(parse(s), (int)(strlen(s) - 5));
	assert_int_equal(answer.status, 200);
	assert_int_equal(answer.length, 5);
	assert_int_equal(answer.n_fields, 3);
	assert_string_equal(answer.fields[0].name, "Content-Type");
	assert_string_equal(answer.fields[0].value, "text/plain");
	assert_string_equal(answer.fields[2].value, "b=2");
	assert_false(answer.bodiless);
}

TEST(how_long_it_is)
{
	assert_true(parse("HTTP/1.1 200 OK\r\n\r\n") > 0);
	assert_int_equal(answer.length, -2);
	assert_true(parse("HTTP/1.0 200\r\nTransfer-Encoding: Chunked\r\n\r\n") > 0);
	assert_int_equal(answer.length, -1);
	assert_true(parse("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n") > 0);
	assert_true(answer.bodiless);
	assert_true(parse("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n") > 0);
	assert_true(answer.bodiless);
	assert_int_equal(answer.n_fields, 0);
}

TEST(too_few_bytes)
{
	const char *s = "HTTP/1.1 200 OK\r\nA: b\r\n\r\n";

	for (size_t n = 0; n < strlen(s); n++) {
		(void)snprintf(text, sizeof(text), "%s", s);
		assert_int_equal(
			port_answer_parse(&(struct http_scan){ 0 }, text, n, &answer, &why), 0);
	}
}

TEST(what_is_refused)
{
	static const char *const wrong[] = {
		"HTTP/2 200 OK\r\n\r\n",
		"HTTP/1.1 20 OK\r\n\r\n",
		"HTTP/1.1 2000 OK\r\n\r\n",
		"HTTP/1.1 600 No\r\n\r\n",
		"HTTP/1.1 099 No\r\n\r\n",
		"http/1.1 200 OK\r\n\r\n",
		"SSH-2.0-x\r\n\r\n",
		"\r\n\r\n",
		"HTTP/1.1 200 OK\nA: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\nSet-Cookie: x\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\rC: d\r\n\r\n",
		"HTTP/1.1 200 OK\r\n A: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA\r\n\r\n",
		"HTTP/1.1 200 OK\r\n: b\r\n\r\n",
		"HTTP/1.1 200 OK\r\nA: b\x01\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_equal(parse(wrong[i]), -EBADMSG);
		assert_non_null(why);
	}
}

TEST(limits)
{
	static char big[PORT_ANSWER_MAX + 16];
	size_t n = 0;

	memset(big, 'a', sizeof(big));
	memcpy(big, "HTTP/1.1 200 OK\r\n", 17);
	assert_int_equal(port_answer_parse(&(struct http_scan){ 0 }, big, PORT_ANSWER_MAX - 1,
					   &answer, &why),
			 0);
	assert_int_equal(
		port_answer_parse(&(struct http_scan){ 0 }, big, sizeof(big), &answer, &why),
		-EBADMSG);
	n = (size_t)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\n");
	for (int i = 0; i <= PORT_ANSWER_FIELDS; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "a: b\r\n");
	(void)snprintf(text + n, sizeof(text) - n, "\r\n");
	assert_int_equal(port_answer_parse(&(struct http_scan){ 0 }, text, n + 2, &answer, &why),
			 -EBADMSG);
	memcpy(text, "HTTP/1.1 200 OK\r\nA: \0b\r\n\r\n", 27);
	assert_int_equal(port_answer_parse(&(struct http_scan){ 0 }, text, 26, &answer, &why),
			 -EBADMSG);
}
