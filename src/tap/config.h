/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of hutch-tap: rules, secrets with their values, the CA. The warden writes it as
 * JSON: the text `tap` of the spec (secrets and rules), and the members that only the warden has.
 *
 *	{"secrets": [{"name", "hosts": [], "paths": [], "form", "header", "format", "user",
 *		      "parameter", "placeholder"}],
 *	 "http": [{"host", "methods": [], "paths": [], "max_body", "rate", "deny", "at"}],
 *	 "llm": {"rules": [{"provider", "hosts": [], "models": [], "requests", "tokens", "usd",
 *			    "price": {...}, "at"}],
 *		 "prices": [{"model", "input", "cached", "cache_write", "output"}]},
 *	 "values": {NAME: VALUE},	secrets without a value are missing
 *	 "roots": PEM,			CAs trusted beside the host's own; "": none
 *	 "ca": {"cert": PEM, "key": PEM}}
 *
 * Every key is present, but for `llm` and `price`. Unknown keys are errors.
 */
#pragma once

#include "l7/l7.h"
#include "llm/llm.h"
#include "tap-link/tap-link.h"

enum secret_form {
	SECRET_BEARER, /* Authorization: Bearer VALUE */
	SECRET_HEADER, /* HEADER: FORMAT with {} replaced by VALUE */
	SECRET_BASIC,  /* Authorization: Basic base64(USER:VALUE) */
	SECRET_QUERY,  /* the query parameter PARAMETER */
	SECRET_AWS,    /* SigV4, signed again; VALUE is KEY-ID:SECRET-KEY[:SESSION-TOKEN] */
	SECRET_FORMS,
};

struct tap_secret {
	const char *name, *header, *format, *user, *parameter, *placeholder;
	struct l7_list hosts; /* exact names */
	struct l7_list paths; /* patterns; empty: every path */
	enum secret_form form;
	const char *value; /* NULL: none */
};

/* A rule of `llm`. */
struct tap_llm {
	enum llm_provider provider;
	struct l7_list hosts;		/* exact names */
	struct l7_list models;		/* patterns; empty: every model */
	uint64_t requests, tokens, usd; /* budgets; usd in millionths; 0: none */
	bool has_price;
	struct llm_price price;
	const char *at;
};

static inline bool tap_llm_has_budget(const struct tap_llm *r)
{
	return r->requests > 0 || r->tokens > 0 || r->usd > 0;
}

struct tap_config {
	struct tap_secret *secrets;
	size_t n_secrets;
	struct l7_rule *http;
	size_t n_http;
	struct tap_llm *llm;
	size_t n_llm;
	struct llm_price *prices;
	size_t n_prices;
	const char *roots, *ca_cert, *ca_key;
	void *json; /* owns all texts */
};

/* Parses `n` bytes of JSON; strict. The caller calls tap_config_done(), which wipes the values. */
int tap_config_parse(const char *text, size_t n, struct tap_config *ret, struct err *e);
void tap_config_done(struct tap_config *c);
