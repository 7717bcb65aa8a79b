/* SPDX-License-Identifier: Apache-2.0 */
/* hutch-tap: which secret a request gets, in which form, and that none comes back. */
#include "unit.h"

#include "fail.h"
#include "tap-world.h"

#define VALUE	    "ghp_0123456789abcdefXYZ"
#define PLACEHOLDER "hutch-placeholder-0"
#define HOST	    "Host: " WORLD_HOST "\r\n"
#define GET	    "GET /v1/x HTTP/1.1\r\n" HOST
#define PLAIN	    "Accept-Encoding: identity\r\n"
#define END	    "\r\n"
#define OK	    "HTTP/1.1 200 OK\r\n"

enum {
	LONGEST = 8 * 1024, /* value of a secret */
};

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

#define SERVER(...) ((const char *const[]){ __VA_ARGS__, NULL })

static const struct tap_request *last(const struct world *w)
{
	assert_true(w->n_records > 0);
	return &w->record[w->n_records - 1];
}

static void sends(struct world *w, const char *request, const char *sent)
{
	for (uint32_t seed = 0; seed < 4; seed++) {
		w->seed = seed;
		world_begin(w);
		world_talk(w, request, NULL);
		assert_string_equal(buf_text(&w->to_server), sent);
	}
}

static void refuses(struct world *w, const char *request, const char *text)
{
	sends(w, request, "");
	assert_int_equal(last(w)->result, TAP_NO_SECRET);
	assert_int_equal(last(w)->status, 403);
	assert_string_equal(last(w)->text, text);
	assert_non_null(strstr(buf_text(&w->to_client), "X-Hutch-Denied: secret\r\n"));
	assert_non_null(strstr(buf_text(&w->to_client), text));
}

/* ---- forms ---- */

TEST_WORLD(test_bearer)
{
	struct world *w = *state;
	struct tap_secret *s = world_secret(w, "KEY", SECRET_BEARER, VALUE);

	sends(w, GET "Authorization: Bearer " PLACEHOLDER "\r\nA: b\r\n" END,
	      GET "A: b\r\n" PLAIN "Authorization: Bearer " VALUE "\r\n" END);
	/* Without a placeholder too, and instead of any other credential. */
	sends(w, GET END, GET PLAIN "Authorization: Bearer " VALUE "\r\n" END);
	sends(w,
	      GET "authorization: Basic eDp5\r\nAuthorization: x\r\nX-API-Key: 1\r\napi-key: 2\r\n"
		  "X-Goog-Api-Key: 3\r\nX-Auth-Token: 4\r\nPRIVATE-TOKEN: 5\r\nJob-Token: 6\r\n"
		  "Proxy-Authorization: 7\r\nX_Api_Key: 8\r\nAccept-Encoding: gzip, br\r\n"
		  "X-Other: " PLACEHOLDER "\r\n" END,
	      GET "X-Other: " PLACEHOLDER "\r\n" PLAIN "Authorization: Bearer " VALUE "\r\n" END);
	sends(w, GET "Connection: authorization, X-Api-Key\r\n" END,
	      GET PLAIN "Authorization: Bearer " VALUE "\r\n" END);
	/* Bodies and queries are left alone. */
	sends(w,
	      "POST /?k=" PLACEHOLDER " HTTP/1.1\r\n" HOST "Content-Length: 19\r\n" END PLACEHOLDER,
	      "POST /?k=" PLACEHOLDER " HTTP/1.1\r\n" HOST "Content-Length: 19\r\n" PLAIN
	      "Authorization: Bearer " VALUE "\r\n" END PLACEHOLDER);
	assert_int_equal(w->n_records, 0);
	world_talk(w, "", SERVER(OK "Content-Length: 0\r\n\r\n"));
	assert_int_equal(last(w)->secret, 0);
	assert_false(last(w)->reflected);

	s->value = NULL;
	refuses(w, GET END, "secret KEY has no value: hutch secret set KEY");
	s->value = "a\r\nX-Evil: b";
	refuses(w, GET END, "the value of secret KEY has a line break or control character");
}

