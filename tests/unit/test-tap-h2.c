/* SPDX-License-Identifier: Apache-2.0 */
/* hutch-tap: HTTP/2 between a client and a server of libnghttp2. */
#include "unit.h"

#include "tap-h2-world.h"

#define VALUE	      "secret-value-0123456789"
#define STARS	      "***********************"
#define TARGET(p)     ":method", "GET", ":scheme", "https", ":authority", WORLD_HOST, ":path", p
#define POST(p)	      ":method", "POST", ":scheme", "https", ":authority", WORLD_HOST, ":path", p
#define FIELDS(...)   ((const char *const[]){ __VA_ARGS__, NULL })
#define OK(...)	      FIELDS(":status", "200", ##__VA_ARGS__)
#define TEST_H2(name) TEST_WITH(name, setup, teardown)

static_assert(sizeof(STARS) == sizeof(VALUE), "as long");

static int setup(void **state)
{
	struct h2_world *w = calloc(1, sizeof(*w));

	world_init(&w->base);
	h2_world_begin(w);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct h2_world *w = *state;

	assert_false(w->client.failed);
	assert_false(w->server.failed);
	h2_world_done(w);
	free(w);
	return 0;
}

static const struct tap_request *last(const struct h2_world *w)
{
	assert_true(w->base.n_records > 0);
	return &w->base.record[w->base.n_records - 1];
}

static const char *got(struct h2_peer *p, int32_t id)
{
	return buf_text(&seen_of(p, id)->head);
}

static const char *body(struct h2_peer *p, int32_t id)
{
	return buf_text(&seen_of(p, id)->body);
}

static int32_t get(struct h2_world *w, const char *path)
{
	int32_t id = h2_ask(w, FIELDS(TARGET(path)), NULL, 0, false);

	h2_talk(w);
	return id;
}

static void is_status(struct h2_world *w, int32_t id, const char *status)
{
	char line[32];

	(void)snprintf(line, sizeof(line), ":status: %s\n", status);
	if (!strstr(got(&w->client, id), line))
		print_message("# '%s' (%s)\n", got(&w->client, id), body(&w->client, id));
	assert_non_null(strstr(got(&w->client, id), line));
}

/* ---- passing ---- */

TEST_H2(a_request_passes_and_its_response)
{
	struct h2_world *w = *state;

	for (uint32_t seed = 0; seed < 12; seed++) {
		int32_t id;

		w->base.seed = seed;
		h2_world_begin(w);
		id = h2_ask(w, FIELDS(POST("/a%7eb?q=%7e"), "accept", "*/*", "te", "trailers"),
			    "question", 8, false);
		h2_talk(w);
		assert_string_equal(got(&w->server, 1),
				    ":method: POST\n:scheme: https\n:authority: " WORLD_HOST
				    "\n:path: /a~b?q=%7e\naccept: */*\nte: trailers\n\n");
		assert_string_equal(body(&w->server, 1), "question");
		assert_true(seen_of(&w->server, 1)->ended);
		h2_reply(w, 1, OK("server", "x", "alt-svc", "h3=\":443\""), "hello", 5, false);
		h2_talk(w);
		assert_string_equal(got(&w->client, id), ":status: 200\nserver: x\n\n");
		assert_string_equal(body(&w->client, id), "hello");
		assert_true(seen_of(&w->client, id)->ended && seen_of(&w->client, id)->closed);
		assert_int_equal(w->base.n_records, 1);
		assert_int_equal(last(w)->result, TAP_DONE);
		assert_int_equal(last(w)->status, 200);
		assert_int_equal(last(w)->bytes_out, 8);
		assert_int_equal(last(w)->bytes_in, 5);
		assert_string_equal(last(w)->path, "/a~b");
		assert_true(exchange_idle(w->base.x));
	}
}

/* Moves frames until none is left, but none of the server. */
static void talk_to_silent_server(struct h2_world *w)
{
	_cleanup_buf_ struct buf from_client = BUF_INIT(64 * 1024 * 1024);
	bool moved = true;

	while (moved) {
		moved = peer_to_tap(w, &w->client, &from_client);
		moved |= tap_to_peer(w, &w->server);
		moved |= tap_to_peer(w, &w->client);
	}
}

