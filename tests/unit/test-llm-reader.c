/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/str.h"
#include "llm/llm.h"

/* Reads pieces of at most `step` bytes; returns the number of events. */
static size_t read_all(struct llm_reader *r, const char *text, size_t n, size_t step)
{
	size_t events = 0;
	bool ends;

	while (n > 0) {
		const size_t k = MIN(n, step);
		char *piece = unit_copy(text, k);
		const size_t used = llm_reader_feed(r, piece, k, &ends);

		free(piece);
		assert_true(used > 0 && used <= k);
		events += ends;
		text += used;
		n -= used;
	}
	return events;
}

struct row {
	enum llm_kind kind;
	bool is_stream;
	const char *text;
	struct llm_usage usage;
};

#define EVENT(name, data) "event: " name "\ndata: " data "\n\n"

static const struct row rows[] = {
	{ LLM_MESSAGES,
	  true,
	  EVENT("message_start", "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\","
				 "\"usage\":{\"input_tokens\":1000,"
				 "\"cache_creation_input_tokens\":40,\"cache_read_input_tokens\":"
				 "200,\"output_tokens\":1}}}") EVENT("ping", "{\"type\":\"ping\"}")
		  EVENT("content_block_start", "{\"type\":\"content_block_start\",\"index\":0,"
					       "\"content_block\":{\"type\":\"text\"}}")
			  EVENT("content_block_delta",
				"{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"
				"\"text_delta\",\"text\":\"a message with \\\"usage\\\" in it\"}}")
				  EVENT("content_block_stop", "{\"type\":\"content_block_stop\","
							      "\"index\":0}")
					  EVENT("message_delta",
						"{\"type\":\"message_delta\",\"delta\":{\"stop_"
						"reason\":"
						"\"end_turn\"},\"usage\":{\"output_tokens\":77}}")
						  EVENT("message_stop",
							"{\"type\":\"message_stop\"}"),
	  { 1000, 200, 40, 77 } },
	{ LLM_MESSAGES,
	  false,
	  "{\"id\":\"m\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}],\"usage\":{\"input_"
	  "tokens\":5,"
	  "\"cache_read_input_tokens\":6,\"output_tokens\":7}}",
	  { 5, 6, 0, 7 } },
	{ LLM_CHAT,
	  true,
	  "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\r\n\r\n: "
	  "comment\r\n\r\n"
	  "data: "
	  "{\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":50,\"completion_tokens\":8,"
	  "\"prompt_tokens_details\":{\"cached_tokens\":20},\"total_tokens\":58}}\r\n\r\ndata: "
	  "[DONE]\r\n\r\n",
	  { 30, 20, 0, 8 } },
	{ LLM_CHAT,
	  false,
	  "{\"choices\":[{\"message\":{\"content\":\"x\"}}],\"usage\":{\"completion_tokens\":8,"
	  "\"prompt_tokens_details\":{\"cached_tokens\":20},\"prompt_tokens\":50}}",
	  { 30, 20, 0, 8 } },
	{ LLM_RESPONSES,
	  true,
	  EVENT("response.created",
		"{\"type\":\"response.created\",\"response\":{\"id\":\"r\","
		"\"usage\":null}}") EVENT("response.output_text.delta",
					  "{\"type\":\"response.output_text.delta\","
					  "\"sequence_number\":4,\"delta\":\"hello\"}")
		  EVENT("response.completed",
			"{\"type\":\"response.completed\",\"response\":{\"output\":[{\"usage\":{"
			"\"input_tokens\":999999}}],\"usage\":{\"input_tokens\":1000,"
			"\"input_tokens_details\":{\"cached_tokens\":300},\"output_tokens\":20}}}"),
	  { 700, 300, 0, 20 } },
	{ LLM_RESPONSES,
	  false,
	  "{\"id\":\"r\",\"usage\":{\"input_tokens\":10,\"output_tokens\":2}}",
	  { 10, 0, 0, 2 } },
	{ LLM_GENERATE,
	  true,
	  "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}],\"usageMetadata\":{"
	  "\"promptTokenCount\":90,\"candidatesTokenCount\":3}}\n\ndata: {\"usageMetadata\":{"
	  "\"promptTokenCount\":90,\"candidatesTokenCount\":11,\"thoughtsTokenCount\":5,"
	  "\"cachedContentTokenCount\":30}}\n\n",
	  { 60, 30, 0, 16 } },
	{ LLM_GENERATE,
	  false,
	  "[{\"usageMetadata\":{\"promptTokenCount\":90,\"candidatesTokenCount\":3}},\n{"
	  "\"usageMetadata\":{"
	  "\"promptTokenCount\":90,\"candidatesTokenCount\":9}}]",
	  { 90, 0, 0, 9 } },
};

