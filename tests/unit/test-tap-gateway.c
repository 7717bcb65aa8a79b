/* SPDX-License-Identifier: Apache-2.0 */
/* hutch-tap: calls of language models. The test is the warden. */
#include "unit.h"

#include <zlib.h>

#include "tap-world.h"
#include "tap/gateway.h"

#define HOST   "Host: " WORLD_HOST "\r\n"
#define EVENTS "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

static struct gateway *asked;
static struct tap_reserve ask;
static size_t n_asked, n_settled;
static uint64_t settled_tokens, settled_usd;
static bool as_reserved;
static struct tap_llm rule;

static int reserve(void *arg, struct gateway *g, struct tap_reserve *r)
{
	r->call = ++n_asked;
	g->id = r->call;
	asked = g;
	ask = *r;
	return 0;
}

static void settle(void *arg, struct gateway *g, struct tap_settle *s)
{
	assert_ptr_equal(g, asked);
	g->id = 0;
	asked = NULL;
	n_settled++;
	settled_tokens = s->tokens;
	settled_usd = s->usd;
	as_reserved = s->as_reserved;
}

static int setup(void **state)
{
	static const char *const hosts[] = { WORLD_HOST }, *const models[] = { "claude-*",
									       "gpt-5" };
	struct world *w = malloc(sizeof(*w));

	world_init(w);
	rule = (struct tap_llm){ .provider = LLM_ANTHROPIC,
				 .hosts = { hosts, 1 },
				 .models = { models, 2 },
				 .at = "a.yaml:5" };
	w->config.llm = &rule;
	w->config.n_llm = 1;
	w->conf.reserve = reserve;
	w->conf.settle = settle;
	asked = NULL;
	n_asked = n_settled = 0;
	settled_tokens = settled_usd = UINT64_MAX;
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

static void post(struct world *w, const char *path, const char *more, const char *body)
{
	char text[4096];

	world_begin(w);
	(void)snprintf(text, sizeof(text),
		       "POST %s HTTP/1.1\r\n" HOST "%sContent-Length: %zu\r\n\r\n%s", path, more,
		       strlen(body), body);
	assert_int_equal(world_feed(w, true, text, strlen(text)), strlen(text));
}

static void respond(struct world *w, const char *text)
{
	(void)world_feed(w, false, text, strlen(text));
}

static void grant(struct world *w, const struct tap_grant *g)
{
	assert_non_null(asked);
	gateway_answer(asked, g);
	assert_int_equal(exchange_resume(w->x), 0);
	world_drain(w);
}

static const struct tap_request *last(const struct world *w)
{
	assert_true(w->n_records > 0);
	return &w->record[w->n_records - 1];
}

static void assert_has(const struct buf *b, const char *text)
{
	if (!strstr(buf_text(b), text))
		fail_msg("no '%s' in:\n%s", text, buf_text(b));
}

static void assert_refused(const struct world *w, const char *status, const char *text,
			   enum tap_result result)
{
	assert_int_equal(w->to_server.len, 0);
	assert_has(&w->to_client, status);
	assert_has(&w->to_client, text);
	assert_int_equal(last(w)->result, result);
	assert_true(exchange_over(w->x));
	assert_int_equal(n_asked, n_settled);
}

#define BODY "{\"model\":\"claude-x\",\"max_tokens\":100,\"stream\":true}"

/* Responds with chunks, the texts before NULL. */
static void respond_events(struct world *w, const char *const *events)
{
	_cleanup_buf_ struct buf b = BUF_INIT(8192);

	(void)buf_puts(&b, "HTTP/1.1 200 OK\r\n" EVENTS);
	for (; *events; events++)
		(void)buf_printf(&b, "%zx\r\n%s\r\n", strlen(*events), *events);
	(void)buf_puts(&b, "0\r\n\r\n");
	respond(w, b.data);
}

static const char *const stream[] = {
	"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\","
	"\"usage\":{\"input_tokens\":1000}}}\n\n",
	"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\","
	"\"text\":\"12345678901234567890\"}}\n\n",
	"data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":77}}\n\n",
	"data: {\"type\":\"message_stop\"}\n\n", NULL
};

/* ---- calls ---- */

TEST_WORLD(passes_a_call_and_reads_its_usage)
{
	struct world *w = *state;

	for (w->seed = 0; w->seed < 8; w->seed++) {
		post(w, "/v1/messages?beta=true", "Accept-Encoding: gzip, br\r\n", BODY);
		assert_has(&w->to_server, "POST /v1/messages?beta=true HTTP/1.1\r\n");
		assert_has(&w->to_server, "\r\n\r\n" BODY);
		assert_null(strstr(buf_text(&w->to_server), "br"));
		respond_events(w, stream);
		assert_int_equal(w->n_records, 1);
		assert_int_equal(last(w)->result, TAP_DONE);
		assert_true(last(w)->llm.is_call);
		assert_false(last(w)->llm.is_guess);
		assert_string_equal(last(w)->llm.model, "claude-x");
		assert_int_equal(last(w)->llm.input, 1000);
		assert_int_equal(last(w)->llm.output, 77);
		world_unchunk(&w->to_client);
		assert_has(&w->to_client, "message_stop");
	}
	assert_int_equal(n_asked, 0); /* there is no budget */
}