/* Some servers send nothing before the client's preface, or before the first request. */
TEST_H2(a_request_passes_before_the_servers_first_byte)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
	struct h2_world *w = *state;
	int32_t id;

	/* hutch-tap waits for neither side. */
	assert_in_range(exchange_to_server(w->base.x)->len, sizeof(preface) + 8, 1024);
	assert_memory_equal(exchange_to_server(w->base.x)->data, preface, sizeof(preface) - 1);
	assert_int_equal(exchange_to_server(w->base.x)->data[sizeof(preface) - 1 + 3],
			 NGHTTP2_SETTINGS);
	assert_in_range(exchange_to_client(w->base.x)->len, 9, 1024);
	assert_int_equal(exchange_to_client(w->base.x)->data[3], NGHTTP2_SETTINGS);
	id = h2_ask(w, FIELDS(POST("/early")), "question", 8, false);
	talk_to_silent_server(w);
	assert_non_null(strstr(got(&w->server, 1), ":path: /early\n"));
	assert_string_equal(body(&w->server, 1), "question");
	assert_true(seen_of(&w->server, 1)->ended);
	h2_reply(w, 1, OK("a", "b"), "answer", 6, false);
	h2_talk(w);
	assert_string_equal(body(&w->client, id), "answer");
	assert_true(seen_of(&w->client, id)->ended);
}

TEST_H2(many_requests_run_at_the_same_time)
{
	struct h2_world *w = *state;
	int32_t id[8];

	for (int i = 0; i < 8; i++)
		id[i] = h2_ask(w, FIELDS(TARGET("/")), NULL, 0, false);
	h2_talk(w);
	assert_int_equal(w->server.n, 8);
	assert_true(exchange_in_request(w->base.x));
	for (int i = 7; i >= 0; i--) {
		char text[2] = { (char)('a' + i), 0 };

		h2_reply(w, w->server.seen[i].id, OK("content-length", "1"), text, 1, false);
		h2_talk(w);
		assert_string_equal(body(&w->client, id[i]), text);
		assert_int_equal(w->base.n_records, 8 - i);
	}
	assert_true(exchange_idle(w->base.x));
}

TEST_H2(both_sides_stream_at_the_same_time)
{
	struct h2_world *w = *state;
	int32_t id = h2_ask(w, FIELDS(POST("/chat"), "te", "trailers"), "a", 1, true);

	h2_talk(w);
	assert_string_equal(body(&w->server, 1), "a");
	h2_reply(w, 1, OK("content-type", "application/grpc"), "1", 1, true);
	h2_talk(w);
	assert_string_equal(body(&w->client, id), "1");
	h2_send(&w->client, id, "b", 1, true);
	h2_talk(w);
	assert_string_equal(body(&w->server, 1), "ab");
	h2_send(&w->server, 1, "2", 1, true);
	h2_talk(w);
	assert_string_equal(body(&w->client, id), "12");
	h2_send(&w->client, id, NULL, 0, false);
	h2_talk(w);
	assert_true(seen_of(&w->server, 1)->ended);
	assert_int_equal(w->base.n_records, 0);
	seen_of(&w->server, 1)->trailers = "0";
	h2_send(&w->server, 1, NULL, 0, false);
	h2_talk(w);
	assert_string_equal(got(&w->client, id),
			    ":status: 200\ncontent-type: application/grpc\n\nx-sum: 0\n\n");
	assert_true(seen_of(&w->client, id)->ended);
	assert_int_equal(last(w)->result, TAP_DONE);
}

/* gRPC answers errors with a head alone. */
TEST_H2(a_response_may_be_a_head_alone)
{
	struct h2_world *w = *state;
	int32_t id = get(w, "/");

	h2_reply(w, 1, OK("grpc-status", "5"), NULL, 0, false);
	h2_talk(w);
	assert_string_equal(got(&w->client, id), ":status: 200\ngrpc-status: 5\n\n");
	assert_int_equal(seen_of(&w->client, id)->n_heads, 1);
	assert_true(seen_of(&w->client, id)->ended);
	assert_int_equal(last(w)->result, TAP_DONE);
}

