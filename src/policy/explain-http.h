/* SPDX-License-Identifier: Apache-2.0 */
/* Why a request is allowed or denied, and which secret it gets. */
#pragma once

#include "policy/policy.h"

struct request {
	struct target target; /* a name */
	bool tls;	      /* without TLS no secret is sent */
	char method[L7_METHOD_MAX + 1];
	char path[L7_PATH_MAX + 1]; /* canonical */
};

/* Parses "METHOD HOST[:PORT]/PATH"; the host may begin with https:// or http://. A query is cut
 * off. */
int request_parse(const char *text, struct request *ret, struct err *e);

/* Points into the policy and the store. */
struct request_explanation {
	bool allowed;
	struct explanation connect;   /* whether the host may be connected to at all */
	const struct http_rule *rule; /* the deciding rule of egress.http, or NULL */
	const struct http_rule *near; /* if no rule allows it: the one that comes closest */
	const struct llm_rule *llm;   /* the rule of `llm` for the host, or NULL */
	bool no_call;		      /* and it denies this request: no known call of a model */
	/* Bound to the host and path; with several, the request's placeholder decides. */
	const struct secret *secrets[POLICY_SECRETS_MAX];
	size_t n_secrets;
};

int policy_explain_request(const struct policy *p, struct policy_store *store,
			   const struct request *r, struct request_explanation *ret, struct err *e);

/* "anthropic, claude-*, at most 100 requests, 5000 tokens, $0.50". Cut at `size`. */
const char *llm_rule_format(const struct llm_rule *r, char *out, size_t size);

/* The rule without its host: l7_rule_format(). */
const char *http_rule_format(const struct http_rule *r, char *out, size_t size);
