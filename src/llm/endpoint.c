/* SPDX-License-Identifier: Apache-2.0 */
#include "llm/llm.h"

#include "base/str.h"

const char *const llm_provider_names[LLM_PROVIDERS + 1] = {
	[LLM_ANTHROPIC] = "anthropic",
	[LLM_OPENAI] = "openai",
	[LLM_GEMINI] = "gemini",
	[LLM_COMPATIBLE] = "openai-compatible",
};

/* Paths below /v1, which programs leave out or not, depending on how they read a base URL. */
struct row {
	const char *method, *path;
	unsigned int providers; /* bits */
	enum llm_kind kind;
	enum llm_family family;
};

#define A (1U << LLM_ANTHROPIC | 1U << LLM_COMPATIBLE)
#define O (1U << LLM_OPENAI | 1U << LLM_COMPATIBLE)

static const struct row rows[] = {
	{ "POST", "/messages", A, LLM_MESSAGES, LLM_FAMILY_ANTHROPIC },
	{ "POST", "/messages/count_tokens", A, LLM_COUNT, LLM_FAMILY_ANTHROPIC },
	{ "POST", "/chat/completions", O, LLM_CHAT, LLM_FAMILY_OPENAI },
	{ "POST", "/completions", O, LLM_CHAT, LLM_FAMILY_OPENAI },
	{ "POST", "/embeddings", O, LLM_CHAT, LLM_FAMILY_OPENAI },
	{ "POST", "/responses", O, LLM_RESPONSES, LLM_FAMILY_OPENAI },
	{ "GET", "/models", A, LLM_LIST, LLM_FAMILY_ANTHROPIC },
	{ "GET", "/models", O, LLM_LIST, LLM_FAMILY_OPENAI },
};

/* Compatible servers have a prefix of their own: /api/v1/chat/completions. */
static bool path_is(enum llm_provider p, const char *path, size_t n, const char *want)
{
	const size_t k = strlen(want);

	if (n < k || memcmp(path + n - k, want, k) != 0)
		return false;
	return n == k || p == LLM_COMPATIBLE || (n == k + 3 && str_has_prefix(path, "/v1"));
}

static void classify_gemini(const char *method, const char *path, struct llm_endpoint *ret)
{
	static const char *const versions[] = { "/v1beta/models", "/v1/models", "/v1alpha/models" };
	const char *rest = NULL, *colon;
	size_t n;

	ret->family = LLM_FAMILY_GEMINI;
	for (size_t i = 0; !rest && i < ARRAY_SIZE(versions); i++)
		if (str_has_prefix(path, versions[i]))
			rest = path + strlen(versions[i]);
	if (!rest || (*rest != '/' && *rest != '\0'))
		return;
	colon = strchr(rest, ':');
	if (!colon) {
		ret->kind = str_eq(method, "GET") ? LLM_LIST : LLM_OTHER;
		return;
	}
	n = (size_t)(colon - rest);
	if (!str_eq(method, "POST") || n < 2 || n - 1 > LLM_MODEL_MAX ||
	    memchr(rest + 1, '/', n - 1))
		return;
	if (str_eq(colon, ":generateContent") || str_eq(colon, ":streamGenerateContent"))
		ret->kind = LLM_GENERATE;
	else if (str_eq(colon, ":countTokens"))
		ret->kind = LLM_COUNT;
	else
		return;
	memcpy(ret->model, rest + 1, n - 1);
	ret->model[n - 1] = '\0';
}

void llm_classify(enum llm_provider p, const char *method, const char *path,
		  struct llm_endpoint *ret)
{
	size_t n = strlen(path);

	*ret = (struct llm_endpoint){ .kind = LLM_OTHER,
				      .family = p == LLM_ANTHROPIC ? LLM_FAMILY_ANTHROPIC
								   : LLM_FAMILY_OPENAI };
	if (p == LLM_GEMINI) {
		classify_gemini(method, path, ret);
		return;
	}
	n -= n > 1 && path[n - 1] == '/';
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if ((rows[i].providers & 1U << p) && str_eq(rows[i].method, method) &&
		    path_is(p, path, n, rows[i].path)) {
			ret->kind = rows[i].kind;
			ret->family = rows[i].family;
			return;
		}
}

bool llm_model_match(const char *pattern, const char *model)
{
	const char *star = NULL, *taken = NULL;

	while (*model) {
		if (*pattern == '*') {
			star = ++pattern;
			taken = model;
		} else if (*pattern == *model) {
			pattern++;
			model++;
		} else if (star) {
			pattern = star;
			model = ++taken;
		} else {
			return false;
		}
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}

int llm_pattern_check(const char *s, size_t n, const char **ret_why)
{
	*ret_why = n == 0 ? "it is empty" : n > LLM_MODEL_MAX ? "it is too long" : NULL;
	for (size_t i = 0; i < n && !*ret_why; i++)
		if (s[i] <= ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\')
			*ret_why = "a name of a model has no spaces, quotes or control bytes";
	return *ret_why ? -EINVAL : 0;
}