TEST_WORLD(test_header)
{
	struct world *w = *state;
	struct tap_secret *s = world_secret(w, "KEY", SECRET_HEADER, VALUE);

	s->header = "X-Api-Key";
	sends(w, GET "x-api-key: a\r\nAuthorization: b\r\n" END,
	      GET PLAIN "X-Api-Key: " VALUE "\r\n" END);
	s->header = "X-Special";
	s->format = "Token token={};v=1";
	sends(w, GET "X-Special: a\r\nx_special: b\r\n" END,
	      GET PLAIN "X-Special: Token token=" VALUE ";v=1\r\n" END);
}

TEST_WORLD(test_basic)
{
	struct world *w = *state;
	struct tap_secret *s = world_secret(w, "KEY", SECRET_BASIC, VALUE);

	sends(w, GET END,
	      GET PLAIN
	      "Authorization: Basic eC1hY2Nlc3MtdG9rZW46Z2hwXzAxMjM0NTY3ODlhYmNkZWZYWVo=\r\n" END);
	/* The client's user name is kept, unless the policy has one. */
	sends(w, GET "Authorization: basic Z2l0Omh1dGNoLXBsYWNlaG9sZGVyLTA=\r\n" END,
	      GET PLAIN "Authorization: Basic Z2l0OmdocF8wMTIzNDU2Nzg5YWJjZGVmWFla\r\n" END);
	s->user = "bot";
	sends(w, GET "Authorization: basic Z2l0Omh1dGNoLXBsYWNlaG9sZGVyLTA=\r\n" END,
	      GET PLAIN "Authorization: Basic Ym90OmdocF8wMTIzNDU2Nzg5YWJjZGVmWFla\r\n" END);
}

TEST_WORLD(test_query)
{
	static const struct unit_row rows[] = {
		{ "/v1/x", "/v1/x?key=" },
		{ "/v1/x?", "/v1/x?key=" },
		{ "/v1/x?a=1&b", "/v1/x?a=1&b&key=" },
		{ "/v1/x?key=" PLACEHOLDER "&a=%20+", "/v1/x?a=%20+&key=" },
		{ "/v1/x?a=1&key=1&key=2&KEY=3&%6bey=4&key", "/v1/x?a=1&key=" },
	};
	struct world *w = *state;
	struct tap_secret *s = world_secret(w, "KEY", SECRET_QUERY, "va/lue +%");

	s->parameter = "key";
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char request[256], sent[256];

		(void)snprintf(request, sizeof(request),
			       "GET %s HTTP/1.1\r\n" HOST "Authorization: x\r\n" END,
			       rows[i].given);
		(void)snprintf(sent, sizeof(sent),
			       "GET %sva%%2Flue%%20%%2B%%25 HTTP/1.1\r\n" HOST PLAIN END,
			       rows[i].wanted);
		sends(w, request, sent);
	}
	world_talk(w, "", SERVER(OK "Content-Length: 0\r\n\r\n"));
	assert_string_equal(last(w)->path, "/v1/x");
}

/* ---- which one ---- */

static const char *const v1[] = { "/v1/**" };
static const char *const other_host[] = { "other.example.com" };
static const char *const parent_host[] = { "example.com" };

TEST_WORLD(test_where)
{
	static const char kept[] = GET "Authorization: Bearer " PLACEHOLDER "\r\n"
				       "X-Api-Key: a\r\n" END;
	struct world *w = *state;
	struct tap_secret *s = world_secret(w, "KEY", SECRET_BEARER, VALUE);
	struct l7_list here = s->hosts;

	/* Another host, no TLS: the placeholder passes, and is worthless there. */
	s->hosts = (struct l7_list){ other_host, 1 };
	sends(w, kept, kept);
	s->hosts = (struct l7_list){ parent_host, 1 };
	sends(w, kept, kept);
	s->hosts = here;
	w->conf.tls = false;
	w->conf.port = 80;
	sends(w, kept, kept);
	w->conf.tls = true;
	w->conf.port = 443;
	/* Another path. */
	s->paths = (struct l7_list){ v1, 1 };
	sends(w, GET END, GET PLAIN "Authorization: Bearer " VALUE "\r\n" END);
	sends(w, "GET /v2 HTTP/1.1\r\n" HOST "Authorization: Bearer " PLACEHOLDER "\r\n" END,
	      "GET /v2 HTTP/1.1\r\n" HOST "Authorization: Bearer " PLACEHOLDER "\r\n" END);
	sends(w, "GET /v2 HTTP/1.1\r\n" HOST "Authorization: a\r\nAuthorization: b\r\n" END,
	      "GET /v2 HTTP/1.1\r\n" HOST END);
	sends(w, "GET /v1/%2e%2e/v2 HTTP/1.1\r\n" HOST END, "");
	sends(w, "GET /v1/x HTTP/1.1\r\n" HOST "X-Rewrite-URL: /v2\r\n" END, "");
}

