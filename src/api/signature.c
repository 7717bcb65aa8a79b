/* SPDX-License-Identifier: Apache-2.0 */
#include "api/signature.h"

#include <sodium.h>

#include "base/clock.h"
#include "base/str.h"

#define PREFIX "v1_"

static void add(crypto_hash_sha256_state *state, const char *text)
{
	(void)crypto_hash_sha256_update(state, (const unsigned char *)text, strlen(text));
}

void signature_make(const char *path, const char *op, const char *user, const char *token,
		    const char *expiration, char ret[static SIGNATURE_TEXT + 1])
{
	unsigned char hash[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_state state;
	const char *parts[] = { path, op, user, token, expiration };

	(void)crypto_hash_sha256_init(&state);
	for (size_t i = 0; i < ARRAY_SIZE(parts) && parts[i]; i++) {
		if (i > 0)
			add(&state, ":");
		add(&state, parts[i]);
	}
	(void)crypto_hash_sha256_final(&state, hash);
	memcpy(ret, PREFIX, STRLEN(PREFIX));
	(void)sodium_bin2base64(ret + STRLEN(PREFIX), SIGNATURE_TEXT + 1 - STRLEN(PREFIX), hash,
				sizeof(hash), sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
	sodium_memzero(&state, sizeof(state));
}

/* Reads a value of the query; `otherwise` (may be NULL) is the default. */
static int value(const struct exchange *x, const char *name, const char *otherwise, char **ret)
{
	int r = http_query(x, name, ret);

	if (r != -ENOENT)
		return r;
	*ret = otherwise ? strdup(otherwise) : NULL;
	return otherwise && !*ret ? -ENOMEM : 0;
}

bool signature_matches(const struct exchange *x, const char *token, const char *op)
{
	_cleanup_free_ char *path = NULL, *user = NULL, *given = NULL, *end = NULL;
	char right[SIGNATURE_TEXT + 1];

	if (value(x, "path", "", &path) < 0 || value(x, "username", "", &user) < 0 ||
	    value(x, "signature", "", &given) < 0 ||
	    value(x, "signature_expiration", NULL, &end) < 0 || strlen(given) != SIGNATURE_TEXT)
		return false;
	signature_make(path, op, user, token, end, right);
	return sodium_memcmp(given, right, SIGNATURE_TEXT) == 0;
}

int signature_expired(const struct exchange *x)
{
	_cleanup_free_ char *end = NULL;
	uint64_t seconds = 0;
	int r = value(x, "signature_expiration", NULL, &end);

	if (r < 0 || !end)
		return r;
	if (str_to_u64(end, strlen(end), INT64_MAX, &seconds) < 0)
		return -EINVAL;
	return seconds < clock_wall() / NSEC_PER_SEC;
}
