/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/json-util.h"
#include "base/str.h"
#include "llm/llm.h"

/* ---- JSON, piece by piece ---- */

static void note(void *arg, const struct scan_value *v)
{
	static const char kinds[] = "snw{";

	(void)buf_printf(arg, "%s%c%s=%s\n", v->path, kinds[v->kind],
			 v->kind == SCAN_NESTED ? "" : "", v->text);
}

/* Scans the text whole, and split at each byte. */
static void assert_scan(const char *json, const char *want)
{
	const size_t n = strlen(json);

	for (size_t i = 0; i <= n; i++) {
		_cleanup_buf_ struct buf out = BUF_INIT(4096);
		char *a = unit_copy(json, i), *b = unit_copy(json + i, n - i);
		struct json_scan s;

		json_scan_init(&s, note, &out);
		(void)json_scan_feed(&s, a, i);
		(void)json_scan_feed(&s, b, n - i);
		if (!json_scan_end(&s))
			(void)buf_puts(&out, "broken\n");
		assert_string_equal(buf_text(&out), want);
		free(a);
		free(b);
	}
}

TEST(scan_paths)
{
	assert_scan("{\"a\":{\"b\":5},\"c\":\"x\"}", "{=\na{=\na.bn=5\ncs=x\n");
	assert_scan("[1,[true,{\"k\":null}],\"\"]",
		    "{=\n[]n=1\n[]{=\n[][]w=true\n[][]{=\n[][].kw=null\n[]s=\n");
	assert_scan(" {} ", "{=\n");
	assert_scan("[]", "{=\n");
	assert_scan("-1.5e+3", "n=-1.5e+3\n");
}

TEST(scan_escapes)
{
	assert_scan("\"a\\n\\u0041\\u00e9\\\"\\\\\\/\"", "s=a\nA\xc3\xa9\"\\/\n");
	assert_scan("{\"mod\\u0065l\":1}", "{=\nmodeln=1\n");
	/* No spelling of a key makes the path of another. */
	assert_scan("{\"a.b\":1,\"c[]\":2}", "{=\n?n=1\n?n=2\n");
	assert_scan("{\"a\\u0000b\":1}", "{=\na\x01"
					 "bn=1\n");
}

TEST(scan_broken)
{
	assert_scan("", "broken\n");
	assert_scan("{", "{=\nbroken\n");
	assert_scan("{]", "{=\nbroken\n");
	assert_scan("{\"a\"1}", "{=\nbroken\n");
	assert_scan("[1 2]", "{=\n[]n=1\nbroken\n");
	assert_scan("[1,]", "{=\n[]n=1\nbroken\n");
	assert_scan("{,}", "{=\nbroken\n");
	assert_scan("1 2", "n=1\nbroken\n");
	assert_scan("nul", "broken\n");
	assert_scan("truetrue", "broken\n");
	assert_scan("\"\\x\"", "broken\n");
	assert_scan("\"\\u12g4\"", "broken\n");
	assert_scan("\"a\nb\"", "broken\n");
	assert_scan("}", "broken\n");
	assert_scan("[1]]", "{=\n[]n=1\nbroken\n");
}

static size_t seen;
static struct scan_value last;
static char last_text[SCAN_TEXT_MAX + 1];

static void remember(void *arg, const struct scan_value *v)
{
	seen++;
	last = *v;
	(void)snprintf(last_text, sizeof(last_text), "%s", v->text);
}

TEST(scan_limits)
{
	char deep[SCAN_DEPTH_MAX + 1], text[1000];
	struct json_scan s;
	uint64_t n;

	memset(deep, '[', sizeof(deep));
	json_scan_init(&s, remember, NULL);
	assert_true(json_scan_feed(&s, deep, SCAN_DEPTH_MAX));
	assert_false(json_scan_feed(&s, deep, 1));

	/* A long string is counted, its beginning kept. */
	memset(text, 'x', sizeof(text));
	text[0] = text[sizeof(text) - 1] = '"';
	json_scan_init(&s, remember, NULL);
	assert_true(json_scan_feed(&s, text, sizeof(text)) && json_scan_end(&s));
	assert_int_equal(last.n, sizeof(text) - 2);
	assert_int_equal(strlen(last_text), SCAN_TEXT_MAX);

	/* A value below a long path is skipped; the one after it is not. */
	memcpy(text, "{\"", 2);
	memcpy(text + 200, "\":{\"a\":1},\"b\":22}", 17);
	json_scan_init(&s, remember, NULL);
	seen = 0;
	assert_true(json_scan_feed(&s, text, 217) && json_scan_end(&s));
	assert_string_equal(last_text, "22");
	assert_true(scan_number(&last, &n) && n == 22);
}