TEST_H2(interim_responses_pass)
{
	struct h2_world *w = *state;
	int32_t id = get(w, "/");
	nghttp2_nv nv = { (uint8_t *)":status", (uint8_t *)"103", 7, 3, NGHTTP2_NV_FLAG_NONE };

	assert_int_equal(
		nghttp2_submit_headers(w->server.session, NGHTTP2_FLAG_NONE, 1, NULL, &nv, 1, NULL),
		0);
	h2_talk(w);
	assert_string_equal(got(&w->client, id), ":status: 103\n\n");
	h2_reply(w, 1, OK("a", "b"), "x", 1, false);
	h2_talk(w);
	assert_string_equal(got(&w->client, id), ":status: 103\n\n:status: 200\na: b\n\n");
	assert_string_equal(body(&w->client, id), "x");
}

TEST_H2(large_bodies_pass_with_little_memory)
{
	struct h2_world *w = *state;
	const size_t n = 3 * 1024 * 1024;
	char *big = calloc(1, n);
	int32_t id;

	memset(big, 'x', n);
	id = h2_ask(w, FIELDS(POST("/")), big, n, false);
	h2_talk(w);
	assert_int_equal(seen_of(&w->server, 1)->body.len, n);
	h2_reply(w, 1, OK("a", "b"), big, n, false);
	h2_talk(w);
	assert_int_equal(seen_of(&w->client, id)->body.len, n);
	assert_int_equal(last(w)->bytes_out, n);
	free(big);
}

/* A client that does not read stops the server, by flow control. */
TEST_H2(a_body_waits_for_its_reader)
{
	struct h2_world *w = *state;
	const size_t n = 2 * 1024 * 1024;
	_cleanup_buf_ struct buf out = BUF_INIT(64 * 1024 * 1024);
	char *big = calloc(1, n);
	size_t total = 0;

	(void)get(w, "/");
	h2_reply(w, 1, OK("a", "b"), big, n, false);
	/* The client's window is 65535 bytes. It gets nothing here, so it opens no further window.
	 */
	for (int i = 0; i < 100; i++) {
		(void)peer_to_tap(w, &w->server, &out);
		(void)tap_to_peer(w, &w->server);
		total = MAX(total, exchange_to_client(w->base.x)->len);
	}
	assert_in_range(seen_of(&w->server, 1)->at, H2_WINDOW / 2, H2_WINDOW + 65535 + 32768);
	assert_in_range(total, 1, 2 * EXCHANGE_BUFFER);
	free(big);
}

/* ---- secrets ---- */

TEST_H2(a_secret_is_sent_and_masked)
{
	struct h2_world *w = *state;
	int32_t id;

	(void)world_secret(&w->base, "KEY", SECRET_BEARER, VALUE);
	for (uint32_t seed = 0; seed < 12; seed++) {
		w->base.seed = seed;
		h2_world_begin(w);
		id = h2_ask(w,
			    FIELDS(TARGET("/"), "authorization", "Bearer x", "authorization", "y",
				   "x-api-key", "z", "accept-encoding", "gzip",
				   "grpc-accept-encoding", "gzip"),
			    NULL, 0, false);
		h2_talk(w);
		assert_string_equal(got(&w->server, 1),
				    ":method: GET\n:scheme: https\n:authority: " WORLD_HOST
				    "\n:path: /\naccept-encoding: identity\nauthorization: "
				    "Bearer " VALUE "\n\n");
		seen_of(&w->server, 1)->trailers = "end " VALUE;
		h2_reply(w, 1, OK("x-echo", "a" VALUE "b"), "a secret-value-0", 16, true);
		h2_talk(w);
		h2_send(&w->server, 1, "123456789 b", 11, false);
		h2_talk(w);
		assert_string_equal(got(&w->client, id), ":status: 200\nx-echo: a" STARS
							 "b\n\nx-sum: end " STARS "\n\n");
		assert_string_equal(body(&w->client, id), "a " STARS " b");
		assert_true(last(w)->reflected);
		assert_int_equal(last(w)->secret, 0);
	}
}

TEST_H2(a_secret_in_a_trailer_alone_is_reported)
{
	struct h2_world *w = *state;
	int32_t id;

	(void)world_secret(&w->base, "KEY", SECRET_BEARER, VALUE);
	id = get(w, "/");
	seen_of(&w->server, 1)->trailers = "end " VALUE;
	h2_reply(w, 1, OK("a", "b"), "body", 4, false);
	h2_talk(w);
	assert_non_null(strstr(got(&w->client, id), "\nx-sum: end " STARS "\n"));
	assert_true(last(w)->reflected);
	id = get(w, "/");
	h2_reply(w, 3, OK("a", "b"), "body", 4, false);
	h2_talk(w);
	assert_string_equal(body(&w->client, id), "body");
	assert_false(last(w)->reflected);
}