TEST_WORLD(waits_for_the_warden)
{
	struct world *w = *state;
	static const struct llm_price price = { .input = 3000000, .output = 15000000 };

	rule.tokens = 5000;
	rule.has_price = true;
	rule.price = price;
	post(w, "/v1/messages", "", BODY);
	assert_int_equal(w->to_server.len, 0);
	assert_int_equal(ask.least_tokens, strlen(BODY) / 3 + 1);
	assert_int_equal(ask.tokens, ask.least_tokens + 100);
	assert_int_equal(ask.least_usd, 3 * ask.least_tokens);
	assert_int_equal(ask.usd, 3 * ask.least_tokens + 15 * 100);
	/* Bytes of the next request stay where they are. */
	assert_int_equal(world_feed(w, true, "GET / HTTP/1.1\r\n", 16), 0);
	grant(w, &(struct tap_grant){ .granted = true, .tokens = 1 << 20, .usd = UINT64_MAX });
	assert_has(&w->to_server, "\r\n\r\n" BODY);
	respond_events(w, stream);
	assert_int_equal(last(w)->result, TAP_DONE);
	assert_int_equal(settled_tokens, 1077);
	assert_int_equal(settled_usd, 3 * 1000 + 15 * 77);
	assert_int_equal(last(w)->llm.cost, settled_usd);
	assert_int_equal(n_settled, 1);
}

TEST_WORLD(a_spent_budget_refuses)
{
	struct world *w = *state;

	rule.requests = 1;
	post(w, "/v1/messages", "", BODY);
	grant(w, &(struct tap_grant){ .text = "the budget is spent" });
	assert_refused(w, "HTTP/1.1 400 ", "\"hutch: the budget is spent\"", TAP_BUDGET);
	assert_has(&w->to_client, "X-Should-Retry: false\r\n");
	assert_has(&w->to_client, "Content-Type: application/json\r\n");
	assert_int_equal(settled_tokens, 0);
}

TEST_WORLD(a_stream_ends_with_its_budget)
{
	struct world *w = *state;

	rule.tokens = 5000;
	for (w->seed = 0; w->seed < 8; w->seed++) {
		post(w, "/v1/messages", "", BODY);
		grant(w, &(struct tap_grant){ .granted = true, .tokens = 1004, .usd = UINT64_MAX });
		respond_events(w, stream);
		assert_int_equal(last(w)->result, TAP_BUDGET);
		assert_int_equal(last(w)->status, 200);
		assert_true(exchange_over(w->x));
		/* The chunks end in order. */
		assert_string_equal(w->to_client.data + w->to_client.len - 5, "0\r\n\r\n");
		world_unchunk(&w->to_client);
		assert_has(&w->to_client, "12345678901234567890");
		assert_has(&w->to_client, "\"stop_reason\":\"max_tokens\"");
		assert_has(&w->to_client, "event: message_stop");
		assert_null(strstr(buf_text(&w->to_client), "77"));
		assert_int_equal(settled_tokens, 1000 + 5);
	}
}

TEST_WORLD(a_call_without_usage_is_guessed)
{
	struct world *w = *state;

	rule.provider = LLM_OPENAI;
	rule.tokens = 5000;
	post(w, "/v1/chat/completions", "", "{\"model\":\"gpt-5\",\"stream\":true}");
	assert_int_equal(ask.tokens, ask.least_tokens + GATEWAY_OUTPUT_MAX);
	grant(w, &(struct tap_grant){ .granted = true, .tokens = ask.tokens, .usd = UINT64_MAX });
	respond_events(
		w,
		(const char *const[]){
			"data: {\"choices\":[{\"delta\":{\"content\":\"1234567890123456\"}}]}\n\n",
			"data: [DONE]\n\n", NULL });
	assert_int_equal(last(w)->result, TAP_DONE);
	assert_true(last(w)->llm.is_guess);
	assert_int_equal(last(w)->llm.output, 4);
	assert_int_equal(settled_tokens, ask.least_tokens + 4);
}

