/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first byte: the kind of request, whether its response is a stream, and how the rest is split.
 * The rest is read as a request and as a response, whole and in pieces, with equal results.
 */
#include <string.h>

#include "base/util.h"
#include "fuzz.h"
#include "llm/llm.h"

static size_t read_pieces(struct llm_reader *r, const char *data, size_t n, size_t step)
{
	size_t events = 0;
	bool ends;

	while (n > 0) {
		const size_t used = llm_reader_feed(r, data, MIN(n, step), &ends);

		assert(used > 0 && used <= MIN(n, step));
		events += ends;
		data += used;
		n -= used;
	}
	return events;
}

static void check_response(enum llm_kind kind, bool is_stream, const char *data, size_t n,
			   size_t step)
{
	struct buf out = BUF_INIT(65536);
	struct llm_reader whole, pieces;
	struct llm_usage a, b;

	llm_reader_init(&whole, kind, is_stream);
	llm_reader_init(&pieces, kind, is_stream);
	assert(read_pieces(&whole, data, n, n) == read_pieces(&pieces, data, n, step));
	a = llm_reader_usage(&whole, 7);
	b = llm_reader_usage(&pieces, 7);
	assert(memcmp(&a, &b, sizeof(a)) == 0);
	assert(strcmp(whole.id, pieces.id) == 0 && whole.text_bytes == pieces.text_bytes);
	assert(whole.text_bytes <= n * 2);
	assert(llm_reader_close(&whole, "model", &out) == 0);
	buf_done(&out);
}

static void check_request(const char *data, size_t n, size_t step)
{
	static const struct llm_endpoint p = { .kind = LLM_CHAT };
	struct llm_request whole, pieces;
	const char *why_whole, *why;
	int r;

	llm_request_init(&whole);
	llm_request_init(&pieces);
	llm_request_feed(&whole, data, n);
	for (size_t i = 0; i < n; i += step)
		llm_request_feed(&pieces, data + i, MIN(step, n - i));
	r = llm_request_end(&whole, &p, &why_whole);
	assert(r == llm_request_end(&pieces, &p, &why) && why == why_whole);
	if (r < 0)
		return;
	assert(whole.model[0] && strcmp(whole.model, pieces.model) == 0);
	assert(llm_model_match("*", whole.model));
	assert(llm_request_output(&whole) == llm_request_output(&pieces));
}

static void check_path(const char *data, size_t n)
{
	char path[256];
	struct llm_endpoint p;
	const size_t k = MIN(n, sizeof(path) - 1);

	memcpy(path, data, k);
	path[k] = '\0';
	for (int i = 0; i < LLM_PROVIDERS; i++) {
		llm_classify((enum llm_provider)i, "POST", path, &p);
		assert(strlen(p.model) <= LLM_MODEL_MAX);
		assert(!p.model[0] || i == LLM_GEMINI);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;

	if (size < 2)
		return 0;
	check_response((enum llm_kind)(data[0] % LLM_COUNT), data[0] & 4, text, size - 1,
		       1 + (data[0] >> 3));
	check_request(text, size - 1, 1 + (data[0] >> 3));
	check_path(text, size - 1);
	return 0;
}
