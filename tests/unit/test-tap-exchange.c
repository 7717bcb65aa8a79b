/* SPDX-License-Identifier: Apache-2.0 */
/* hutch-tap: requests and responses as they are written anew, rules, refusals, framing. */
#include "unit.h"

#include "tap-world.h"

#define HOST	 "Host: " WORLD_HOST "\r\n"
#define GET	 "GET / HTTP/1.1\r\n" HOST
#define POST	 "POST /x HTTP/1.1\r\n" HOST
#define END	 "\r\n"
#define OK	 "HTTP/1.1 200 OK\r\n"
#define OK_HELLO OK "Content-Length: 5\r\n\r\nhello"

static int setup(void **state)
{
	struct world *w = malloc(sizeof(*w));

	world_init(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	world_done(*state);
	free(*state);
	return 0;
}

#define TEST_WORLD(name) TEST_WITH(name, setup, teardown)

/* The same output for every split into pieces. */
static void check(struct world *w, const char *client, const char *const *server,
		  const char *to_server, const char *to_client)
{
	for (uint32_t seed = 0; seed < 12; seed++) {
		w->seed = seed;
		world_begin(w);
		world_talk(w, client, server);
		world_unchunk(&w->to_server);
		world_unchunk(&w->to_client);
		if (to_server)
			assert_string_equal(buf_text(&w->to_server), to_server);
		if (to_client)
			assert_string_equal(buf_text(&w->to_client), to_client);
	}
}

#define SERVER(...) ((const char *const[]){ __VA_ARGS__, NULL })

static const struct tap_request *last(const struct world *w)
{
	assert_true(w->n_records > 0);
	return &w->record[w->n_records - 1];
}

/* ---- passing ---- */

TEST_WORLD(test_get)
{
	struct world *w = *state;

	check(w, "GET /a%7eb?q=%7e HTTP/1.1\r\n" HOST "Accept: */*\r\nTE: trailers\r\n" END,
	      SERVER(OK "Content-Length: 5\r\nServer: x\r\nKeep-Alive: timeout=5\r\n\r\nhello"),
	      "GET /a~b?q=%7e HTTP/1.1\r\n" HOST "Accept: */*\r\n" END,
	      OK "Server: x\r\nContent-Length: 5\r\n\r\nhello");
	assert_int_equal(w->n_records, 1);
	assert_int_equal(last(w)->result, TAP_DONE);
	assert_int_equal(last(w)->status, 200);
	assert_int_equal(last(w)->bytes_in, 5);
	assert_int_equal(last(w)->rule, -1);
	assert_int_equal(last(w)->secret, -1);
	assert_string_equal(last(w)->method, "GET");
	assert_string_equal(last(w)->path, "/a~b");
	assert_true(exchange_idle(w->x));
	assert_false(exchange_over(w->x));
}

TEST_WORLD(test_post)
{
	struct world *w = *state;

	check(w, POST "Content-Length: 3\r\n" END "abc", SERVER("HTTP/1.1 204 No Content\r\n\r\n"),
	      POST "Content-Length: 3\r\n" END "abc", "HTTP/1.1 204 No Content\r\n\r\n");
	assert_int_equal(last(w)->bytes_out, 3);
	check(w,
	      POST "Transfer-Encoding: Chunked\r\n" END "3\r\nabc\r\n0a\r\n0123456789\r\n0\r\n\r\n",
	      SERVER(OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: "
			"1\r\n\r\n"),
	      POST "Transfer-Encoding: chunked\r\n" END "abc0123456789",
	      OK "Transfer-Encoding: chunked\r\n\r\nhello!");
	assert_int_equal(last(w)->bytes_out, 13);
	assert_int_equal(last(w)->bytes_in, 6);
	assert_true(exchange_idle(w->x));
}

/* Requests ahead of a response wait for it. */
TEST_WORLD(test_pipeline)
{
	struct world *w = *state;

	check(w, GET END "HEAD /b HTTP/1.1\r\n" HOST END GET END,
	      SERVER(OK_HELLO, OK "Content-Length: 9\r\n\r\n", OK "Content-Length: 2\r\n\r\nhi"),
	      GET END "HEAD /b HTTP/1.1\r\n" HOST END GET END,
	      OK_HELLO OK "Content-Length: 9\r\n\r\n" OK "Content-Length: 2\r\n\r\nhi");
	assert_int_equal(w->n_records, 3);
}

/* Clients of HTTP/1.0 get no chunks and no 1xx, and the connection closes. */
TEST_WORLD(test_old_client)
{
	struct world *w = *state;

	check(w, "GET / HTTP/1.0\r\n" HOST "Connection: keep-alive\r\n" END,
	      SERVER("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" OK
		     "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
	      "GET / HTTP/1.1\r\n" HOST "Connection: close\r\n" END,
	      OK "Connection: close\r\n\r\nhello");
	assert_true(exchange_over(w->x));
	assert_int_equal(last(w)->result, TAP_DONE);
}

TEST_WORLD(test_old_server)
{
	struct world *w = *state;

	check(w, GET END, SERVER("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi"), GET END,
	      OK "Content-Length: 2\r\nConnection: close\r\n\r\nhi");
	assert_true(exchange_over(w->x));
	check(w, GET END,
	      SERVER("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nhi"),
	      GET END, OK "Content-Length: 2\r\n\r\nhi");
	assert_true(exchange_idle(w->x));
}

TEST_WORLD(test_until_close)
{
	struct world *w = *state;

	check(w, GET END, SERVER(OK "\r\nhello"), GET END, OK "Connection: close\r\n\r\nhello");
	assert_int_equal(w->n_records, 0);
	exchange_server_eof(w->x);
	assert_int_equal(last(w)->result, TAP_DONE);
	assert_true(exchange_over(w->x));
}

TEST_WORLD(test_without_body)
{
	static const struct unit_row rows[] = {
		{ "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
		  "HTTP/1.1 204 No Content\r\n\r\n" },
		{ "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
		  "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n" },
		{ "HTTP/1.1 304\r\n\r\n", "HTTP/1.1 304 \r\n\r\n" },
		{ OK "Content-Length: 0\r\n\r\n", OK "Content-Length: 0\r\n\r\n" },
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		check(w, GET END, SERVER(rows[i].given), GET END, rows[i].wanted);
		assert_true(exchange_idle(w->x));
	}
	check(w, "HEAD / HTTP/1.1\r\n" HOST END, SERVER(OK "Transfer-Encoding: chunked\r\n\r\n"),
	      NULL, OK "\r\n");
	assert_true(exchange_idle(w->x));
}

TEST_WORLD(test_continue)
{
	struct world *w = *state;
	const char *head = POST "Content-Length: 3\r\nExpect: 100-continue\r\n" END;
	const char *sent = POST "Content-Length: 3\r\nExpect: 100-continue\r\n" END;

	w->seed = 0;
	world_begin(w);
	world_talk(w, head, SERVER("HTTP/1.1 100 Continue\r\n\r\n"));
	assert_string_equal(buf_text(&w->to_server), sent);
	assert_string_equal(buf_text(&w->to_client), "HTTP/1.1 100 Continue\r\n\r\n");
	world_talk(w, "abc", SERVER(OK_HELLO));
	assert_true(exchange_idle(w->x));

	/* A final response without the body ends the connection. */
	check(w, head, SERVER(OK_HELLO), sent,
	      OK "Content-Length: 5\r\nConnection: close\r\n\r\nhello");
	assert_true(exchange_over(w->x));
	assert_int_equal(last(w)->result, TAP_DONE);
	/* Without a body to wait for, the field means nothing. */
	check(w, GET "Expect: 100-continue\r\n" END, NULL, GET END, "");
}

/* A response may stream while the request does. */
TEST_WORLD(test_early_response)
{
	struct world *w = *state;

	w->seed = 0;
	world_begin(w);
	world_talk(w, POST "Content-Length: 6\r\n" END "abc",
		   SERVER(OK "Content-Length: 10\r\n\r\nhello"));
	world_talk(w, "def", SERVER("world"));
	assert_string_equal(buf_text(&w->to_server), POST "Content-Length: 6\r\n" END "abcdef");
	assert_string_equal(buf_text(&w->to_client),
			    OK "Content-Length: 10\r\nConnection: close\r\n\r\nhelloworld");
	assert_true(exchange_over(w->x));
}

TEST_WORLD(test_hop_fields)
{
	struct world *w = *state;

	check(w,
	      GET "Connection: close, x-drop, Authorization, HOST, cookie\r\nX-Drop: "
		  "1\r\nKeep-Alive: 1\r\n"
		  "Proxy-Connection: x\r\nProxy-Authorization: Basic eDp5\r\nTrailer: x\r\n"
		  "TE: gzip\r\nCookie: a\r\nAuthorization: b\r\nX-Keep: c\r\n" END,
	      SERVER(OK "Connection: X-A\r\nX-A: 1\r\nAlt-Svc: h3=\":443\"\r\n"
			"Proxy-Authenticate: x\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n"
			"Content-Length: 0\r\n\r\n"),
	      GET "Cookie: a\r\nAuthorization: b\r\nX-Keep: c\r\nConnection: close\r\n" END,
	      OK
	      "Set-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
	assert_true(exchange_over(w->x));
}

TEST_WORLD(test_targets)
{
	static const struct unit_row rows[] = {
		{ "GET https://api.example.com/a?b HTTP/1.1\r\n" HOST END,
		  "GET /a?b HTTP/1.1\r\n" HOST END },
		{ "GET HTTPS://API.example.com:443?b HTTP/1.1\r\n" HOST END,
		  "GET /?b HTTP/1.1\r\n" HOST END },
		{ "OPTIONS * HTTP/1.1\r\n" HOST END, "OPTIONS * HTTP/1.1\r\n" HOST END },
		{ "GET /%2fx%2Fy?%%% HTTP/1.1\r\nhost: API.EXAMPLE.COM:443\r\n" END, NULL },
		{ "GET /a%2fb?? HTTP/1.1\r\nhost: API.EXAMPLE.COM:443\r\n" END,
		  "GET /a%2Fb?? HTTP/1.1\r\nhost: api.example.com\r\n" END },
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		check(w, rows[i].given, NULL, rows[i].wanted ? rows[i].wanted : "", NULL);
	w->conf.port = 8443;
	check(w, "GET / HTTP/1.1\r\nHost: api.example.com:8443\r\n" END, NULL,
	      "GET / HTTP/1.1\r\nHost: api.example.com:8443\r\n" END, "");
	check(w, GET END, NULL, "", NULL);
	assert_int_equal(last(w)->result, TAP_BAD_REQUEST);
	w->conf.port = 80;
	w->conf.tls = false;
	check(w, "GET http://api.example.com/ HTTP/1.1\r\n" HOST END, NULL, GET END, "");
}

/* An address: no rule and no secret applies. */
TEST_WORLD(test_address)
{
	struct world *w = *state;

	w->conf.host = NULL;
	(void)world_secret(w, "KEY", SECRET_BEARER, "value-of-the-key");
	check(w, "GET /a//b;c/../d HTTP/1.1\r\nHost: 192.0.2.1:80\r\n" END, NULL,
	      "GET /a//b;c/../d HTTP/1.1\r\nHost: 192.0.2.1:80\r\n" END, "");
	check(w, "GET / HTTP/1.1\r\nHost: a,b\r\n" END, NULL, "", NULL);
	check(w, "GET http://192.0.2.1/ HTTP/1.1\r\nHost: 192.0.2.1\r\n" END, NULL, "", NULL);
}

/* ---- refusals ---- */

static bool begins(const struct buf *b, const char *prefix)
{
	return str_has_prefix(buf_text(b), prefix);
}

TEST_WORLD(test_bad_requests)
{
	static const char *const rows[] = {
		"\r\n" GET END,
		"GET / HTTP/1.1\n" HOST END,
		GET "X: a\n" END,
		GET "X: a\rb\r\n" END,
		GET "X: a\r\n b\r\n" END,
		GET " X: a\r\n" END,
		GET "X : a\r\n" END,
		GET "X\r\n" END,
		GET ": a\r\n" END,
		GET "X: a\x01\r\n" END,
		GET "X: a\x7f\r\n" END,
		"get / HTTP/1.1\r\n" HOST END,
		"GET / HTTP/1.2\r\n" HOST END,
		"GET / HTTP/2.0\r\n" HOST END,
		"GET / HTTP/0.9\r\n" HOST END,
		"GET /\r\n" HOST END,
		"GET  / HTTP/1.1\r\n" HOST END,
		"GET / x HTTP/1.1\r\n" HOST END,
		"GET /\xc3\xa4 HTTP/1.1\r\n" HOST END,
		"GET /#a HTTP/1.1\r\n" HOST END,
		"GET /?a#b HTTP/1.1\r\n" HOST END,
		"GET a HTTP/1.1\r\n" HOST END,
		"GET * HTTP/1.1\r\n" HOST END,
		"CONNECT api.example.com:443 HTTP/1.1\r\n" HOST END,
		"CONNECT / HTTP/1.1\r\n" HOST END,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET http://api.example.com/ HTTP/1.1\r\n" HOST END,
		"GET https://evil.example.com/ HTTP/1.1\r\n" HOST END,
		"GET https://api.example.com:444/ HTTP/1.1\r\n" HOST END,
		"GET https://api.example.com@evil.com/ HTTP/1.1\r\n" HOST END,
		"GET https://x@api.example.com/ HTTP/1.1\r\n" HOST END,
		"GET https://api.example.com.evil.com/ HTTP/1.1\r\n" HOST END,
		"GET ftp://api.example.com/ HTTP/1.1\r\n" HOST END,
		"GET //api.example.com/ HTTP/1.1\r\n" HOST END,
		"GET /a/../b HTTP/1.1\r\n" HOST END,
		"GET /a/%2e%2E/b HTTP/1.1\r\n" HOST END,
		"GET /a/.%2e/b HTTP/1.1\r\n" HOST END,
		"GET /a//b HTTP/1.1\r\n" HOST END,
		"GET /a;x/b HTTP/1.1\r\n" HOST END,
		"GET /a\\b HTTP/1.1\r\n" HOST END,
		"GET /a%5cb HTTP/1.1\r\n" HOST END,
		"GET /a%00b HTTP/1.1\r\n" HOST END,
		"GET /a%b HTTP/1.1\r\n" HOST END,
		"GET / HTTP/1.1\r\n" END,
		"GET / HTTP/1.1\r\nHost: evil.example.com\r\n" END,
		"GET / HTTP/1.1\r\nHost: api.example.com:80\r\n" END,
		"GET / HTTP/1.1\r\nHost: api.example.com:\r\n" END,
		"GET / HTTP/1.1\r\nHost: api.example.com.\r\n" END,
		"GET / HTTP/1.1\r\nHost:\r\n" END,
		GET HOST END,
		GET "HOST: evil.example.com\r\n" END,
		GET "Connection: host\r\nHost: evil.example.com\r\n" END,
		POST "Content-Length: 1\r\nContent-Length: 1\r\n" END,
		POST "Content-Length: 1\r\nContent-Length: 2\r\n" END,
		POST "Content-Length: 1, 1\r\n" END,
		POST "Content-Length: +1\r\n" END,
		POST "Content-Length: -1\r\n" END,
		POST "Content-Length: 01\r\n" END,
		POST "Content-Length: 0x1\r\n" END,
		POST "Content-Length: 1a\r\n" END,
		POST "Content-Length:\r\n" END,
		POST "Content-Length: 9223372036854775808\r\n" END,
		POST "Content-Length: 18446744073709551617\r\n" END,
		POST "Content_Length: 3\r\n" END,
		POST "Content-Length: 3\r\nContent_Length: 4\r\n" END,
		POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n" END,
		POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n" END,
		POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n" END,
		POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n" END,
		POST "Transfer-Encoding: chunked, chunked\r\n" END,
		POST "Transfer-Encoding: gzip, chunked\r\n" END,
		POST "Transfer-Encoding: chunked, gzip\r\n" END,
		POST "Transfer-Encoding: identity\r\n" END,
		POST "Transfer-Encoding: xchunked\r\n" END,
		POST "Transfer-Encoding: \"chunked\"\r\n" END,
		POST "Transfer-Encoding: chunked;q=1\r\n" END,
		POST "Transfer-Encoding: \x0b"
		     "chunked\r\n" END,
		POST "Transfer-Encoding:\r\n" END,
		POST "Transfer_Encoding: chunked\r\n" END,
		"POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n" END,
		POST "Expect: 200-ok\r\nContent-Length: 1\r\n" END,
		POST "Expect: 100-continue\r\nExpect: 100-continue\r\nContent-Length: 1\r\n" END,
		POST "Connection: upgrade\r\nUpgrade: websocket\r\n" END,
		GET "Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n" END,
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		check(w, rows[i], SERVER(OK_HELLO), "", NULL);
		if (!begins(&w->to_client,
			    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n"
			    "X-Hutch-Denied: request\r\n"))
			fail_msg("row %zu: %s", i, buf_text(&w->to_client));
		assert_int_equal(w->n_records, 1);
		assert_int_equal(last(w)->result, TAP_BAD_REQUEST);
		assert_int_equal(last(w)->status, 400);
		assert_true(exchange_over(w->x));
	}
}

/* The head is sent by then, but the request never ends for the server. */
TEST_WORLD(test_bad_chunks)
{
	static const char *const rows[] = {
		"3;a=b\r\nabc\r\n0\r\n\r\n",
		"3 \r\nabc\r\n0\r\n\r\n",
		"\r\n",
		"3\nabc\r\n0\r\n\r\n",
		"3\r\nabcd\r\n0\r\n\r\n",
		"0x3\r\nabc\r\n0\r\n\r\n",
		"-1\r\n",
		"3\r\nabc0\r\n\r\n",
		"3\r\nabc\n0\r\n\r\n",
		"0\r\nX: y\r\n\r\n",
		"0\r\n\n",
		"ffffffffffffffff\r\n",
		"+3\r\nabc\r\n0\r\n\r\n",
		"g\r\n",
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char request[256];

		(void)snprintf(request, sizeof(request), "%s%s",
			       POST "Transfer-Encoding: chunked\r\n" END, rows[i]);
		for (uint32_t seed = 0; seed < 8; seed++) {
			w->seed = seed;
			world_begin(w);
			world_talk(w, request, NULL);
			assert_true(begins(&w->to_client, "HTTP/1.1 400 "));
			assert_true(exchange_over(w->x));
			assert_null(strstr(buf_text(&w->to_server), "\r\n0\r\n"));
			assert_int_equal(last(w)->result, TAP_BAD_REQUEST);
		}
	}
}

TEST_WORLD(test_head_too_large)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);

	(void)buf_puts(&b, GET "X: ");
	while (b.len < EXCHANGE_HEAD_MAX + 100)
		(void)buf_putc(&b, 'a');
	(void)buf_puts(&b, "\r\n\r\n");
	check(w, b.data, NULL, "", NULL);
	assert_true(begins(&w->to_client, "HTTP/1.1 431 "));
	assert_int_equal(last(w)->result, TAP_TOO_LARGE);

	buf_reset(&b);
	(void)buf_puts(&b, GET);
	for (int i = 0; i < EXCHANGE_FIELDS_MAX; i++)
		(void)buf_puts(&b, "X: a\r\n");
	(void)buf_puts(&b, "\r\n");
	check(w, b.data, NULL, "", NULL);
	assert_true(begins(&w->to_client, "HTTP/1.1 431 "));

	/* The largest one passes. */
	b.len -= STRLEN("X: a\r\n\r\n");
	(void)buf_puts(&b, "\r\n");
	check(w, b.data, NULL, b.data, "");
}

/* No byte after a refusal is a request. */
TEST_WORLD(test_after_refusal)
{
	struct world *w = *state;

	check(w, "CONNECT x:1 HTTP/1.1\r\n" HOST END GET END, NULL, "", NULL);
	assert_int_equal(w->n_records, 1);
	check(w, GET "Connection: close\r\n" END GET END, SERVER(OK_HELLO),
	      GET "Connection: close\r\n" END, NULL);
	assert_int_equal(w->n_records, 1);
}

/* ---- responses that are refused ---- */

TEST_WORLD(test_bad_responses)
{
	static const char *const rows[] = {
		"HTTP/2 200 OK\r\n\r\n",
		"HTTP/1.1 99 OK\r\n\r\n",
		"HTTP/1.1 2000 OK\r\n\r\n",
		"HTTP/1.1 600 OK\r\n\r\n",
		"HTTP/1.1  200 OK\r\n\r\n",
		"\r\n" OK_HELLO,
		"200 OK\r\n\r\n",
		"HTTP/1.1 200 OK\n\n",
		OK "X: a\n\r\n",
		OK "X: a\r\n b\r\n\r\n",
		OK "X : a\r\n\r\n",
		OK "X: a\x01\r\n\r\n",
		OK "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
		OK "Content-Length: 5, 5\r\n\r\nhello",
		OK "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		OK "Content-Length: x\r\n\r\nhello",
		OK "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		OK "Transfer-Encoding: gzip\r\n\r\n",
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
		"HTTP/1.1 100 Continue\r\nContent-Length: 1\r\n\r\nx",
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		check(w, GET END, SERVER(rows[i]), GET END, NULL);
		if (!begins(&w->to_client, "HTTP/1.1 502 Bad Gateway\r\n"))
			fail_msg("row %zu: %s", i, buf_text(&w->to_client));
		assert_int_equal(w->n_records, 1);
		assert_int_equal(last(w)->result, TAP_BAD_RESPONSE);
		assert_int_equal(last(w)->status, 502);
		assert_true(exchange_over(w->x));
	}
	check(w, GET END, SERVER(OK "Transfer-Encoding: chunked\r\n\r\n3\r\nabcX"), GET END, NULL);
	assert_int_equal(last(w)->result, TAP_BAD_RESPONSE);
	assert_int_equal(last(w)->status, 200);
	assert_null(strstr(buf_text(&w->to_client), "\r\n0\r\n"));
}

/* Bytes after a response never become the response to a later request. */
TEST_WORLD(test_desync)
{
	struct world *w = *state;

	check(w, GET END GET END, SERVER(OK_HELLO OK "Content-Length: 4\r\n\r\nevil"), GET END,
	      OK_HELLO);
	assert_true(exchange_over(w->x));
	assert_int_equal(w->n_records, 1);
	assert_int_equal(last(w)->result, TAP_DONE);
	check(w, "HEAD / HTTP/1.1\r\n" HOST END GET END, SERVER(OK_HELLO),
	      "HEAD / HTTP/1.1\r\n" HOST END, OK "Content-Length: 5\r\n\r\n");
	assert_true(exchange_over(w->x));
	check(w, "", SERVER(OK_HELLO), "", "");
	assert_true(exchange_over(w->x));
	assert_int_equal(w->n_records, 0);
}

TEST_WORLD(test_many_interims)
{
	struct world *w = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);

	for (int i = 0; i < 100; i++)
		(void)buf_puts(&b, "HTTP/1.1 102 Processing\r\n\r\n");
	check(w, GET END, SERVER(b.data), GET END, NULL);
	assert_int_equal(last(w)->result, TAP_BAD_RESPONSE);
}

/* ---- rules ---- */

static const char *const reads[] = { "GET", "HEAD" };
static const char *const repos[] = { "/repos/acme/**" };
static const char *const hooks[] = { "/repos/acme/*/hooks" };

TEST_WORLD(test_rules)
{
	struct world *w = *state;
	struct l7_rule *r = world_rule(w, "p.yaml:12");

	r->methods = (struct l7_list){ reads, 2 };
	r->paths = (struct l7_list){ repos, 1 };
	r = world_rule(w, "p.yaml:13");
	r->deny = true;
	r->paths = (struct l7_list){ hooks, 1 };

	check(w, "GET /repos/acme/x HTTP/1.1\r\n" HOST END, SERVER(OK_HELLO),
	      "GET /repos/acme/x HTTP/1.1\r\n" HOST END, OK_HELLO);
	assert_int_equal(last(w)->rule, 0);
	check(w, "POST /repos/acme/x HTTP/1.1\r\n" HOST "Content-Length: 3\r\n" END "abc", NULL, "",
	      "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nX-Hutch-Denied: rule\r\n"
	      "Content-Length: 84\r\nConnection: close\r\n\r\n"
	      "hutch: POST /repos/acme/x is denied: rule p.yaml:12 allows GET, HEAD "
	      "/repos/acme/**\n");
	assert_int_equal(last(w)->result, TAP_DENIED);
	assert_int_equal(last(w)->rule, -1);
	assert_int_equal(last(w)->status, 403);
	check(w, "GET /repos/acme/%78/hooks HTTP/1.1\r\n" HOST END, NULL, "", NULL);
	assert_non_null(strstr(buf_text(&w->to_client),
			       "GET /repos/acme/x/hooks is denied by rule p.yaml:13\n"));
	assert_int_equal(last(w)->rule, 1);
	check(w, "HEAD /x HTTP/1.1\r\n" HOST END, NULL, "", NULL);
	assert_true(str_has_suffix(buf_text(&w->to_client), "\r\n\r\n"));
	check(w, "OPTIONS * HTTP/1.1\r\n" HOST END, NULL, "", NULL);
	assert_int_equal(last(w)->result, TAP_DENIED);
	/* Fields that some servers read as the method or the path. */
	check(w, "GET /repos/acme/x HTTP/1.1\r\n" HOST "X-HTTP-Method-Override: DELETE\r\n" END,
	      NULL, "", NULL);
	assert_int_equal(last(w)->result, TAP_BAD_REQUEST);
	check(w, "GET /repos/acme/x HTTP/1.1\r\n" HOST "X_Original_URL: /x\r\n" END, NULL, "",
	      NULL);
	assert_int_equal(last(w)->result, TAP_BAD_REQUEST);
	/* The second request of a connection is checked like the first. */
	check(w, "GET /repos/acme/x HTTP/1.1\r\n" HOST END "GET / HTTP/1.1\r\n" HOST END,
	      SERVER(OK_HELLO), "GET /repos/acme/x HTTP/1.1\r\n" HOST END, NULL);
	assert_int_equal(w->n_records, 2);
	assert_int_equal(last(w)->result, TAP_DENIED);
}

TEST_WORLD(test_max_body)
{
	struct world *w = *state;

	world_rule(w, "p.yaml:1")->max_body = 4;
	check(w, POST "Content-Length: 4\r\n" END "abcd", SERVER(OK_HELLO), NULL, OK_HELLO);
	check(w, POST "Content-Length: 5\r\n" END "abcde", NULL, "", NULL);
	assert_true(begins(&w->to_client, "HTTP/1.1 413 "));
	assert_int_equal(last(w)->result, TAP_TOO_LARGE);
	check(w, POST "Transfer-Encoding: chunked\r\n" END "4\r\nabcd\r\n0\r\n\r\n",
	      SERVER(OK_HELLO), NULL, OK_HELLO);
	check(w, POST "Transfer-Encoding: chunked\r\n" END "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", NULL,
	      NULL, NULL);
	assert_true(begins(&w->to_client, "HTTP/1.1 413 "));
	assert_null(strstr(buf_text(&w->to_server), "\r\n0\r\n"));
	assert_int_equal(last(w)->result, TAP_TOO_LARGE);
	assert_non_null(strstr(last(w)->text, "rule p.yaml:1"));
}

static void refuses_body(struct world *w, const char *head, const char *status)
{
	check(w, head, NULL, NULL, NULL);
	assert_true(begins(&w->to_client, "HTTP/1.1 "));
	assert_memory_equal(w->to_client.data + STRLEN("HTTP/1.1 "), status, 3);
}

/* The largest lengths that are read, with a limit and without one, and the next ones. */
TEST_WORLD(test_largest_bodies)
{
	static const char last_length[] = POST "Content-Length: 9223372036854775807\r\n" END "abcd";
	struct world *w = *state;
	struct l7_rule *rule = world_rule(w, "p.yaml:1");

	rule->max_body = INT64_MAX;
	check(w, last_length, NULL, last_length, "");
	rule->max_body--;
	refuses_body(w, last_length, "413");
	rule->max_body = UINT64_C(1) << 40; /* the policy's largest */
	check(w, POST "Content-Length: 1099511627776\r\n" END "abcd", NULL,
	      POST "Content-Length: 1099511627776\r\n" END "abcd", "");
	refuses_body(w, POST "Content-Length: 1099511627777\r\n" END, "413");
	rule->max_body = 0;
	check(w, last_length, NULL, last_length, "");
	refuses_body(w, POST "Content-Length: 9223372036854775808\r\n" END, "400");
	refuses_body(w, POST "Content-Length: 18446744073709551615\r\n" END, "400");
	check(w, POST "Transfer-Encoding: chunked\r\n" END "fffffffffffff\r\nabcd", NULL, NULL, "");
	refuses_body(w, POST "Transfer-Encoding: chunked\r\n" END "10000000000000\r\n", "400");
}

TEST_WORLD(test_rate)
{
	struct world *w = *state;

	world_rule(w, "p.yaml:1")->rate = 7;
	check(w, GET END, SERVER(OK_HELLO), GET END, OK_HELLO);
	assert_int_equal(w->passes, 12);
	w->over_rate = true;
	check(w, GET END, NULL, "", NULL);
	assert_true(begins(&w->to_client, "HTTP/1.1 429 "));
	assert_non_null(strstr(buf_text(&w->to_client), "\r\nRetry-After: 9\r\n"));
	assert_int_equal(last(w)->result, TAP_RATE);
	assert_int_equal(last(w)->rule, 0);
}

/* ---- upgrades ---- */

#define WS_REQUEST  GET "Sec-WebSocket-Key: k\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
#define WS_RESPONSE "HTTP/1.1 101 Switching Protocols\r\n"
#define WS_FIELDS   "Connection: Upgrade\r\nUpgrade: websocket\r\n"

TEST_WORLD(test_websocket)
{
	struct world *w = *state;

	for (uint32_t seed = 0; seed < 8; seed++) {
		w->seed = seed;
		world_begin(w);
		world_talk(w,
			   WS_REQUEST
			   "Upgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n" END "early",
			   SERVER(WS_RESPONSE "upgrade: websocket\r\nconnection: upgrade\r\n"
					      "Sec-WebSocket-Accept: a\r\n\r\nfirst"));
		world_talk(w, "\x81\x01x", SERVER("\x81\x01y"));
		assert_string_equal(buf_text(&w->to_server),
				    WS_REQUEST WS_FIELDS END "early\x81\x01x");
		assert_string_equal(buf_text(&w->to_client), WS_RESPONSE
				    "Sec-WebSocket-Accept: a\r\n" WS_FIELDS "\r\nfirst\x81\x01y");
		assert_int_equal(w->n_records, 0);
		exchange_client_eof(w->x);
		assert_true(exchange_server_done(w->x));
		assert_false(exchange_over(w->x));
		exchange_server_eof(w->x);
		assert_true(exchange_over(w->x));
		assert_int_equal(w->n_records, 1);
		assert_true(last(w)->upgraded);
		assert_int_equal(last(w)->status, 101);
		assert_int_equal(last(w)->bytes_out, 8);
		assert_int_equal(last(w)->bytes_in, 8);
	}
}

/* A refused upgrade leaves HTTP in place: what follows is a request, and checked. */
TEST_WORLD(test_websocket_refused)
{
	struct world *w = *state;

	check(w,
	      GET "Upgrade: websocket\r\nConnection: Upgrade\r\n" END "GET /../x HTTP/1.1\r\n" END,
	      SERVER("HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\n"
		     "Content-Length: 0\r\n\r\n"),
	      GET WS_FIELDS END, NULL);
	assert_int_equal(w->n_records, 2);
	assert_int_equal(w->record[0].status, 426);
	assert_int_equal(w->record[1].result, TAP_BAD_REQUEST);
	/* 101 to something else. */
	check(w, GET "Upgrade: websocket\r\nConnection: Upgrade\r\n" END,
	      SERVER(WS_RESPONSE "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n"), NULL, NULL);
	assert_int_equal(last(w)->result, TAP_BAD_RESPONSE);
}

/* Other upgrades are ignored. */
TEST_WORLD(test_h2c)
{
	static const char *const rows[] = {
		"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n",
		"Upgrade: websocket\r\n",
		"Connection: upgrade\r\nUpgrade: h2c, websocket\r\n",
		"Connection: upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
		"HTTP2-Settings: AAMA\r\n",
	};
	struct world *w = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char request[256];

		(void)snprintf(request, sizeof(request), GET "%s" END, rows[i]);
		check(w, request, SERVER(OK_HELLO), GET END, OK_HELLO);
	}
}

