/* SPDX-License-Identifier: Apache-2.0 */
/* hutch-tap: calls of language models over HTTP/2. The test is the warden. */
#include "unit.h"

#include "tap-h2-world.h"
#include "tap/gateway.h"

enum {
	CALLS_MAX = 8
};

#define FIELDS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define POST(p)                                                                             \
	FIELDS(":method", "POST", ":scheme", "https", ":authority", WORLD_HOST, ":path", p, \
	       "accept-encoding", "br")
#define EVENTS	      FIELDS(":status", "200", "content-type", "text/event-stream")
#define BODY	      "{\"model\":\"claude-x\",\"max_tokens\":100,\"stream\":true}"
#define TEST_H2(name) TEST_WITH(name, setup, teardown)

#define BEGIN \
	"data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1000}}}\n\n"
#define TEXT                                                                       \
	"data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":" \
	"\"text_delta\",\"text\":\"12345678901234567890\"}}\n\n"
#define FINISH                                                                    \
	"data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":77}}\n\n" \
	"data: {\"type\":\"message_stop\"}\n\n"

static struct gateway *asked[CALLS_MAX];
static struct tap_reserve ask;
static size_t n_asked, n_settled;
static uint64_t settled;
static struct tap_llm rule;

static int reserve(void *arg, struct gateway *g, struct tap_reserve *r)
{
	assert_true(n_asked < CALLS_MAX);
	asked[n_asked++] = g;
	g->id = r->call = n_asked;
	ask = *r;
	return 0;
}

static void settle(void *arg, struct gateway *g, struct tap_settle *s)
{
	assert_ptr_equal(g, asked[g->id - 1]);
	asked[g->id - 1] = NULL;
	g->id = 0;
	n_settled++;
	settled = s->tokens;
}

static int setup(void **state)
{
	static const char *const hosts[] = { WORLD_HOST }, *const models[] = { "claude-*" };
	struct h2_world *w = calloc(1, sizeof(*w));

	world_init(&w->base);
	rule = (struct tap_llm){ .provider = LLM_ANTHROPIC,
				 .hosts = { hosts, 1 },
				 .models = { models, 1 },
				 .tokens = 5000,
				 .at = "a.yaml:5" };
	w->base.config.llm = &rule;
	w->base.config.n_llm = 1;
	w->base.conf.reserve = reserve;
	w->base.conf.settle = settle;
	n_asked = n_settled = 0;
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

static void answer(struct h2_world *w, size_t i, const struct tap_grant *g)
{
	assert_non_null(asked[i]);
	gateway_answer(asked[i], g);
	assert_int_equal(exchange_resume(w->base.x), 0);
	h2_talk(w);
}

static void grant(struct h2_world *w, size_t i, uint64_t tokens)
{
	answer(w, i, &(struct tap_grant){ .granted = true, .tokens = tokens, .usd = UINT64_MAX });
}

static const char *body(struct h2_peer *p, int32_t id)
{
	return buf_text(&seen_of(p, id)->body);
}

static const char *head(struct h2_peer *p, int32_t id)
{
	return buf_text(&seen_of(p, id)->head);
}

static const struct tap_request *last(const struct h2_world *w)
{
	assert_true(w->base.n_records > 0);
	return &w->base.record[w->base.n_records - 1];
}

TEST_H2(calls_wait_side_by_side)
{
	struct h2_world *w = *state;
	int32_t id[3];

	for (int i = 0; i < 3; i++)
		id[i] = h2_ask(w, POST("/v1/messages"), BODY, strlen(BODY), false);
	h2_talk(w);
	assert_int_equal(n_asked, 3);
	assert_int_equal(w->server.n, 0);
	for (size_t i = 3; i-- > 0;) {
		grant(w, i, 1 << 20);
		assert_int_equal(w->server.n, 3 - i);
	}
	for (size_t i = 0; i < 3; i++) {
		const int32_t sid = w->server.seen[i].id;

		assert_string_equal(body(&w->server, sid), BODY);
		assert_true(seen_of(&w->server, sid)->ended);
		assert_null(strstr(head(&w->server, sid), "br"));
		h2_reply(w, sid, EVENTS, BEGIN TEXT FINISH, strlen(BEGIN TEXT FINISH), false);
		h2_talk(w);
		assert_int_equal(settled, 1077);
		assert_int_equal(last(w)->llm.output, 77);
	}
	for (size_t i = 0; i < 3; i++) {
		assert_string_equal(body(&w->client, id[i]), BEGIN TEXT FINISH);
		assert_true(seen_of(&w->client, id[i])->ended);
	}
	assert_int_equal(n_settled, 3);
	assert_true(exchange_idle(w->base.x));
}

TEST_H2(a_refusal_leaves_the_connection)
{
	struct h2_world *w = *state;
	int32_t id = h2_ask(w, POST("/v1/messages"), BODY, strlen(BODY), false), other;

	h2_talk(w);
	other = h2_ask(w, POST("/v1/messages"), "{\"model\":\"o3\"}", 14, false);
	h2_talk(w);
	assert_non_null(strstr(body(&w->client, other), "model o3 is not allowed"));
	answer(w, 0, &(struct tap_grant){ .text = "the budget is spent" });
	assert_non_null(strstr(head(&w->client, id), ":status: 400\n"));
	assert_non_null(strstr(head(&w->client, id), "x-should-retry: false\n"));
	assert_non_null(strstr(head(&w->client, id), "content-type: application/json\n"));
	assert_non_null(strstr(body(&w->client, id), "hutch: the budget is spent"));
	assert_int_equal(w->server.n, 0);
	assert_int_equal(n_settled, 1);
	assert_int_equal(last(w)->result, TAP_BUDGET);
	assert_false(exchange_over(w->base.x));
}

TEST_H2(a_stream_ends_with_its_budget)
{
	struct h2_world *w = *state;
	int32_t id = h2_ask(w, POST("/v1/messages"), BODY, strlen(BODY), false);

	h2_talk(w);
	grant(w, 0, 1004);
	h2_reply(w, 1, EVENTS, BEGIN TEXT, strlen(BEGIN TEXT), true);
	h2_talk(w);
	assert_non_null(strstr(body(&w->client, id), "\"stop_reason\":\"max_tokens\""));
	assert_non_null(strstr(body(&w->client, id), "message_stop"));
	assert_true(seen_of(&w->client, id)->ended);
	assert_true(seen_of(&w->server, 1)->closed);
	assert_int_equal(last(w)->result, TAP_BUDGET);
	assert_int_equal(settled, 1005);
	/* The next call uses the same connection. */
	id = h2_ask(w, POST("/v1/messages"), BODY, strlen(BODY), false);
	h2_talk(w);
	grant(w, 1, 1 << 20);
	h2_reply(w, 3, EVENTS, BEGIN TEXT FINISH, strlen(BEGIN TEXT FINISH), false);
	h2_talk(w);
	assert_string_equal(body(&w->client, id), BEGIN TEXT FINISH);
	assert_int_equal(settled, 1077);
}

TEST_H2(a_client_that_resets_is_settled)
{
	struct h2_world *w = *state;
	int32_t id = h2_ask(w, POST("/v1/messages"), BODY, strlen(BODY), false);

	h2_talk(w);
	assert_int_equal(
		nghttp2_submit_rst_stream(w->client.session, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL),
		0);
	h2_talk(w);
	assert_int_equal(n_settled, 1);
	assert_int_equal(settled, 0);
	assert_int_equal(w->server.n, 0);
}
