/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json-util.h"
#include "base/str.h"
#include "token/credential.h"

/* RFC 6749, 5.2. Other texts of an answer may contain a token. */
static const char *const codes[] = { "invalid_request",	    "invalid_client",
				     "invalid_grant",	    "invalid_scope",
				     "unauthorized_client", "unsupported_grant_type",
				     "access_denied",	    "temporarily_unavailable" };

static const char *code_of(const char *body, size_t n)
{
	_cleanup_json_ json_t *o = NULL;
	struct err ignored = ERR_INIT;
	const char *word;

	if (json_read(body, n, &o, &ignored) < 0)
		return NULL;
	word = json_string_value(json_object_get(o, "error"));
	for (size_t i = 0; word && i < ARRAY_SIZE(codes); i++)
		if (str_eq(word, codes[i]))
			return codes[i];
	return NULL;
}

static int refused(unsigned int status, const char *body, size_t n, struct err *e)
{
	const char *code = code_of(body, n);

	return err_set(e, -EACCES, "the token endpoint refused with status %u%s%s", status,
		       code ? ": " : "", code ? code : "");
}

static int bad(const char *why, struct err *e)
{
	return err_set(e, -EBADMSG, "the token endpoint's answer %s", why);
}

/* A message of the check contains no part of the value. */
static int take(const json_t *o, const char *key, struct buf *ret, struct err *e)
{
	const char *s = json_string_value(json_object_get(o, key));
	struct err why = ERR_INIT;

	if (!s)
		return err_set(e, -EBADMSG, "the token endpoint's answer has no '%s'", key);
	if (secret_value_check(s, strlen(s), &why) < 0)
		return err_set(e, -EBADMSG, "the token endpoint's '%s' cannot be used: %s", key,
			       why.msg);
	return buf_puts(ret, s) < 0 ? err_oom(e) : 0;
}

static int take_oauth(const json_t *o, uint64_t now, struct secret_token *ret, struct err *e)
{
	const json_t *type = json_object_get(o, "token_type"),
		     *in = json_object_get(o, "expires_in");
	uint64_t life = TOKEN_LIFE_S;

	if (!json_is_string(type) || strcasecmp(json_string_value(type), "bearer") != 0)
		return bad("is not a bearer token", e);
	if (in) {
		if (!json_is_integer(in) || json_integer_value(in) < TOKEN_LIFE_MIN_S)
			return bad("has no valid 'expires_in'", e);
		life = MIN((uint64_t)json_integer_value(in), (uint64_t)TOKEN_LIFE_MAX_S);
	}
	ret->expires = now + life * NSEC_PER_SEC;
	if (take(o, "access_token", &ret->token, e) < 0)
		return e->num;
	return json_object_get(o, "refresh_token") ? take(o, "refresh_token", &ret->refresh, e) : 0;
}

static int take_github(const json_t *o, uint64_t now, struct secret_token *ret, struct err *e)
{
	const char *at = json_string_value(json_object_get(o, "expires_at"));

	if (!at || clock_parse(at, &ret->expires) < 0 ||
	    ret->expires < now + TOKEN_LIFE_MIN_S * NSEC_PER_SEC)
		return bad("has no valid 'expires_at': is the clock of this host right?", e);
	return take(o, "token", &ret->token, e);
}

int token_answer(const struct credential *c, unsigned int status, const char *body, size_t n,
		 uint64_t now, struct secret_token *ret, struct err *e)
{
	_cleanup_json_ json_t *o = NULL;
	struct err why = ERR_INIT;

	if (status != 200 && status != 201)
		return refused(status, body, n, e);
	/* The reason may quote the text. */
	if (json_read(body, n, &o, &why) < 0 || !json_is_object(o))
		return bad("is not an object of JSON", e);
	ret->issued = now;
	return c->type == SECRET_OAUTH ? take_oauth(o, now, ret, e) : take_github(o, now, ret, e);
}