/* ---- ends ---- */

static void talk_whole(struct world *w, const char *client, const char *const *server)
{
	w->seed = 0;
	world_begin(w);
	world_talk(w, client, server);
}

TEST_WORLD(test_server_eof)
{
	struct world *w = *state;

	talk_whole(w, GET END, NULL);
	exchange_server_eof(w->x);
	world_drain(w);
	assert_true(begins(&w->to_client, "HTTP/1.1 502 "));
	assert_int_equal(last(w)->result, TAP_SERVER_CLOSED);

	/* On a connection that was used, the client must see a close, to repeat its request. */
	talk_whole(w, GET END GET END, SERVER(OK_HELLO));
	exchange_server_eof(w->x);
	world_drain(w);
	assert_string_equal(buf_text(&w->to_client), OK_HELLO);
	assert_int_equal(w->n_records, 2);
	assert_int_equal(last(w)->result, TAP_SERVER_CLOSED);
	assert_int_equal(last(w)->status, 0);

	talk_whole(w, GET END, SERVER(OK "Content-Length: 9\r\n\r\nhello"));
	exchange_server_eof(w->x);
	world_drain(w);
	assert_int_equal(last(w)->result, TAP_SERVER_CLOSED);
	assert_int_equal(last(w)->status, 200);
	assert_string_equal(buf_text(&w->to_client), OK "Content-Length: 9\r\n\r\nhello");

	talk_whole(w, GET END, SERVER(OK "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"));
	exchange_server_eof(w->x);
	assert_int_equal(last(w)->result, TAP_SERVER_CLOSED);

	talk_whole(w, "", NULL);
	exchange_server_eof(w->x);
	assert_true(exchange_over(w->x));
	assert_int_equal(w->n_records, 0);
}

