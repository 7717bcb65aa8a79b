/* SPDX-License-Identifier: Apache-2.0 */
#include "llm/llm.h"

#include <strings.h>

#include "base/str.h"

static void take_model(struct llm_request *r, const struct scan_value *v)
{
	r->n_models++;
	r->is_exact = str_eq(v->path, "model") && v->kind == SCAN_STRING && v->n <= LLM_MODEL_MAX &&
		      strlen(v->text) == v->n;
	if (r->is_exact)
		memcpy(r->model, v->text, v->n + 1);
}

/* Limits of output: of Anthropic and OpenAI at the top, of Gemini below generationConfig. */
static void take_limit(struct llm_request *r, const struct scan_value *v)
{
	static const char *const limits[] = { "max_tokens", "max_completion_tokens",
					      "max_output_tokens",
					      "generationConfig.maxOutputTokens" };
	static const char *const counts[] = { "n", "best_of", "generationConfig.candidateCount" };
	uint64_t n;

	if (!scan_number(v, &n))
		return;
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		if (str_eq(v->path, limits[i]))
			r->max_output = MAX(r->max_output, n);
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++)
		if (str_eq(v->path, counts[i]))
			r->answers = MAX(r->answers, MIN(n, (uint64_t)1000));
}

static void on_value(void *arg, const struct scan_value *v)
{
	struct llm_request *r = arg;

	/* Some servers read keys in any case. */
	if (strcasecmp(v->path, "model") == 0)
		take_model(r, v);
	else if (strcasecmp(v->path, "models") == 0)
		r->has_models = true;
	else if (str_eq(v->path, "stream"))
		r->stream = str_eq(v->text, "true");
	else
		take_limit(r, v);
}

void llm_request_init(struct llm_request *r)
{
	r->bytes = r->max_output = 0;
	r->answers = 1;
	r->n_models = 0;
	r->is_exact = r->has_models = r->stream = false;
	r->model[0] = '\0';
	json_scan_init(&r->scan, on_value, r);
}

void llm_request_feed(struct llm_request *r, const char *data, size_t n)
{
	r->bytes += n;
	(void)json_scan_feed(&r->scan, data, n);
}

int llm_request_end(struct llm_request *r, const struct llm_endpoint *p, const char **ret_why)
{
	const char *why = NULL;

	if (!json_scan_end(&r->scan))
		why = "its body is not JSON";
	else if (p->model[0])
		memcpy(r->model, p->model, sizeof(r->model));
	else if (r->has_models)
		why = "it has a list of models";
	else if (r->n_models == 0)
		why = "it names no model";
	else if (r->n_models > 1)
		why = "it names two models";
	else if (!r->is_exact || !r->model[0])
		why = "its 'model' is not a name";
	*ret_why = why;
	return why ? -EBADMSG : 0;
}

uint64_t llm_request_input(const struct llm_request *r)
{
	return r->bytes / LLM_INPUT_BYTES + 1;
}

uint64_t llm_request_output(const struct llm_request *r)
{
	return r->max_output * r->answers;
}