/* The server knows the secret from one stream and may send it on another. */
TEST_H2(a_secret_is_masked_on_every_stream)
{
	static const char *const paths[] = { "/with" };
	struct h2_world *w = *state;
	struct tap_secret *s = world_secret(&w->base, "KEY", SECRET_BEARER, VALUE);
	int32_t before, with;

	s->paths = (struct l7_list){ paths, 1 };
	before = get(w, "/without");
	assert_null(strstr(got(&w->server, 1), VALUE));
	h2_reply(w, 1, OK("a", "b"), "first", 5, true);
	h2_talk(w);
	with = get(w, "/with");
	assert_non_null(strstr(got(&w->server, 3), VALUE));
	h2_send(&w->server, 1, " " VALUE, strlen(VALUE) + 1, false);
	h2_reply(w, 3, OK("a", "b"), VALUE, strlen(VALUE), false);
	h2_talk(w);
	assert_string_equal(body(&w->client, before), "first " STARS);
	assert_string_equal(body(&w->client, with), STARS);
}

TEST_H2(a_body_is_collected_to_be_signed)
{
	struct h2_world *w = *state;

	(void)world_secret(&w->base, "KEY", SECRET_AWS, "AKIDEXAMPLE:" VALUE);
	(void)h2_ask(w,
		     FIELDS(POST("/bucket"), "x-amz-date", "20260101T000000Z", "authorization",
			    "AWS4-HMAC-SHA256 Credential=X/20260101/us-east-1/s3/aws4_request, "
			    "SignedHeaders=host;x-amz-date, Signature=0"),
		     "body", 4, true);
	h2_talk(w);
	assert_int_equal(w->server.n, 0);
	h2_send(&w->client, 1, "-end", 4, false);
	h2_talk(w);
	assert_non_null(strstr(got(&w->server, 1), "Credential=AKIDEXAMPLE/20260101"));
	assert_non_null(strstr(got(&w->server, 1), "content-length: 8\n"));
	assert_string_equal(body(&w->server, 1), "body-end");
	assert_true(seen_of(&w->server, 1)->ended);
	assert_null(strstr(got(&w->server, 1), VALUE));
}

/* ---- refusals ---- */

TEST_H2(a_denied_request_leaves_the_connection)
{
	static const char *const methods[] = { "GET" };
	struct h2_world *w = *state;
	struct l7_rule *r = world_rule(&w->base, "f:1");
	int32_t id, good;

	r->methods = (struct l7_list){ methods, 1 };
	id = h2_ask(w, FIELDS(POST("/")), "x", 1, true);
	h2_talk(w);
	is_status(w, id, "403");
	assert_non_null(strstr(got(&w->client, id), "x-hutch-denied: rule\n"));
	assert_non_null(strstr(body(&w->client, id), "hutch: POST / is denied"));
	assert_int_equal(last(w)->result, TAP_DENIED);
	assert_int_equal(w->server.n, 0);
	assert_true(seen_of(&w->client, id)->ended);
	good = get(w, "/");
	h2_reply(w, 1, OK("a", "b"), "x", 1, false);
	h2_talk(w);
	is_status(w, good, "200");
	assert_false(exchange_over(w->base.x));
}