TEST_WORLD(test_several)
{
	struct world *w = *state;
	struct tap_secret *a = world_secret(w, "A", SECRET_BEARER, "value-of-a");
	struct tap_secret *b = world_secret(w, "B", SECRET_HEADER, "value-of-b");

	b->placeholder = "hutch-placeholder-1";
	b->header = "X-B";
	sends(w, GET "Authorization: Bearer hutch-placeholder-0\r\nX-B: x\r\n" END,
	      GET PLAIN "Authorization: Bearer value-of-a\r\n" END);
	sends(w, GET "Authorization: Bearer hutch-placeholder-1\r\n" END,
	      GET PLAIN "X-B: value-of-b\r\n" END);
	sends(w, GET "X-B: hutch-placeholder-1\r\n" END, GET PLAIN "X-B: value-of-b\r\n" END);
	/* In a password. */
	sends(w, GET "Authorization: Basic eDpodXRjaC1wbGFjZWhvbGRlci0x\r\n" END,
	      GET PLAIN "X-B: value-of-b\r\n" END);
	/* None of them: the foreign credentials go. */
	sends(w, GET "Authorization: Bearer own\r\nX-B: own\r\nX-Own: own\r\n" END,
	      GET "X-Own: own\r\n" END);
	sends(w, GET "X-Own: hutch-placeholder-0\r\n" END,
	      GET "X-Own: hutch-placeholder-0\r\n" END);
	/* One of them is bound to other paths. */
	a->paths = (struct l7_list){ v1, 1 };
	sends(w, "GET /v2 HTTP/1.1\r\n" HOST END,
	      "GET /v2 HTTP/1.1\r\n" HOST PLAIN "X-B: value-of-b\r\n" END);
	/* The chosen one has no value: the other one is not sent instead. */
	a->value = NULL;
	refuses(w, GET "Authorization: Bearer hutch-placeholder-0\r\n" END,
		"secret A has no value: hutch secret set A");
}

/* ---- responses ---- */

TEST_WORLD(test_reflected)
{
	struct world *w = *state;

	(void)world_secret(w, "KEY", SECRET_BEARER, VALUE);
	for (uint32_t seed = 0; seed < 40; seed++) {
		w->seed = seed;
		world_begin(w);
		world_talk(w, GET END GET END,
			   SERVER("HTTP/1.1 200 " VALUE "\r\nX-" VALUE ": Bearer " VALUE "\r\n"
				  "Content-Length: 50\r\n\r\n{" VALUE VALUE "ab}",
				  OK "Content-Length: 4\r\n\r\nghp_"));
		assert_string_equal(buf_text(&w->to_client),
				    "HTTP/1.1 200 ***********************\r\n"
				    "X-***********************: Bearer ***********************\r\n"
				    "Content-Length: 50\r\n\r\n"
				    "{**********************************************ab}" OK
				    "Content-Length: 4\r\n\r\nghp_");
		assert_int_equal(w->n_records, 2);
		assert_true(w->record[0].reflected);
		assert_false(w->record[1].reflected);
	}
}

