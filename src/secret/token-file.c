/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NAME.token: the current token of a secret whose value is a credential. hutch-token writes it.
 *
 * The sealed text is JSON with the token, its times, and the refresh token that the endpoint sent
 * with it: one rename replaces both. It is sealed for the name and for the time at which the
 * credential was set, so that the token of a replaced credential is not used.
 *
 * This file reads it; token.c finds its credential and writes it.
 */
#include <string.h>

#include "base/clock.h"
#include "base/json-util.h"
#include "secret/inner.h"

void secret_token_done(struct secret_token *t)
{
	secret_wipe(&t->token);
	secret_wipe(&t->refresh);
}

uint64_t secret_token_due(const struct secret_token *t)
{
	return t->expires - (t->expires - t->issued) / 4;
}

const char *secret_token_purpose(const struct secret_info *i, char out[static SECRET_PURPOSE_MAX])
{
	char set[CLOCK_RFC3339_MAX];

	(void)snprintf(out, SECRET_PURPOSE_MAX, "hutch token %s %s", i->name,
		       clock_format(i->set, set));
	return out;
}

/* ---- reading ---- */

static int read_time(const json_t *o, const char *key, uint64_t *ret, struct err *e)
{
	const char *text = "";

	if (json_get_string(o, key, CLOCK_RFC3339_MAX, &text, e) < 0)
		return e->num;
	return clock_parse(text, ret) < 0 ? err_set(e, -EBADMSG, "'%s' is not a time", key) : 0;
}

/* The caller wipes what is read, also after an error. */
static int read_text(const struct buf *text, struct secret_token *ret, struct err *e)
{
	static const char *const known[] = { "token", "issued", "expires", "refresh_token", NULL };
	const char *token = "", *refresh = "";
	_cleanup_json_ json_t *o = NULL;

	if (json_read(buf_text(text), text->len, &o, e) < 0 || json_only_keys(o, known, e) < 0 ||
	    json_get_string(o, "token", SECRET_VALUE_MAX, &token, e) < 0 ||
	    read_time(o, "issued", &ret->issued, e) < 0 ||
	    read_time(o, "expires", &ret->expires, e) < 0)
		return e->num;
	if (json_object_get(o, "refresh_token") &&
	    json_get_string(o, "refresh_token", SECRET_VALUE_MAX, &refresh, e) < 0)
		return e->num;
	if (ret->issued > ret->expires)
		return err_set(e, -EBADMSG, "'expires' is before 'issued'");
	if (buf_puts(&ret->token, token) < 0 || buf_puts(&ret->refresh, refresh) < 0)
		return err_oom(e);
	return secret_value_check(token, ret->token.len, e);
}

int secret_token_load(const struct secret_store *s, const uint8_t key[static SECRET_KEY],
		      const struct secret_info *info, struct secret_token *ret, struct err *e)
{
	_cleanup_buf_ struct buf sealed = BUF_INIT(SECRET_TOKEN_TEXT + 64);
	_cleanup_secret_ struct buf text = BUF_INIT(SECRET_TOKEN_TEXT);
	char file[SECRET_FILE_NAME], purpose[SECRET_PURPOSE_MAX];
	struct err why = ERR_INIT;
	int r = secret_read_file(s, secret_file_name(info->name, SECRET_TOKEN_FILE, file), &sealed,
				 e);

	if (r == -ENOENT)
		return -ENODATA;
	if (r < 0)
		return r;
	r = box_open(key, secret_token_purpose(info, purpose), &sealed, &text, &why);
	if (r == 0)
		r = read_text(&text, ret, &why);
	return r == 0 || r == -ENOMEM ? r : -ENODATA;
}

int secret_token_get(const struct secret_store *s, const uint8_t key[static SECRET_KEY],
		     const struct secret_info *info, struct buf *ret, struct err *e)
{
	_cleanup_secret_token_ struct secret_token t = SECRET_TOKEN_INIT;
	char time[CLOCK_RFC3339_MAX];
	int r = secret_token_load(s, key, info, &t, e);

	if (r == -ENODATA)
		return err_set(e, r, "there is no token yet: see 'hutch secret refresh %s'",
			       info->name);
	if (r < 0)
		return r;
	if (clock_wall() >= t.expires)
		return err_set(e, -ETIME, "its token expired at %s: see 'hutch secret refresh %s'",
			       clock_format(t.expires, time), info->name);
	return buf_put(ret, t.token.data, t.token.len) < 0 ? err_oom(e) : 0;
}