/* curl 7.88 does not show the response if its stream is reset while it sends a short body. */
TEST_H2(only_a_long_body_is_stopped_after_the_response)
{
	static const char *const methods[] = { "GET" };
	struct h2_world *w = *state;
	struct l7_rule *r = world_rule(&w->base, "f:1");
	char *big = calloc(1, H2_LATE_MAX);
	int32_t id, good;

	r->methods = (struct l7_list){ methods, 1 };
	id = h2_ask(w, FIELDS(POST("/short")), "x", 1, true);
	h2_talk(w);
	is_status(w, id, "403");
	assert_false(seen_of(&w->client, id)->closed);
	h2_send(&w->client, id, "y", 1, false);
	h2_talk(w);
	assert_true(seen_of(&w->client, id)->closed);
	id = h2_ask(w, FIELDS(POST("/long")), NULL, 0, true);
	h2_talk(w);
	is_status(w, id, "403");
	h2_send(&w->client, id, big, H2_LATE_MAX, true);
	h2_talk(w);
	assert_false(seen_of(&w->client, id)->closed);
	h2_send(&w->client, id, big, H2_LATE_MAX, true);
	h2_talk(w);
	assert_true(seen_of(&w->client, id)->closed);
	assert_int_equal(seen_of(&w->client, id)->code, NGHTTP2_NO_ERROR);
	/* Also if the server has answered early. */
	*r = (struct l7_rule){ .host = r->host, .at = r->at };
	id = h2_ask(w, FIELDS(POST("/early")), "x", 1, true);
	h2_talk(w);
	h2_reply(w, 1, OK("a", "b"), "answer", 6, false);
	h2_talk(w);
	assert_string_equal(body(&w->client, id), "answer");
	assert_false(seen_of(&w->client, id)->closed);
	h2_send(&w->client, id, big, H2_LATE_MAX, true);
	h2_send(&w->client, id, big, H2_LATE_MAX, true);
	h2_talk(w);
	assert_true(seen_of(&w->client, id)->closed);
	good = get(w, "/good");
	h2_reply(w, 3, OK("a", "b"), "x", 1, false);
	h2_talk(w);
	is_status(w, good, "200");
	assert_true(exchange_idle(w->base.x));
	free(big);
}

TEST_H2(a_body_over_its_limit_is_cut)
{
	struct h2_world *w = *state;
	struct l7_rule *r = world_rule(&w->base, "f:1");
	int32_t id;

	r->max_body = 4;
	id = h2_ask(w, FIELDS(POST("/")), "12", 2, true);
	h2_talk(w);
	assert_string_equal(body(&w->server, 1), "12");
	h2_send(&w->client, id, "345", 3, true);
	h2_talk(w);
	is_status(w, id, "413");
	assert_int_equal(last(w)->result, TAP_TOO_LARGE);
	assert_string_equal(body(&w->server, 1), "12");
	assert_false(seen_of(&w->server, 1)->ended);
	assert_true(seen_of(&w->server, 1)->closed);
	assert_int_equal(seen_of(&w->server, 1)->code, NGHTTP2_CANCEL);
	/* Also before anything is sent to the server; the connection stays. */
	id = h2_ask(w, FIELDS(POST("/")), "12345", 5, false);
	h2_talk(w);
	is_status(w, id, "413");
	assert_int_equal(w->server.n, 1);
	assert_false(w->server.failed);
	w->base.over_rate = true;
	r->rate = 1;
	is_status(w, get(w, "/"), "429");
}