/* A value of before a rotation is masked as long as the connection lives. */
TEST_WORLD(test_rotated)
{
	struct world *w = *state;
	struct tap_secret *s = world_secret(w, "KEY", SECRET_BEARER, VALUE);

	w->seed = 0;
	world_begin(w);
	world_talk(w, GET END, SERVER(OK "Content-Length: 0\r\n\r\n"));
	s->value = "second-value";
	buf_reset(&w->to_client);
	world_talk(w, GET END,
		   SERVER(OK "Transfer-Encoding: chunked\r\n\r\n1e\r\n" VALUE "second-\r\n"
			     "6\r\nvalue.\r\n0\r\n\r\n"));
	assert_null(strstr(buf_text(&w->to_client), VALUE));
	assert_null(strstr(buf_text(&w->to_client), "value"));
	assert_non_null(strstr(buf_text(&w->to_client), "************.\r\n0\r\n"));
	assert_non_null(strstr(buf_text(&w->to_server), "Bearer second-value\r\n"));
	assert_true(last(w)->reflected);
}

/* Bytes that cannot begin the secret are not delayed. */
TEST_WORLD(test_events)
{
	struct world *w = *state;

	(void)world_secret(w, "KEY", SECRET_BEARER, VALUE);
	w->seed = 0;
	world_begin(w);
	world_talk(w, GET END, SERVER(OK "Content-Type: text/event-stream\r\n\r\n"));
	for (int i = 0; i < 10; i++) {
		buf_reset(&w->to_client);
		world_talk(w, "", SERVER("data: {\"ghp\": 1}\n\n"));
		assert_string_equal(buf_text(&w->to_client), "data: {\"ghp\": 1}\n\n");
	}
	world_talk(w, "", SERVER("data: ghp_01"));
	assert_true(str_has_suffix(buf_text(&w->to_client), "data: "));
	exchange_server_eof(w->x);
	world_drain(w);
	assert_true(str_has_suffix(buf_text(&w->to_client), "data: ghp_01"));
	assert_int_equal(last(w)->result, TAP_DONE);
}

TEST_WORLD(test_websocket)
{
	struct world *w = *state;

	(void)world_secret(w, "KEY", SECRET_BEARER, VALUE);
	w->seed = 0;
	world_begin(w);
	world_talk(w,
		   GET "Connection: upgrade\r\nUpgrade: websocket\r\n"
		       "Sec-WebSocket-Extensions: permessage-deflate\r\n" END,
		   SERVER("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n"
			  "Upgrade: websocket\r\n\r\n\x81\x17" VALUE "!"));
	assert_null(strstr(buf_text(&w->to_server), "deflate"));
	assert_non_null(strstr(buf_text(&w->to_server), VALUE));
	assert_true(str_has_suffix(buf_text(&w->to_client), "\x81\x17***********************!"));
	exchange_server_eof(w->x);
	assert_true(last(w)->reflected);
	assert_true(last(w)->upgraded);
}

TEST_WORLD(test_too_many_values)
{
	struct world *w = *state;
	struct tap_secret *s = world_secret(w, "KEY", SECRET_BEARER, VALUE);
	char value[64];
	int i;

	w->seed = 0;
	world_begin(w);
	s->value = value;
	for (i = 0; i < 1000 && !exchange_over(w->x); i++) {
		(void)snprintf(value, sizeof(value), "value/of the+secret:%d", i);
		w->n_records = 0;
		world_talk(w, GET END, SERVER(OK "Content-Length: 0\r\n\r\n"));
	}
	assert_true(i > 20 && i < 200);
	assert_int_equal(last(w)->result, TAP_NO_SECRET);
}

/* The server returns all that it got: none of it reaches the client in the form after `mark`. */
static void longest_value(struct world *w, const char *mark)
{
	_cleanup_buf_ struct buf echo = BUF_INIT(256 * 1024);
	char piece[64];
	const char *at;

	w->seed = 0;
	world_begin(w);
	world_talk(w, GET END, NULL);
	assert_int_equal(w->n_records, 0);
	at = strstr(buf_text(&w->to_server), mark);
	assert_non_null(at);
	at += strlen(mark);
	assert_in_range(strcspn(at, " \r"), LONGEST, 3 * LONGEST);
	assert_int_equal(buf_printf(&echo, OK "Content-Length: %zu\r\n\r\n%s", w->to_server.len,
				    buf_text(&w->to_server)),
			 0);
	world_talk(w, "", SERVER(buf_text(&echo)));
	assert_true(last(w)->reflected);
	(void)snprintf(piece, sizeof(piece), "%s", at);
	assert_null(strstr(buf_text(&w->to_client), piece));
	(void)snprintf(piece, sizeof(piece), "%s", at + LONGEST / 2);
	assert_null(strstr(buf_text(&w->to_client), piece));
}