TEST_WORLD(an_error_of_the_provider_is_free)
{
	struct world *w = *state;

	rule.tokens = 5000;
	post(w, "/v1/messages", "", BODY);
	grant(w, &(struct tap_grant){ .granted = true, .tokens = ask.tokens, .usd = UINT64_MAX });
	respond(w, "HTTP/1.1 529 Overloaded\r\nContent-Length: 2\r\n\r\n{}");
	assert_int_equal(last(w)->status, 529);
	assert_int_equal(settled_tokens, 0);
	assert_has(&w->to_client, "HTTP/1.1 529 Overloaded\r\n");
}

TEST_WORLD(a_client_that_leaves_is_settled)
{
	struct world *w = *state;

	rule.tokens = 5000;
	post(w, "/v1/messages", "", BODY);
	exchange_abort(w->x, TAP_CLIENT_CLOSED, "gone");
	w->x = exchange_free(w->x);
	assert_int_equal(n_settled, 1);
	assert_int_equal(settled_tokens, 0);

	post(w, "/v1/messages", "", BODY);
	grant(w, &(struct tap_grant){ .granted = true, .tokens = ask.tokens, .usd = UINT64_MAX });
	respond(w, "HTTP/1.1 200 OK\r\n" EVENTS);
	exchange_abort(w->x, TAP_CLIENT_CLOSED, "gone");
	assert_int_equal(n_settled, 2);
	assert_false(as_reserved);
	assert_int_equal(settled_tokens, ask.least_tokens); /* the server has the request */
}

/* A program must not use models for nothing by leaving before the answer with its usage. */
TEST_WORLD(an_answer_that_nothing_waits_for_counts_as_reserved)
{
	static const struct {
		const char *answer;
		enum tap_result result;
		bool as_reserved;
	} rows[] = {
		{ "", TAP_CLIENT_CLOSED, true },
		{ "", TAP_TIME, true },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"id\":", TAP_CLIENT_CLOSED,
		  true },
		{ "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
		  TAP_DONE, true },
		{ "", TAP_SERVER_CLOSED, false },
		{ "HTTP/1.1 529 Overloaded\r\nContent-Length: 9\r\n\r\n{}", TAP_CLIENT_CLOSED,
		  false },
	};
	struct world *w = *state;

	rule.tokens = 5000;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		post(w, "/v1/messages", "", BODY);
		grant(w, &(struct tap_grant){
				 .granted = true, .tokens = ask.tokens, .usd = UINT64_MAX });
		respond(w, rows[i].answer);
		if (rows[i].result != TAP_DONE)
			exchange_abort(w->x, rows[i].result, "gone");
		assert_int_equal(last(w)->result, rows[i].result);
		assert_int_equal(n_settled, i + 1);
		assert_int_equal(as_reserved, rows[i].as_reserved);
		assert_int_equal(last(w)->llm.is_guess, rows[i].as_reserved);
		assert_int_equal(last(w)->llm.input, rows[i].as_reserved ? ask.least_tokens : 0);
	}
}

/* ---- refusals ---- */

TEST_WORLD(refuses_models)
{
	static const struct unit_row rows[] = {
		{ "{\"model\":\"gpt-4\"}",
		  "model gpt-4 is not allowed: rule a.yaml:5 allows claude-*, gpt-5" },
		{ "{\"model\":\"claude-x\",\"model\":\"claude-y\"}", "two models" },
		{ "{\"model\":\"claude-x\",\"Model\":\"o9\"}", "two models" },
		{ "{\"model\":\"claude-x\",\"models\":[\"o9\"]}", "list of models" },
		{ "{}", "no model" },
		{ "model=claude-x", "not JSON" },
	};
	struct world *w = *state;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		post(w, "/v1/messages", "", rows[i].given);
		assert_refused(w, "HTTP/1.1 400 ", rows[i].wanted, TAP_LLM);
		assert_has(&w->to_client, "\"invalid_request_error\"");
	}
}

TEST_WORLD(refuses_other_requests)
{
	struct world *w = *state;
	static const char ws[] =
		"GET /v1/messages HTTP/1.1\r\n" HOST "Connection: Upgrade\r\nUpgrade: websocket\r\n"
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

	post(w, "/v1/messages/batches", "", BODY);
	assert_refused(w, "HTTP/1.1 400 ", "/v1/messages/batches is not a call", TAP_LLM);
	post(w, "/v1/messages", "Content-Encoding: br\r\n", BODY);
	assert_refused(w, "HTTP/1.1 400 ", "another coding than gzip", TAP_LLM);
	post(w, "/v1/messages", "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n", BODY);
	assert_refused(w, "HTTP/1.1 400 ", "another coding than gzip", TAP_LLM);
	post(w, "/v1/messages", "Content-Encoding: gzip\r\n", BODY);
	assert_refused(w, "HTTP/1.1 400 ", "not one whole gzip text", TAP_LLM);
	post(w, "/v1/messages", "X-HTTP-Method-Override: PUT\r\n", BODY);
	assert_refused(w, "HTTP/1.1 400 ", "", TAP_BAD_REQUEST);
	world_begin(w);
	world_talk(w, ws, NULL);
	assert_refused(w, "HTTP/1.1 426 Upgrade Required\r\n", "WebSocket", TAP_LLM);
	rule.provider = LLM_GEMINI;
	post(w, "/v1beta/models/gemini-x:generateContent", "", "{\"contents\":[]}");
	assert_refused(w, "HTTP/1.1 403 ", "PERMISSION_DENIED", TAP_LLM);
}

