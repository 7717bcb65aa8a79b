/* SPDX-License-Identifier: Apache-2.0 */
/* Prices and refusals. */
#include "llm/llm.h"

#include "base/json-util.h"

enum {
	MILLION = 1000000,
	STATUS_BAD_REQUEST = 400,
	STATUS_FORBIDDEN = 403,
};

/* ---- prices ---- */

const struct llm_price *llm_price_of(const struct llm_price *v, size_t n, const char *model)
{
	for (size_t i = 0; i < n; i++)
		if (llm_model_match(v[i].model, model))
			return &v[i];
	return NULL;
}

uint64_t llm_cost(const struct llm_price *p, const struct llm_usage *u)
{
	const unsigned __int128 sum = (unsigned __int128)u->input * p->input +
				      (unsigned __int128)u->cached * p->cached +
				      (unsigned __int128)u->cache_write * p->cache_write +
				      (unsigned __int128)u->output * p->output;
	const unsigned __int128 cost = (sum + MILLION - 1) / MILLION;

	return cost > UINT64_MAX ? UINT64_MAX : (uint64_t)cost;
}

/* ---- refusals ---- */

/*
 * Statuses that agent programs do not answer with retries, and whose message they show. Claude Code
 * and opencode stop at 400 invalid_request_error; Codex prints the body of a 400; Gemini stops at
 * 403. All of them repeat a 429 or 5xx for minutes.
 */
static json_t *body_of(enum llm_family f, const char *text)
{
	switch (f) {
	case LLM_FAMILY_ANTHROPIC:
		return JSON_OBJECT(
			{ "type", json_string("error") },
			{ "error", JSON_OBJECT({ "type", json_string("invalid_request_error") },
					       { "message", json_string(text) }) });
	case LLM_FAMILY_GEMINI:
		return JSON_OBJECT(
			{ "error", JSON_OBJECT({ "code", json_integer(STATUS_FORBIDDEN) },
					       { "message", json_string(text) },
					       { "status", json_string("PERMISSION_DENIED") }) });
	default:
		return JSON_OBJECT(
			{ "error", JSON_OBJECT({ "message", json_string(text) },
					       { "type", json_string("invalid_request_error") },
					       { "param", json_null() },
					       { "code", json_string("hutch_denied") }) });
	}
}

int llm_refuse(enum llm_family f, const char *text, struct buf *out, struct llm_answer *ret)
{
	_cleanup_json_ json_t *j = body_of(f, text);
	_cleanup_free_ char *line = j ? json_write_line(j) : NULL;

	if (!line || buf_puts(out, line) < 0)
		return -ENOMEM;
	*ret = (struct llm_answer){ .status = f == LLM_FAMILY_GEMINI ? STATUS_FORBIDDEN
								     : STATUS_BAD_REQUEST,
				    .stop_retries = f == LLM_FAMILY_ANTHROPIC };
	return 0;
}