TEST(usage_is_exact_for_each_split)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const size_t n = strlen(rows[i].text);
		size_t events = 0;

		for (size_t step = 1; step <= n; step++) {
			struct llm_reader r;
			struct llm_usage u;
			size_t k;

			llm_reader_init(&r, rows[i].kind, rows[i].is_stream);
			k = read_all(&r, rows[i].text, n, step);
			assert_true(step == 1 || k == events);
			events = k;
			u = llm_reader_usage(&r, 12345);
			if (memcmp(&u, &rows[i].usage, sizeof(u)) != 0)
				fail_msg("row %zu, pieces of %zu: %llu %llu %llu %llu", i, step,
					 (unsigned long long)u.input, (unsigned long long)u.cached,
					 (unsigned long long)u.cache_write,
					 (unsigned long long)u.output);
		}
	}
}

TEST(a_cut_stream_is_guessed)
{
	const struct row *row = &rows[0];
	const char *end = strstr(row->text, "event: content_block_stop");
	struct llm_reader r;
	struct llm_usage u;

	llm_reader_init(&r, row->kind, true);
	assert_int_equal(read_all(&r, row->text, (size_t)(end - row->text), 7), 4);
	u = llm_reader_usage(&r, 12345);
	assert_int_equal(u.input, 1000); /* reported at the beginning */
	assert_int_equal(u.output, strlen("a message with \"usage\" in it") / LLM_TOKEN_BYTES);

	llm_reader_init(&r, LLM_CHAT, true);
	(void)read_all(&r, rows[2].text, 60, 60);
	u = llm_reader_usage(&r, 12345);
	assert_int_equal(u.input, 12345); /* not reported yet */
}

/* A closed stream is one that ended at the limit of the API, with nothing left open. */
static void assert_close(enum llm_kind kind, const char *begin, const char *want)
{
	_cleanup_buf_ struct buf out = BUF_INIT(4096);
	struct llm_reader r;

	llm_reader_init(&r, kind, true);
	(void)read_all(&r, begin, strlen(begin), 11);
	assert_int_equal(llm_reader_close(&r, "mo\"del", &out), 0);
	assert_string_equal(out.data, want);
	/* The events are read as the end of the stream. */
	(void)read_all(&r, out.data, out.len, 5);
	assert_true(r.is_ended || kind == LLM_GENERATE);
	assert_int_equal(r.block, -1);
}

TEST(streams_end_as_the_api_would)
{
	assert_close(
		LLM_MESSAGES,
		EVENT("content_block_start", "{\"type\":\"content_block_start\",\"index\":2}")
			EVENT("content_block_delta",
			      "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":"
			      "\"text_delta\",\"text\":\"12345678\"}}"),
		EVENT("content_block_stop", "{\"type\":\"content_block_stop\",\"index\":2}") EVENT(
			"message_delta",
			"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\","
			"\"stop_sequence\":null},\"usage\":{\"output_tokens\":2}}")
			EVENT("message_stop", "{\"type\":\"message_stop\"}"));
	assert_close(LLM_CHAT,
		     "data: {\"id\":\"c-1\",\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
		     "data: "
		     "{\"id\":\"c-1\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":"
		     "\"mo\\\"del\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":"
		     "\"length\"}]}\n\n"
		     "data: [DONE]\n\n");
	assert_close(
		LLM_RESPONSES,
		EVENT("response.created", "{\"type\":\"response.created\",\"sequence_number\":0,"
					  "\"response\":{\"id\":\"r1\"}}"),
		EVENT("response.incomplete",
		      "{\"type\":\"response.incomplete\",\"sequence_number\":1,\"response\":{"
		      "\"id\":\"r1\","
		      "\"object\":\"response\",\"status\":\"incomplete\",\"model\":\"mo\\\"del\","
		      "\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"output\":[],"
		      "\"usage\":{"
		      "\"input_tokens\":0,\"output_tokens\":0,\"total_tokens\":0}}}"));
	assert_close(
		LLM_GENERATE, "data: {\"candidates\":[]}\n\n",
		"data: "
		"{\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[]},\"finishReason\":"
		"\"MAX_TOKENS\",\"index\":0}]}\n\n");
}

TEST(events_without_json)
{
	static const char text[] =
		"data\n\nid: 5\nretry: 10\n\n: ping\n\ndata:{broken\n\ndata:"
		"{\"usage\":\ndata: {\"prompt_tokens\":4,\"completion_tokens\":2}}\n\n";
	struct llm_reader r;

	llm_reader_init(&r, LLM_RESPONSES, true);
	(void)read_all(&r, text, sizeof(text) - 1, 3);
	assert_int_equal(r.usage.input, 4);
	assert_int_equal(r.usage.output, 2);
}
