/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Usage out of a response. Anthropic reports it at the beginning and the end of a stream, OpenAI at
 * the end, Gemini in each event; the largest count is the valid one. Until it is reported, output
 * is guessed by the length of its text.
 */
#include "llm/llm.h"

#include "base/str.h"

/* ---- values ---- */

static bool ends_with(const char *path, const char *tail)
{
	const size_t n = strlen(path), k = strlen(tail);

	return n >= k && memcmp(path + n - k, tail, k) == 0 &&
	       (n == k || path[n - k - 1] == '.' || path[n - k - 1] == ']');
}

static void raise_to(struct llm_reader *r, uint64_t *count, uint64_t n)
{
	*count = MAX(*count, n);
	r->has_usage = true;
}

static void take_anthropic(struct llm_reader *r, const char *key, uint64_t n)
{
	if (str_eq(key, "input_tokens"))
		raise_to(r, &r->usage.input, n);
	else if (str_eq(key, "output_tokens"))
		raise_to(r, &r->usage.output, n);
	else if (str_eq(key, "cache_read_input_tokens"))
		raise_to(r, &r->usage.cached, n);
	else if (str_eq(key, "cache_creation_input_tokens"))
		raise_to(r, &r->usage.cache_write, n);
}

/* Their counts of input include the cached part. */
static void split_input(struct llm_reader *r)
{
	r->usage.input = r->totals[0] - MIN(r->totals[0], r->usage.cached);
}

static void take_openai(struct llm_reader *r, const char *key, uint64_t n)
{
	if (str_eq(key, "input_tokens") || str_eq(key, "prompt_tokens"))
		raise_to(r, &r->totals[0], n);
	else if (str_eq(key, "output_tokens") || str_eq(key, "completion_tokens"))
		raise_to(r, &r->usage.output, n);
	else if (str_eq(key, "input_tokens_details.cached_tokens") ||
		 str_eq(key, "prompt_tokens_details.cached_tokens"))
		raise_to(r, &r->usage.cached, n);
	split_input(r);
}

static void take_gemini(struct llm_reader *r, const char *key, uint64_t n)
{
	if (str_eq(key, "promptTokenCount"))
		raise_to(r, &r->totals[0], n);
	else if (str_eq(key, "candidatesTokenCount"))
		raise_to(r, &r->totals[1], n);
	else if (str_eq(key, "thoughtsTokenCount"))
		raise_to(r, &r->totals[2], n);
	else if (str_eq(key, "cachedContentTokenCount"))
		raise_to(r, &r->usage.cached, n);
	else if (str_eq(key, "toolUsePromptTokenCount"))
		raise_to(r, &r->usage.cache_write, n);
	split_input(r);
	r->usage.output = r->totals[1] + r->totals[2];
}

/* The key below "usage", at the place where the API has it; NULL: another value. */
static const char *usage_key(const struct llm_reader *r, const char *path)
{
	static const char *const places[] = {
		[LLM_MESSAGES] = "message.usage.",
		[LLM_CHAT] = "usage.",
		[LLM_RESPONSES] = "response.usage.",
		[LLM_GENERATE] = "[].usageMetadata.",
	};
	const char *place = places[r->kind];
	const char *tail = r->kind == LLM_GENERATE ? "usageMetadata." : "usage.";

	if (str_has_prefix(path, tail))
		return path + strlen(tail);
	return str_has_prefix(path, place) ? path + strlen(place) : NULL;
}

static void take_count(struct llm_reader *r, const struct scan_value *v)
{
	const char *key = usage_key(r, v->path);
	uint64_t n;

	if (!key || !scan_number(v, &n))
		return;
	if (r->kind == LLM_MESSAGES)
		take_anthropic(r, key, n);
	else if (r->kind == LLM_GENERATE)
		take_gemini(r, key, n);
	else
		take_openai(r, key, n);
}

