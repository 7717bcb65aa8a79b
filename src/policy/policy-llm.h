/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a policy about language models. */
#pragma once

#include "policy/lists.h"

struct policy_file;

enum {
	POLICY_LLM_MAX = 16, /* rules of one policy; the ledger has as many counters */
	POLICY_MODELS_MAX = 64,
	POLICY_MODEL_MAX = 128, /* bytes of a pattern */
};

/* A rule of `llm`: one provider, its models and the budget for their use. */
struct llm_rule {
	unsigned int provider; /* index in llm_words, never 0 once read */
	struct host_list hosts;
	struct text_list models; /* patterns; none: every model */
	struct {
		uint64_t requests, tokens, usd; /* usd: thousandths; 0: no limit */
	} budget;
	struct {
		uint64_t input, output, cached; /* thousandths of a dollar, a million tokens */
		bool set;
	} price;
	const char *secret; /* NULL: none */
	struct pos pos, secret_pos;
	const struct policy_file *file;
	uint32_t index; /* in the list of `file` */
};

/* A price, in millionths of a dollar for a million tokens: prices/llm.yaml. */
struct price {
	const char *model; /* pattern */
	uint64_t input, cached, cache_write, output;
};

struct price_list {
	struct price *v;
	size_t n, cap;
};

extern const char *const llm_words[]; /* providers, after "" */

struct llm_list {
	struct llm_rule *v;
	size_t n, cap;
};