/* ---- endpoints ---- */

struct endpoint_row {
	enum llm_provider provider;
	const char *method, *path;
	enum llm_kind kind;
	enum llm_family family;
	const char *model;
};

TEST(endpoints)
{
	static const struct endpoint_row rows[] = {
		{ LLM_ANTHROPIC, "POST", "/v1/messages", LLM_MESSAGES, LLM_FAMILY_ANTHROPIC, "" },
		{ LLM_ANTHROPIC, "POST", "/messages", LLM_MESSAGES, LLM_FAMILY_ANTHROPIC, "" },
		{ LLM_ANTHROPIC, "POST", "/v1/messages/", LLM_MESSAGES, LLM_FAMILY_ANTHROPIC, "" },
		{ LLM_ANTHROPIC, "POST", "/v2/messages", LLM_OTHER, LLM_FAMILY_ANTHROPIC, "" },
		{ LLM_ANTHROPIC, "POST", "/v1/messages/batches", LLM_OTHER, LLM_FAMILY_ANTHROPIC,
		  "" },
		{ LLM_ANTHROPIC, "GET", "/v1/messages", LLM_OTHER, LLM_FAMILY_ANTHROPIC, "" },
		{ LLM_ANTHROPIC, "POST", "/v1/messages/count_tokens", LLM_COUNT,
		  LLM_FAMILY_ANTHROPIC, "" },
		{ LLM_ANTHROPIC, "GET", "/v1/models", LLM_LIST, LLM_FAMILY_ANTHROPIC, "" },
		{ LLM_ANTHROPIC, "POST", "/v1/chat/completions", LLM_OTHER, LLM_FAMILY_ANTHROPIC,
		  "" },
		{ LLM_OPENAI, "POST", "/v1/chat/completions", LLM_CHAT, LLM_FAMILY_OPENAI, "" },
		{ LLM_OPENAI, "POST", "/v1/responses", LLM_RESPONSES, LLM_FAMILY_OPENAI, "" },
		{ LLM_OPENAI, "POST", "/v1/embeddings", LLM_CHAT, LLM_FAMILY_OPENAI, "" },
		{ LLM_OPENAI, "POST", "/api/v1/chat/completions", LLM_OTHER, LLM_FAMILY_OPENAI,
		  "" },
		{ LLM_OPENAI, "POST", "/v1/messages", LLM_OTHER, LLM_FAMILY_OPENAI, "" },
		{ LLM_OPENAI, "POST", "/v1/files", LLM_OTHER, LLM_FAMILY_OPENAI, "" },
		{ LLM_COMPATIBLE, "POST", "/api/v1/chat/completions", LLM_CHAT, LLM_FAMILY_OPENAI,
		  "" },
		{ LLM_COMPATIBLE, "POST", "/v1/messages", LLM_MESSAGES, LLM_FAMILY_ANTHROPIC, "" },
		{ LLM_COMPATIBLE, "POST", "/api/generate", LLM_OTHER, LLM_FAMILY_OPENAI, "" },
		{ LLM_GEMINI, "POST", "/v1beta/models/gemini-2.5-flash:generateContent",
		  LLM_GENERATE, LLM_FAMILY_GEMINI, "gemini-2.5-flash" },
		{ LLM_GEMINI, "POST", "/v1beta/models/m:streamGenerateContent", LLM_GENERATE,
		  LLM_FAMILY_GEMINI, "m" },
		{ LLM_GEMINI, "POST", "/v1beta/models/m:countTokens", LLM_COUNT, LLM_FAMILY_GEMINI,
		  "m" },
		{ LLM_GEMINI, "POST", "/v1beta/models/m:batchGenerateContent", LLM_OTHER,
		  LLM_FAMILY_GEMINI, "" },
		{ LLM_GEMINI, "POST", "/v1beta/models/a/b:generateContent", LLM_OTHER,
		  LLM_FAMILY_GEMINI, "" },
		{ LLM_GEMINI, "POST", "/v1beta/models/:generateContent", LLM_OTHER,
		  LLM_FAMILY_GEMINI, "" },
		{ LLM_GEMINI, "POST", "/v1beta/modelsx/m:generateContent", LLM_OTHER,
		  LLM_FAMILY_GEMINI, "" },
		{ LLM_GEMINI, "GET", "/v1beta/models", LLM_LIST, LLM_FAMILY_GEMINI, "" },
		{ LLM_GEMINI, "GET", "/v1beta/models/m", LLM_LIST, LLM_FAMILY_GEMINI, "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct endpoint_row *r = &rows[i];
		struct llm_endpoint p;

		llm_classify(r->provider, r->method, r->path, &p);
		if (p.kind != r->kind || p.family != r->family || !str_eq(p.model, r->model))
			fail_msg("%s %s: kind %d, family %d, model '%s'", r->method, r->path,
				 p.kind, p.family, p.model);
	}
}

TEST(model_patterns)
{
	static const struct {
		const char *pattern, *model;
		bool matches;
	} rows[] = {
		{ "claude-*", "claude-opus-5", true },
		{ "claude-*", "claude-", true },
		{ "claude-*", "Claude-x", false },
		{ "*", "", true },
		{ "*", "anything", true },
		{ "", "", true },
		{ "", "x", false },
		{ "a*c*e", "abcde", true },
		{ "a*c*e", "abcdef", false },
		{ "*-mini", "gpt-5-mini", true },
		{ "*-mini", "gpt-5-mini-x", false },
		{ "gpt-5", "gpt-5.5", false },
		{ "a**b", "ab", true },
		{ "*a*b", "aaaaaaaaac", false },
	};
	const char *why;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (llm_model_match(rows[i].pattern, rows[i].model) != rows[i].matches)
			fail_msg("'%s' and '%s'", rows[i].pattern, rows[i].model);
	assert_int_equal(llm_pattern_check("gpt-*", 5, &why), 0);
	assert_int_equal(llm_pattern_check("", 0, &why), -EINVAL);
	assert_int_equal(llm_pattern_check("a b", 3, &why), -EINVAL);
	assert_int_equal(llm_pattern_check("a\"", 2, &why), -EINVAL);
}

/* ---- requests ---- */

static int read_request(const char *json, struct llm_request *r, const char **why)
{
	static const struct llm_endpoint p = { .kind = LLM_CHAT };
	const size_t n = strlen(json);
	int first = 1;

	for (size_t i = 0; i <= n; i++) {
		int rc;

		llm_request_init(r);
		llm_request_feed(r, json, i);
		llm_request_feed(r, json + i, n - i);
		rc = llm_request_end(r, &p, why);
		assert_true(first == 1 || first == rc);
		first = rc;
	}
	return first;
}

TEST(requests)
{
	struct llm_request r;
	const char *why;

	assert_int_equal(
		read_request("{\"model\":\"gpt-5\",\"max_tokens\":7,\"n\":3,\"stream\":true}", &r,
			     &why),
		0);
	assert_string_equal(r.model, "gpt-5");
	assert_true(r.stream);
	assert_int_equal(llm_request_output(&r), 21);
	assert_int_equal(llm_request_input(&r), r.bytes / LLM_INPUT_BYTES + 1);
	assert_int_equal(
		read_request("{\"generationConfig\":{\"maxOutputTokens\":9},\"model\":\"m\"}", &r,
			     &why),
		0);
	assert_int_equal(llm_request_output(&r), 9);
	/* The last one counts for most servers, the first one for others; the largest bounds both.
	 */
	assert_int_equal(
		read_request("{\"max_tokens\":500,\"model\":\"m\",\"max_tokens\":1}", &r, &why), 0);
	assert_int_equal(llm_request_output(&r), 500);
	assert_int_equal(read_request("{\"model\":\"m\"}", &r, &why), 0);
	assert_int_equal(llm_request_output(&r), 0);
	/* Only the top level names the model. */
	assert_int_equal(
		read_request("{\"x\":{\"model\":\"b\"},\"model\":\"a\",\"y\":[{\"model\":1}]}", &r,
			     &why),
		0);
	assert_string_equal(r.model, "a");
}

TEST(ambiguous_requests)
{
	static const struct unit_row rows[] = {
		{ "{\"model\":\"a\",\"model\":\"b\"}", "two models" },
		{ "{\"model\":\"a\",\"Model\":\"b\"}", "two models" },
		{ "{\"model\":\"a\",\"mod\\u0065l\":\"b\"}", "two models" },
		{ "{\"MODEL\":\"a\"}", "not a name" },
		{ "{\"model\":5}", "not a name" },
		{ "{\"model\":{\"a\":\"b\"}}", "not a name" },
		{ "{\"model\":\"\"}", "not a name" },
		{ "{\"model\":\"a\\u0000b\"}", NULL },
		{ "{\"model\":\"a\",\"models\":[\"b\"]}", "list of models" },
		{ "{}", "no model" },
		{ "[]", "no model" },
		{ "model=a", "not JSON" },
		{ "{\"model\":\"a\"} {\"model\":\"b\"}", "not JSON" },
		{ "{\"model\":\"a\"", "not JSON" },
	};
	struct llm_request r;
	const char *why;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const int rc = read_request(rows[i].given, &r, &why);

		if (rows[i].wanted ? rc != -EBADMSG || !strstr(why, rows[i].wanted) : rc != 0)
			fail_msg("%s: %d, %s", rows[i].given, rc, rc < 0 ? why : r.model);
	}
}