/* Each is answered, or its stream is reset; none reaches the server, and the next request does. */
TEST_H2(wrong_requests_do_not_reach_the_server)
{
	const struct {
		const char *const *fields;
		const char *status; /* NULL: a reset */
	} rows[] = {
		{ FIELDS(TARGET("/"), "Authorization", "x"), NULL },
		{ FIELDS(TARGET("/"), "transfer-encoding", "chunked"), NULL },
		{ FIELDS(TARGET("/"), "connection", "close"), NULL },
		{ FIELDS(TARGET("/"), "upgrade", "h2c"), NULL },
		{ FIELDS(TARGET("/"), "te", "gzip"), NULL },
		{ FIELDS(TARGET("/"), "content-length", "5"), NULL },
		{ FIELDS(TARGET("/"), "content-length", "0", "content-length", "0"), NULL },
		{ FIELDS(TARGET("/"), ":path", "/b"), NULL },
		{ FIELDS("a", "b", TARGET("/")), NULL },
		{ FIELDS(TARGET("/"), ":protocol", "websocket"), NULL },
		{ FIELDS(":method", "CONNECT", ":protocol", "websocket", ":scheme", "https",
			 ":authority", WORLD_HOST, ":path", "/"),
		  NULL },
		{ FIELDS(":method", "GET", ":scheme", "https", ":authority", WORLD_HOST), NULL },
		{ FIELDS(":method", "GET", ":scheme", "https", ":path", "/"), NULL },
		{ FIELDS(TARGET("/ HTTP/1.1\r\nx: y")), NULL },
		{ FIELDS(TARGET("/"), "a", "b\r\nauthorization: x"), "400" },
		{ FIELDS(TARGET("/"), "a b", "c"), "400" },
		{ FIELDS(TARGET("/"), "content_length", "5"), "400" },
		{ FIELDS(TARGET("/"), "transfer_encoding", "chunked"), "400" },
		{ FIELDS(TARGET("/"), "host", "evil.example.com"), "400" },
		{ FIELDS(TARGET("/"), "host", WORLD_HOST, "host", WORLD_HOST), NULL },
		{ FIELDS(TARGET("//")), "400" },
		{ FIELDS(TARGET("/a/%2e%2e/b")), "400" },
		{ FIELDS(TARGET("/a;b")), "400" },
		{ FIELDS(TARGET("/#a")), "400" },
		{ FIELDS(TARGET("https://" WORLD_HOST "/")), NULL },
		{ FIELDS(TARGET("*")), NULL },
		{ FIELDS(":method", "CONNECT", ":authority", WORLD_HOST), "400" },
		{ FIELDS(":method", "get", ":scheme", "https", ":authority", WORLD_HOST, ":path",
			 "/"),
		  "400" },
		{ FIELDS(":method", "GET", ":scheme", "http", ":authority", WORLD_HOST, ":path",
			 "/"),
		  "400" },
		{ FIELDS(":method", "GET", ":scheme", "https", ":authority", "evil.example.com",
			 ":path", "/"),
		  "400" },
		{ FIELDS(":method", "GET", ":scheme", "https", ":authority", "x@" WORLD_HOST,
			 ":path", "/"),
		  "400" },
	};
	struct h2_world *w = *state;

	(void)world_secret(&w->base, "KEY", SECRET_BEARER, VALUE);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int32_t id, good;

		h2_world_begin(w);
		id = h2_ask(w, rows[i].fields, NULL, 0, false);
		h2_talk(w);
		if (w->server.n > 0 || !seen_of(&w->client, id)->closed)
			print_message("# row %zu: '%s'\n", i, got(&w->server, 1));
		assert_int_equal(w->server.n, 0);
		assert_true(seen_of(&w->client, id)->closed);
		if (rows[i].status)
			is_status(w, id, rows[i].status);
		else if (seen_of(&w->client, id)->n_heads > 0)
			print_message("# row %zu: '%s'\n", i, got(&w->client, id));
		assert_int_equal(seen_of(&w->client, id)->n_heads, rows[i].status ? 1 : 0);
		assert_int_equal(last(w)->result, TAP_BAD_REQUEST);
		assert_int_equal(w->base.n_records, 1);
		/* The control: the connection still works. */
		good = get(w, "/");
		assert_int_equal(w->server.n, 1);
		h2_reply(w, 1, OK("a", "b"), NULL, 0, false);
		h2_talk(w);
		is_status(w, good, "200");
	}
}

TEST_H2(a_head_has_a_limit)
{
	struct h2_world *w = *state;
	static char big[40 * 1024];
	const char *many[2 * 150 + 9] = { TARGET("/") };
	int32_t id;

	memset(big, 'x', sizeof(big) - 1);
	id = h2_ask(w, FIELDS(TARGET("/"), "a", big, "b", big), NULL, 0, false);
	h2_talk(w);
	is_status(w, id, "431");
	for (size_t i = 0; i < 150; i++) {
		many[8 + 2 * i] = "a";
		many[8 + 2 * i + 1] = "b";
	}
	id = h2_ask(w, many, NULL, 0, false);
	h2_talk(w);
	is_status(w, id, "431");
	assert_int_equal(last(w)->result, TAP_TOO_LARGE);
	assert_int_equal(w->server.n, 0);
	/* Below the limit it passes. */
	id = h2_ask(w, FIELDS(TARGET("/"), "a", big), NULL, 0, false);
	h2_talk(w);
	assert_int_equal(w->server.n, 1);
}

TEST_H2(a_body_as_long_as_announced)
{
	struct h2_world *w = *state;
	int32_t id = h2_ask(w, FIELDS(POST("/"), "content-length", "5"), "123456", 6, false);

	h2_talk(w);
	assert_true(seen_of(&w->client, id)->closed);
	assert_false(seen_of(&w->server, 1)->ended);
	assert_int_equal(last(w)->result, TAP_BAD_REQUEST);
	id = h2_ask(w, FIELDS(POST("/"), "content-length", "5"), "1234", 4, false);
	h2_talk(w);
	assert_true(seen_of(&w->client, id)->closed);
	assert_false(seen_of(&w->server, 3)->ended);
	assert_int_equal(last(w)->result, TAP_BAD_REQUEST);
	id = h2_ask(w, FIELDS(POST("/"), "content-length", "5"), "12345", 5, false);
	h2_talk(w);
	assert_true(seen_of(&w->server, 5)->ended);
	assert_string_equal(body(&w->server, 5), "12345");
}