TEST_WORLD(other_reads_pass)
{
	struct world *w = *state;

	world_begin(w);
	world_talk(w, "GET /api/hello HTTP/1.1\r\n" HOST "\r\n",
		   (const char *const[]){ "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", NULL });
	assert_has(&w->to_server, "GET /api/hello HTTP/1.1\r\n");
	assert_int_equal(last(w)->result, TAP_DONE);
	assert_false(last(w)->llm.is_call);
}

TEST_WORLD(a_budget_in_dollars_needs_a_price)
{
	struct world *w = *state;

	rule.usd = 1;
	post(w, "/v1/messages", "", BODY);
	assert_refused(w, "HTTP/1.1 400 ", "model claude-x has no known price", TAP_LLM);
}

static size_t zip(const char *text, size_t n, char *out, size_t size)
{
	z_stream z = { .next_in = (Bytef *)text,
		       .avail_in = (uInt)n,
		       .next_out = (Bytef *)out,
		       .avail_out = (uInt)size };

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY),
			 Z_OK);
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	assert_int_equal(deflateEnd(&z), Z_OK);
	return size - z.avail_out;
}

static void post_zipped(struct world *w, const char *body, size_t n)
{
	char head[256];

	world_begin(w);
	(void)snprintf(head, sizeof(head),
		       "POST /v1/messages HTTP/1.1\r\n" HOST
		       "Content-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n",
		       n);
	(void)world_feed(w, true, head, strlen(head));
	(void)world_feed(w, true, body, n);
}

/* The server gets the body as it was; the model is read in its text. */
TEST_WORLD(compressed_bodies)
{
	struct world *w = *state;
	const size_t large = GATEWAY_BODY_MAX + 1000;
	char zipped[1024], *bomb = malloc(large), *small = malloc(large / 100);
	size_t n = zip(BODY, strlen(BODY), zipped, sizeof(zipped));

	assert_true(bomb && small);
	post_zipped(w, zipped, n);
	assert_true(w->to_server.len > n);
	assert_memory_equal(w->to_server.data + w->to_server.len - n, zipped, n);
	assert_has(&w->to_server, "Content-Encoding: gzip\r\n");
	/* Cut, followed by another text, and another model. */
	post_zipped(w, zipped, n - 1);
	assert_refused(w, "HTTP/1.1 400 ", "not one whole gzip text", TAP_LLM);
	memcpy(zipped + n, zipped, n);
	post_zipped(w, zipped, 2 * n);
	assert_refused(w, "HTTP/1.1 400 ", "not one whole gzip text", TAP_LLM);
	n = zip("{\"model\":\"o3\"}", 14, zipped, sizeof(zipped));
	post_zipped(w, zipped, n);
	assert_refused(w, "HTTP/1.1 400 ", "model o3 is not allowed", TAP_LLM);
	memset(bomb, ' ', large);
	n = zip(bomb, large, small, large / 100);
	post_zipped(w, small, n);
	assert_refused(w, "HTTP/1.1 400 ", "too large once decompressed", TAP_LLM);
	free(bomb);
	free(small);
}

TEST_WORLD(large_bodies)
{
	struct world *w = *state;
	const size_t n = 3 * 1024 * 1024;
	char *text = malloc(n + 1), head[200];

	assert_non_null(text);
	memset(text, 'x', n);
	text[n] = '\0';
	memcpy(text, "{\"model\":\"claude-x\",\"a\":\"", 25);
	memcpy(text + n - 2, "\"}", 2);
	world_begin(w);
	(void)snprintf(head, sizeof(head),
		       "POST /v1/messages HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n", n);
	(void)world_feed(w, true, head, strlen(head));
	assert_int_equal(world_feed(w, true, text, n), n);
	assert_true(w->to_server.len > n);
	free(text);
	(void)snprintf(head, sizeof(head),
		       "POST /v1/messages HTTP/1.1\r\n" HOST "Content-Length: %d\r\n\r\n",
		       GATEWAY_BODY_MAX + 1);
	world_begin(w);
	(void)world_feed(w, true, head, strlen(head));
	assert_refused(w, "HTTP/1.1 400 ", "more than 33554432 bytes", TAP_TOO_LARGE);
}