TEST_WORLD(test_client_eof)
{
	struct world *w = *state;

	talk_whole(w, "GET / HT", NULL);
	assert_false(exchange_idle(w->x));
	exchange_client_eof(w->x);
	assert_int_equal(last(w)->result, TAP_CLIENT_CLOSED);

	talk_whole(w, POST "Content-Length: 9\r\n" END "abc", NULL);
	exchange_client_eof(w->x);
	assert_int_equal(last(w)->result, TAP_CLIENT_CLOSED);
	assert_true(exchange_over(w->x));

	talk_whole(w, GET END, NULL);
	exchange_client_eof(w->x);
	assert_false(exchange_over(w->x));
	world_talk(w, "", SERVER(OK_HELLO));
	assert_int_equal(last(w)->result, TAP_DONE);
	assert_string_equal(buf_text(&w->to_client), OK_HELLO);
	assert_true(exchange_over(w->x));

	talk_whole(w, "", NULL);
	exchange_client_eof(w->x);
	assert_true(exchange_over(w->x));
	assert_int_equal(w->n_records, 0);
}

TEST_WORLD(test_abort)
{
	struct world *w = *state;

	talk_whole(w, GET END, NULL);
	exchange_abort(w->x, TAP_TIME, "no response within 10 minutes");
	world_drain(w);
	assert_true(begins(&w->to_client, "HTTP/1.1 504 Gateway Timeout\r\n"));
	assert_int_equal(last(w)->result, TAP_TIME);
	exchange_abort(w->x, TAP_TIME, "again");
	assert_int_equal(w->n_records, 1);
	talk_whole(w, GET END, NULL);
	exchange_abort(w->x, TAP_SERVER_TRUST, "the certificate has expired");
	world_drain(w);
	assert_true(begins(&w->to_client, "HTTP/1.1 502 "));
	assert_non_null(strstr(buf_text(&w->to_client), "hutch: the certificate has expired\n"));
	talk_whole(w, GET END, NULL);
	exchange_abort(w->x, TAP_CLIENT_CLOSED, "reset");
	world_drain(w);
	assert_string_equal(buf_text(&w->to_client), "");
	assert_int_equal(last(w)->result, TAP_CLIENT_CLOSED);
}

/* The caller that does not empty a buffer is not fed more. */
TEST_WORLD(test_back_pressure)
{
	struct world *w = *state;
	static char big[EXCHANGE_BUFFER * 2];
	size_t used, total = 0;

	world_begin(w);
	world_talk(w, POST "Content-Length: 1000000\r\n" END, NULL);
	for (int i = 0; i < 8; i++) {
		assert_int_equal(exchange_from_client(w->x, big, sizeof(big), &used), 0);
		total += used;
		assert_true(exchange_to_server(w->x)->len <= 2 * EXCHANGE_BUFFER);
	}
	assert_int_equal(total, EXCHANGE_BUFFER);
	total = 0;
	world_talk(w, "", SERVER(OK "Content-Length: 1000000\r\n\r\n"));
	for (int i = 0; i < 8; i++) {
		assert_int_equal(exchange_from_server(w->x, big, sizeof(big), &used), 0);
		total += used;
	}
	assert_int_equal(total, EXCHANGE_BUFFER);
}