/* ---- ends ---- */

TEST_H2(a_reset_by_the_client_reaches_the_server)
{
	struct h2_world *w = *state;
	int32_t id = get(w, "/");

	assert_int_equal(
		nghttp2_submit_rst_stream(w->client.session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL),
		0);
	h2_talk(w);
	assert_true(seen_of(&w->server, 1)->closed);
	assert_int_equal(seen_of(&w->server, 1)->code, NGHTTP2_CANCEL);
	assert_int_equal(last(w)->result, TAP_CLIENT_CLOSED);
	assert_true(exchange_idle(w->base.x));
}

TEST_H2(a_reset_by_the_server_reaches_the_client)
{
	struct h2_world *w = *state;
	int32_t id = get(w, "/");

	assert_int_equal(nghttp2_submit_rst_stream(w->server.session, NGHTTP2_FLAG_NONE, 1,
						   NGHTTP2_REFUSED_STREAM),
			 0);
	h2_talk(w);
	assert_true(seen_of(&w->client, id)->closed);
	assert_int_equal(seen_of(&w->client, id)->code, NGHTTP2_REFUSED_STREAM);
	assert_int_equal(last(w)->result, TAP_SERVER_CLOSED);
	/* In the middle of a response, too. */
	id = get(w, "/");
	h2_reply(w, 3, OK("a", "b"), "x", 1, true);
	h2_talk(w);
	assert_int_equal(nghttp2_submit_rst_stream(w->server.session, NGHTTP2_FLAG_NONE, 3,
						   NGHTTP2_INTERNAL_ERROR),
			 0);
	h2_talk(w);
	assert_true(seen_of(&w->client, id)->closed);
	assert_false(seen_of(&w->client, id)->ended);
	assert_true(exchange_idle(w->base.x));
}

TEST_H2(a_server_that_goes_away_finishes_its_requests)
{
	struct h2_world *w = *state;
	int32_t id = get(w, "/"), late;

	assert_int_equal(nghttp2_submit_goaway(w->server.session, NGHTTP2_FLAG_NONE, 1,
					       NGHTTP2_NO_ERROR, NULL, 0),
			 0);
	late = h2_ask(w, FIELDS(TARGET("/")), NULL, 0, false);
	h2_talk(w);
	assert_true(w->client.goaway);
	assert_true(seen_of(&w->client, late)->closed);
	assert_int_equal(seen_of(&w->client, late)->code, NGHTTP2_REFUSED_STREAM);
	h2_reply(w, 1, OK("a", "b"), "x", 1, false);
	h2_talk(w);
	assert_string_equal(body(&w->client, id), "x");
	assert_true(exchange_over(w->base.x));
}

TEST_H2(a_lost_server_is_answered_for)
{
	struct h2_world *w = *state;
	int32_t id = get(w, "/"), half = get(w, "/half"), done = get(w, "/done");

	h2_reply(w, 3, OK("a", "b"), "x", 1, true);
	h2_reply(w, 5, OK("a", "b"), "x", 1, false);
	h2_talk(w);
	exchange_server_eof(w->base.x);
	h2_talk(w);
	is_status(w, id, "502");
	assert_false(seen_of(&w->client, half)->ended);
	assert_true(seen_of(&w->client, half)->closed);
	assert_true(seen_of(&w->client, done)->ended);
	assert_true(w->client.goaway);
	assert_true(exchange_over(w->base.x));
	assert_int_equal(w->base.n_records, 3);
}

TEST_H2(an_abort_answers_all_requests)
{
	struct h2_world *w = *state;
	int32_t a = get(w, "/a"), b = get(w, "/b");

	exchange_abort(w->base.x, TAP_SERVER_TRUST, "the certificate has expired");
	assert_true(exchange_over(w->base.x));
	h2_talk(w);
	is_status(w, a, "502");
	is_status(w, b, "502");
	assert_non_null(strstr(body(&w->client, b), "hutch: the certificate has expired\n"));
	assert_int_equal(w->base.n_records, 2);
	h2_world_begin(w);
	a = get(w, "/a");
	exchange_client_eof(w->base.x);
	assert_true(exchange_over(w->base.x));
	assert_int_equal(last(w)->result, TAP_CLIENT_CLOSED);
}