/* Is the string a part of the answer? */
static bool is_answer(const struct llm_reader *r, const char *path)
{
	switch (r->kind) {
	case LLM_MESSAGES:
		return str_has_prefix(path, "delta.") && !ends_with(path, "type") &&
		       !ends_with(path, "stop_reason");
	case LLM_CHAT:
		return str_has_prefix(path, "choices[].") &&
		       (ends_with(path, "content") || ends_with(path, "arguments") ||
			ends_with(path, "text") || ends_with(path, "reasoning") ||
			ends_with(path, "reasoning_content"));
	case LLM_RESPONSES:
		return str_eq(path, "delta");
	default:
		return str_has_prefix(path, "candidates[].content.") ||
		       str_has_prefix(path, "[].candidates[].content.");
	}
}

static void take_text(struct llm_reader *r, const struct scan_value *v)
{
	if (str_eq(v->path, "type"))
		(void)snprintf(r->type, sizeof(r->type), "%s", v->text);
	else if ((str_eq(v->path, "id") || str_eq(v->path, "response.id")) && v->n <= LLM_ID_MAX)
		(void)snprintf(r->id, sizeof(r->id), "%s", v->text);
	else if (is_answer(r, v->path))
		r->text_bytes += v->n;
}

static void on_value(void *arg, const struct scan_value *v)
{
	struct llm_reader *r = arg;

	if (v->kind == SCAN_STRING) {
		take_text(r, v);
		return;
	}
	if (r->kind == LLM_MESSAGES && str_eq(v->path, "index"))
		(void)scan_number(v, &r->index);
	else if (r->kind == LLM_RESPONSES && str_eq(v->path, "sequence_number"))
		(void)scan_number(v, &r->sequence);
	take_count(r, v);
}

/* ---- server-sent events ---- */

static void end_event(struct llm_reader *r)
{
	const bool is_json = json_scan_end(&r->scan);

	if (r->kind == LLM_MESSAGES && str_eq(r->type, "content_block_start"))
		r->block = (int64_t)r->index;
	else if (r->kind == LLM_MESSAGES && str_eq(r->type, "content_block_stop"))
		r->block = -1;
	if (str_eq(r->type, "message_stop") || str_eq(r->type, "response.completed") ||
	    str_eq(r->type, "response.incomplete") || (r->kind == LLM_CHAT && !is_json))
		r->is_ended = true;
	r->type[0] = '\0';
	r->has_data = false;
	json_scan_init(&r->scan, on_value, r);
}

static void begin_line(struct llm_reader *r)
{
	r->line = LINE_NAME;
	r->name_n = 0;
	r->is_empty_line = true;
}

static void take_name(struct llm_reader *r, char c)
{
	if (c != ':') {
		if (r->name_n < sizeof(r->name))
			r->name[r->name_n++] = c;
		else
			r->line = LINE_SKIP;
		return;
	}
	r->line = r->name_n == 4 && memcmp(r->name, "data", 4) == 0 ? LINE_DATA : LINE_SKIP;
	if (r->line == LINE_DATA && r->has_data)
		(void)json_scan_feed(&r->scan, "\n", 1);
	r->has_data |= r->line == LINE_DATA;
}

/* True at the end of an event, also of one without data. */
static bool end_line(struct llm_reader *r)
{
	const bool ends = r->is_empty_line;

	if (ends && r->has_data)
		end_event(r);
	begin_line(r);
	return ends;
}

/* The rest of a line of data, up to its end. */
static size_t take_data(struct llm_reader *r, const char *data, size_t n)
{
	size_t i = 0;

	while (i < n && data[i] != '\n' && data[i] != '\r')
		i++;
	(void)json_scan_feed(&r->scan, data, i);
	return i;
}

static size_t feed_stream(struct llm_reader *r, const char *data, size_t n, bool *ret_end)
{
	for (size_t i = 0; i < n; i++) {
		const char c = data[i];
		const bool skip = c == '\n' && r->after_cr;

		r->after_cr = c == '\r';
		if (skip)
			continue;
		if (c == '\n' || c == '\r') {
			if (end_line(r)) {
				*ret_end = true;
				return i + 1;
			}
			continue;
		}
		r->is_empty_line = false;
		if (r->line == LINE_NAME)
			take_name(r, c);
		else if (r->line == LINE_DATA)
			i += take_data(r, data + i, n - i) - 1;
	}
	return n;
}