TEST_WORLD(test_longest_value)
{
	static const char some[] = "k+/\"9% v";
	struct world *w = *state;
	struct tap_secret *s = world_secret(w, "KEY", SECRET_BEARER, NULL);
	static char value[LONGEST + 1];

	for (size_t i = 0; i < LONGEST; i++)
		value[i] = some[i % (sizeof(some) - 1)];
	value[LONGEST - 1] = 'v';
	s->value = value;
	s->parameter = "key";
	s->form = SECRET_QUERY;
	longest_value(w, "?key=");
	s->form = SECRET_BASIC;
	longest_value(w, "Authorization: Basic ");
	for (size_t i = 0; i < LONGEST; i++)
		value[i] = value[i] == ' ' ? '_' : value[i];
	s->form = SECRET_BEARER;
	longest_value(w, "Authorization: Bearer ");
	s->form = SECRET_HEADER;
	s->header = "X-Key";
	longest_value(w, "X-Key: ");
}

TEST_WORLD(test_compressed)
{
	struct world *w = *state;

	(void)world_secret(w, "KEY", SECRET_BEARER, VALUE);
	w->seed = 0;
	world_begin(w);
	world_talk(w, GET END, SERVER(OK "Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"));
	assert_int_equal(last(w)->result, TAP_DONE);
	assert_non_null(strstr(last(w)->text, "was not searched"));
}

/* ---- without memory ---- */

static int transfer(struct world *w, const char *request, const char *response)
{
	size_t used;
	int r = exchange_new(&w->conf, &w->x);

	if (r == 0)
		r = exchange_from_client(w->x, request, strlen(request), &used);
	if (r == 0)
		r = exchange_from_server(w->x, response, strlen(response), &used);
	return r;
}

static void sweep(struct world *w, const char *request, const char *response)
{
	bool reached = true;

	for (unsigned int n = 1; reached; n++) {
		int r;

		w->x = exchange_free(w->x);
		w->n_records = 0;
		fail_arm(n, ENOMEM);
		r = transfer(w, request, response);
		reached = fail_reached();
		fail_off();
		assert_true(r == 0 || r == -ENOMEM);
		assert_true(reached || r == 0);
		if (!w->x)
			continue;
		assert_true(r == 0 || exchange_over(w->x));
		assert_true(w->n_records > 0);
		world_drain(w);
		assert_null(strstr(buf_text(&w->to_client), VALUE));
		if (w->n_records > 0 && last(w)->secret < 0)
			assert_null(strstr(buf_text(&w->to_server), VALUE));
		buf_reset(&w->to_server);
		buf_reset(&w->to_client);
	}
}

TEST_WORLD(test_memory)
{
	struct world *w = *state;
	struct tap_secret *s = world_secret(w, "KEY", SECRET_BEARER, VALUE);

	sweep(w, GET "Authorization: Basic eDpodXRjaC1wbGFjZWhvbGRlci0x\r\n" END,
	      OK "X: " VALUE "\r\nContent-Length: 23\r\n\r\n" VALUE);
	s->form = SECRET_BASIC;
	sweep(w, GET END, OK "Content-Length: 23\r\n\r\n" VALUE);
	s->form = SECRET_QUERY;
	s->parameter = "key";
	sweep(w, "GET /?a=b&%6bey=c HTTP/1.1\r\n" HOST END, OK "Content-Length: 0\r\n\r\n");
	s->form = SECRET_AWS;
	s->value = "AKID:" VALUE ":token";
	sweep(w,
	      "POST /%20?c&a=%20&b HTTP/1.1\r\n" HOST "X-Amz-Date: 20150830T123600Z\r\n"
	      "Authorization: AWS4-HMAC-SHA256 Credential=P/20150830/r/s/aws4_request, "
	      "SignedHeaders=host;x-amz-date, Signature=00\r\nContent-Length: 5\r\n" END "hello",
	      OK "Content-Length: 0\r\n\r\n");
}