TEST(model_of_the_path)
{
	struct llm_endpoint p;
	struct llm_request r;
	const char *why;

	llm_classify(LLM_GEMINI, "POST", "/v1beta/models/g:generateContent", &p);
	llm_request_init(&r);
	llm_request_feed(&r, "{\"model\":\"x\"}", 13);
	assert_int_equal(llm_request_end(&r, &p, &why), 0);
	assert_string_equal(r.model, "g");
}

/* ---- prices ---- */

TEST(prices)
{
	static const struct llm_price v[] = {
		{ "claude-opus-*", 15000000, 1500000, 18750000, 75000000 },
		{ "claude-*", 3000000, 300000, 3750000, 15000000 },
		{ "huge", UINT64_MAX, 0, 0, UINT64_MAX },
	};
	const struct llm_usage u = {
		.input = 1000, .cached = 200, .cache_write = 10, .output = 20
	};
	const struct llm_usage most = { .input = UINT64_MAX, .output = UINT64_MAX };

	assert_ptr_equal(llm_price_of(v, 3, "claude-opus-5"), &v[0]);
	assert_ptr_equal(llm_price_of(v, 3, "claude-haiku-4"), &v[1]);
	assert_null(llm_price_of(v, 3, "gpt"));
	/* 1000 x 3 + 200 x 0.3 + 10 x 3.75 + 20 x 15 = 3397.5, rounded up */
	assert_int_equal(llm_cost(&v[1], &u), 3398);
	assert_int_equal(llm_cost(&v[1], &(struct llm_usage){ 0 }), 0);
	assert_true(llm_cost(&v[2], &most) == UINT64_MAX);
}

/* ---- refusals ---- */

TEST(refusals)
{
	static const struct {
		enum llm_family family;
		unsigned int status;
		bool stops;
		const char *type;
	} rows[] = {
		{ LLM_FAMILY_ANTHROPIC, 400, true, "invalid_request_error" },
		{ LLM_FAMILY_OPENAI, 400, false, "invalid_request_error" },
		{ LLM_FAMILY_GEMINI, 403, false, "PERMISSION_DENIED" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_buf_ struct buf out = BUF_INIT(1000);
		_cleanup_json_ json_t *j = NULL;
		const json_t *error;
		struct llm_answer a;
		struct err e = ERR_INIT;

		assert_int_equal(llm_refuse(rows[i].family, "no \"x\"\n", &out, &a), 0);
		assert_int_equal(a.status, rows[i].status);
		assert_int_equal(a.stop_retries, rows[i].stops);
		assert_int_equal(json_read(out.data, out.len, &j, &e), 0);
		error = json_object_get(j, "error");
		assert_string_equal(json_string_value(json_object_get(error, "message")),
				    "no \"x\"\n");
		assert_non_null(strstr(out.data, rows[i].type));
	}
}