void llm_reader_init(struct llm_reader *r, enum llm_kind kind, bool is_stream)
{
	*r = (struct llm_reader){ .kind = kind, .is_stream = is_stream, .block = -1 };
	json_scan_init(&r->scan, on_value, r);
	begin_line(r);
}

size_t llm_reader_feed(struct llm_reader *r, const char *data, size_t n, bool *ret_end)
{
	*ret_end = false;
	if (r->is_stream)
		return feed_stream(r, data, n, ret_end);
	(void)json_scan_feed(&r->scan, data, n);
	return n;
}

/* ---- results ---- */

uint64_t llm_usage_tokens(const struct llm_usage *u)
{
	return u->input + u->cached + u->cache_write + u->output;
}

uint64_t llm_reader_output(const struct llm_reader *r)
{
	return MAX(r->usage.output, r->text_bytes / LLM_TOKEN_BYTES);
}

struct llm_usage llm_reader_usage(const struct llm_reader *r, uint64_t input_guess)
{
	struct llm_usage u = r->usage;
	const bool is_final =
		r->has_usage && (!r->is_stream || r->is_ended || r->kind == LLM_GENERATE);

	if (is_final)
		return u;
	if (u.input + u.cached + u.cache_write == 0)
		u.input = input_guess;
	u.output = llm_reader_output(r);
	return u;
}

/* ---- the end of a stream at a limit ---- */

static void close_messages(const struct llm_reader *r, struct buf *out)
{
	if (r->block >= 0)
		(void)buf_printf(
			out,
			"event: content_block_stop\ndata: {\"type\":\"content_block_stop\","
			"\"index\":%lld}\n\n",
			(long long)r->block);
	(void)buf_printf(out,
			 "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":"
			 "{\"stop_reason\":\"max_tokens\",\"stop_sequence\":null},"
			 "\"usage\":{\"output_tokens\":%llu}}\n\n"
			 "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
			 (unsigned long long)llm_reader_output(r));
}

static void put_text(struct buf *out, const char *s)
{
	for (; *s; s++)
		if (*s == '"' || *s == '\\')
			(void)buf_printf(out, "\\%c", *s);
		else if ((unsigned char)*s >= ' ')
			(void)buf_putc(out, *s);
}

static void close_chat(const struct llm_reader *r, const char *model, struct buf *out)
{
	(void)buf_puts(out, "data: {\"id\":\"");
	put_text(out, r->id);
	(void)buf_puts(out, "\",\"object\":\"chat.completion.chunk\",\"created\":0,\"model\":\"");
	put_text(out, model);
	(void)buf_puts(
		out, "\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n"
		     "data: [DONE]\n\n");
}

static void close_responses(const struct llm_reader *r, const char *model, struct buf *out)
{
	const struct llm_usage u = llm_reader_usage(r, 0);
	const uint64_t input = u.input + u.cached, total = input + u.output;

	(void)buf_printf(out,
			 "event: response.incomplete\ndata: {\"type\":\"response.incomplete\","
			 "\"sequence_number\":%llu,\"response\":{\"id\":\"",
			 (unsigned long long)r->sequence + 1);
	put_text(out, r->id);
	(void)buf_puts(out, "\",\"object\":\"response\",\"status\":\"incomplete\",\"model\":\"");
	put_text(out, model);
	(void)buf_printf(out,
			 "\",\"incomplete_details\":{\"reason\":\"max_output_tokens\"},"
			 "\"output\":[],\"usage\":{\"input_tokens\":%llu,\"output_tokens\":%llu,"
			 "\"total_tokens\":%llu}}}\n\n",
			 (unsigned long long)input, (unsigned long long)u.output,
			 (unsigned long long)total);
}

int llm_reader_close(const struct llm_reader *r, const char *model, struct buf *out)
{
	switch (r->kind) {
	case LLM_MESSAGES:
		close_messages(r, out);
		break;
	case LLM_CHAT:
		close_chat(r, model, out);
		break;
	case LLM_RESPONSES:
		close_responses(r, model, out);
		break;
	default:
		(void)buf_puts(
			out,
			"data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[]},"
			"\"finishReason\":\"MAX_TOKENS\",\"index\":0}]}\n\n");
		break;
	}
	return out->err ? -ENOMEM : 0;
}
