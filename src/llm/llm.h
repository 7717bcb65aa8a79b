/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The APIs of language models: which requests call a model, which model,
 * how many tokens it used, and how to refuse a request so that agent programs stop at once and show
 * the message. Pure functions without input or output.
 */
#pragma once

#include "base/buf.h"
#include "llm/json-scan.h"

enum {
	LLM_MODEL_MAX = 128, /* bytes of a model's name */
	LLM_ID_MAX = 128,
	LLM_TOKEN_BYTES = 4, /* of text in a token, about: for output that is not counted yet */
	LLM_INPUT_BYTES = 3, /* bytes of a request's body in a token, about */
};

enum llm_provider {
	LLM_ANTHROPIC,
	LLM_OPENAI,
	LLM_GEMINI,
	LLM_COMPATIBLE, /* vLLM, Ollama, llama-server: the paths of OpenAI and Anthropic */
	LLM_PROVIDERS,
};

extern const char *const llm_provider_names[LLM_PROVIDERS + 1]; /* the last one is NULL */

/* Requests of the API. Those before LLM_COUNT use tokens. */
enum llm_kind {
	LLM_MESSAGES,  /* Anthropic */
	LLM_CHAT,      /* OpenAI; also completions and embeddings */
	LLM_RESPONSES, /* OpenAI */
	LLM_GENERATE,  /* Gemini */
	LLM_COUNT,     /* counts tokens, names a model */
	LLM_LIST,      /* lists models */
	LLM_OTHER,     /* no known request */
};

/* Which form a refusal has. */
enum llm_family {
	LLM_FAMILY_ANTHROPIC,
	LLM_FAMILY_OPENAI,
	LLM_FAMILY_GEMINI,
};

struct llm_endpoint {
	enum llm_kind kind;
	enum llm_family family;
	char model[LLM_MODEL_MAX + 1]; /* of Gemini's paths; "": the body names it */
};

/* `path` is canonical, without query (l7_path). */
void llm_classify(enum llm_provider p, const char *method, const char *path,
		  struct llm_endpoint *ret);

static inline bool llm_uses_tokens(enum llm_kind k)
{
	return k < LLM_COUNT;
}

/* Does a model have this name? "*" is any bytes. Takes time linear in both, times the stars. */
bool llm_model_match(const char *pattern, const char *model);

/* 0 or -EINVAL with a reason. */
int llm_pattern_check(const char *s, size_t n, const char **ret_why);

/* ---- requests ---- */

struct llm_request {
	struct json_scan scan;
	uint64_t bytes;
	unsigned int n_models; /* keys that name a model, in any case */
	bool is_exact;	       /* the last one is spelled "model", and is a string */
	bool has_models;       /* a list of models, for routers */
	uint64_t max_output;   /* tokens of one answer; 0: the request has no limit */
	uint64_t answers;
	bool stream;
	char model[LLM_MODEL_MAX + 1];
};

void llm_request_init(struct llm_request *r);

/* Takes a piece of the body. `r` does not move meanwhile. */
void llm_request_feed(struct llm_request *r, const char *data, size_t n);

/*
 * At the end of the body: 0, or -EBADMSG with the reason why servers could read different models in
 * it. A model named by the endpoint has precedence.
 */
int llm_request_end(struct llm_request *r, const struct llm_endpoint *p, const char **ret_why);

/* The tokens that the request may use: an upper guess for its input, and its limit of output. */
uint64_t llm_request_input(const struct llm_request *r);
uint64_t llm_request_output(const struct llm_request *r); /* 0: unlimited */

/* ---- usage ---- */

struct llm_usage {
	uint64_t input;	      /* tokens of the request that no cache held */
	uint64_t cached;      /* read from a cache */
	uint64_t cache_write; /* written to a cache */
	uint64_t output;      /* with reasoning */
};

uint64_t llm_usage_tokens(const struct llm_usage *u);

/* Reads a response, split anywhere. */
struct llm_reader {
	enum llm_kind kind;
	bool is_stream; /* server-sent events */
	struct json_scan scan;
	struct llm_usage usage;
	bool has_usage;
	uint64_t text_bytes; /* length of the answer's text so far */

	/* Server-sent events. */
	enum {
		LINE_NAME,
		LINE_DATA,
		LINE_SKIP
	} line;
	char name[8]; /* beginning of the field's name */
	size_t name_n;
	bool after_cr, is_empty_line, has_data;
	bool is_ended;	    /* the API's own end of the stream was read */
	uint64_t totals[3]; /* of OpenAI and Gemini: input with its cached part, answer, thoughts */
	int64_t block;	    /* Anthropic: index of the open content block, or -1 */
	uint64_t index, sequence;
	char type[48], id[LLM_ID_MAX + 1];
};

void llm_reader_init(struct llm_reader *r, enum llm_kind kind, bool is_stream);

/*
 * Takes bytes up to the end of an event, or all, and returns their number, at least 1 of `n` > 0.
 * *ret_end: an event ends there, so that llm_reader_close() may follow.
 */
size_t llm_reader_feed(struct llm_reader *r, const char *data, size_t n, bool *ret_end);

/* The usage: as reported, or (has_usage is false or the stream is not at its end) guessed. */
struct llm_usage llm_reader_usage(const struct llm_reader *r, uint64_t input_guess);

/* Output tokens so far: as reported, or guessed by the text. */
uint64_t llm_reader_output(const struct llm_reader *r);

/* Appends the events with which the API ends a stream at a limit of tokens. */
int llm_reader_close(const struct llm_reader *r, const char *model, struct buf *out);

/* ---- prices ---- */

/* Millionths of a dollar for a million tokens. */
struct llm_price {
	const char *model; /* pattern */
	uint64_t input, cached, cache_write, output;
};

/* The first row that matches, or NULL. */
const struct llm_price *llm_price_of(const struct llm_price *v, size_t n, const char *model);

/* Millionths of a dollar, rounded up; UINT64_MAX is the largest. */
uint64_t llm_cost(const struct llm_price *p, const struct llm_usage *u);

/* ---- refusals ---- */

struct llm_answer {
	unsigned int status;
	bool stop_retries; /* with the field x-should-retry: false */
};

/* Appends the JSON body of a refusal. 0 or -ENOMEM. */
int llm_refuse(enum llm_family f, const char *text, struct buf *out, struct llm_answer *ret);
