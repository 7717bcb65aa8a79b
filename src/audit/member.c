/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads the log's own records: flat objects of texts and numbers, as written by payload.c. Not with
 * jansson: out of memory, it may return a text that lacks a character, and a verifier must not take
 * that for a forged record. This code allocates nothing.
 */
#include <sodium.h>
#include <string.h>

#include "audit/audit-inner.h"
#include "base/str.h"

/* A member of a flat object, still escaped. */
struct value {
	const char *s;
	size_t n;
	bool is_text;
};

struct cursor {
	const char *p, *end;
};

static bool take(struct cursor *c, char want)
{
	if (c->p == c->end || *c->p != want)
		return false;
	c->p++;
	return true;
}

/* Takes a text after its opening quote, up to the closing quote. */
static bool take_text(struct cursor *c, struct value *ret)
{
	ret->s = c->p;
	while (c->p < c->end && *c->p != '"')
		c->p += *c->p == '\\' && c->end - c->p > 1 ? 2 : 1;
	ret->n = (size_t)(c->p - ret->s);
	return take(c, '"');
}

static bool take_value(struct cursor *c, struct value *ret)
{
	ret->is_text = take(c, '"');
	if (ret->is_text)
		return take_text(c, ret);
	ret->s = c->p;
	while (c->p < c->end && ascii_is_digit(*c->p))
		c->p++;
	ret->n = (size_t)(c->p - ret->s);
	return ret->n > 0;
}

/* Checks the whole object: it must be valid, and have the key exactly once. */
static bool get(const char *text, size_t n, const char *key, struct value *ret)
{
	struct cursor c = { text, text + n };
	struct value name, value;
	size_t found = 0;

	if (!take(&c, '{'))
		return false;
	do {
		if (!take(&c, '"') || !take_text(&c, &name) || !take(&c, ':') ||
		    !take_value(&c, &value))
			return false;
		if (name.n == strlen(key) && memcmp(name.s, key, name.n) == 0) {
			*ret = value;
			found++;
		}
	} while (take(&c, ','));
	return take(&c, '}') && c.p == c.end && found == 1;
}

bool audit_get_number(const char *text, size_t n, const char *key, uint64_t *ret)
{
	struct value v;

	return get(text, n, key, &v) && !v.is_text && str_to_u64(v.s, v.n, INT64_MAX, ret) == 0;
}

bool audit_get_hex(const char *text, size_t n, const char *key, uint8_t *out, size_t bytes)
{
	struct value v;
	size_t got = 0;

	return get(text, n, key, &v) && v.is_text && v.n == 2 * bytes &&
	       sodium_hex2bin(out, bytes, v.s, v.n, NULL, &got, NULL) == 0 && got == bytes;
}

bool audit_get_id(const char *text, size_t n, char ret[static AUDIT_ID_MAX + 1])
{
	struct value v;

	if (!get(text, n, "sandbox", &v) || !v.is_text || v.n > AUDIT_ID_MAX)
		return false;
	memcpy(ret, v.s, v.n);
	ret[v.n] = '\0';
	return audit_id_valid(ret);
}

bool audit_get_mark(const char *text, size_t n, struct audit_mark *ret)
{
	return audit_get_number(text, n, "seq", &ret->seq) &&
	       audit_get_hex(text, n, "hash", ret->hash, AUDIT_HASH) &&
	       audit_get_hex(text, n, "key", ret->key, AUDIT_PUBLIC) &&
	       audit_get_hex(text, n, "signature", ret->signature, AUDIT_SIGNATURE);
}