/* ---- floods ---- */

TEST_H2(streams_have_a_limit)
{
	struct h2_world *w = *state;
	size_t count = 0;

	w->base.conf.n_requests = &count;
	w->base.conf.max_requests = 5;
	h2_world_begin(w);
	for (int i = 0; i < 8; i++)
		(void)h2_ask(w, FIELDS(TARGET("/")), NULL, 0, false);
	h2_talk(w);
	assert_int_equal(w->server.n, 5);
	assert_int_equal(count, 5);
	for (size_t i = 5; i < 8; i++)
		assert_int_equal(w->client.seen[i].code, NGHTTP2_REFUSED_STREAM);
	h2_world_begin(w);
	assert_int_equal(count, 0);
	w->base.x = exchange_free(w->base.x);
	w->base.conf.n_requests = NULL;
	h2_world_begin(w);
	for (int i = 0; i < 200; i++)
		(void)h2_ask(w, FIELDS(TARGET("/")), NULL, 0, false);
	h2_talk(w);
	assert_in_range(w->server.n, 90, H2_STREAMS_MAX);
}

/* CVE-2023-44487: a request and its reset cost the client little. */
TEST_H2(a_flood_of_resets_ends_the_connection)
{
	struct h2_world *w = *state;
	int i;

	w->base.n_records = 0;
	for (i = 0; i < 650 && !w->client.goaway; i++) {
		int32_t id = h2_ask(w, FIELDS(TARGET("/")), NULL, 0, false);

		h2_talk(w);
		(void)nghttp2_submit_rst_stream(w->client.session, NGHTTP2_FLAG_NONE, id,
						NGHTTP2_CANCEL);
		h2_talk(w);
		w->base.n_records = 0;
	}
	assert_in_range(i, H2_CUTS_MAX / 2, 649);
	assert_true(w->client.goaway);
	assert_int_not_equal(w->client.goaway_code, NGHTTP2_NO_ERROR);
	assert_true(exchange_over(w->base.x));
}

/* Feeds frames that libnghttp2 would not send. */
static void feed_frames(struct h2_world *w, const char *frame, size_t n, size_t times)
{
	size_t used;

	for (size_t i = 0; i < times && !exchange_over(w->base.x); i++)
		assert_int_equal(exchange_from_client(w->base.x, frame, n, &used), 0);
}

TEST_H2(floods_of_control_frames_end_the_connection)
{
	static const char ping[] = "\0\0\x08\x06\0\0\0\0\0abcdefgh";
	static const char settings[] = "\0\0\0\x04\0\0\0\0\0";
	static const char headers[] = "\0\0\0\x01\x01\0\0\0\x01";
	static const char more[] = "\0\0\0\x09\0\0\0\0\x01";
	struct h2_world *w = *state;

	/* The client does not read the answers. */
	h2_talk(w);
	feed_frames(w, ping, sizeof(ping) - 1, 20000);
	assert_true(exchange_over(w->base.x));
	h2_world_begin(w);
	h2_talk(w);
	feed_frames(w, settings, sizeof(settings) - 1, 40000);
	assert_true(exchange_over(w->base.x));
	h2_world_begin(w);
	h2_talk(w);
	feed_frames(w, headers, sizeof(headers) - 1, 1);
	assert_false(exchange_over(w->base.x));
	feed_frames(w, more, sizeof(more) - 1, H2_CONTINUATIONS_MAX + 1);
	h2_talk(w);
	assert_true(exchange_over(w->base.x));
	w->client.failed = false; /* it knows nothing of these frames */
}

TEST_H2(another_protocol_is_refused)
{
	struct h2_world *w = *state;
	size_t used;

	assert_int_equal(exchange_from_client(w->base.x, "GET / HTTP/1.1\r\n\r\n", 18, &used), 0);
	assert_true(exchange_over(w->base.x));
	assert_int_equal(w->base.n_records, 0);
}

/* The server breaks the protocol: its requests are answered. */
TEST_H2(a_broken_server_is_answered_for)
{
	struct h2_world *w = *state;
	int32_t id = get(w, "/");
	size_t used;

	assert_int_equal(exchange_from_server(w->base.x, "\0\0\0\x07\0\0\0\0\x01", 9, &used), 0);
	h2_talk(w);
	is_status(w, id, "502");
	assert_true(exchange_over(w->base.x));
}
