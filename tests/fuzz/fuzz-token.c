/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses of token endpoints, cut at every place: once a part of the response is complete or
 * invalid, more bytes change nothing. The body, and the input itself, are read as answers for both
 * types of credentials.
 */
#include <string.h>

#include "base/clock.h"
#include "fuzz.h"
#include "token/credential.h"

#define NOW (UINT64_C(1800000000) * NSEC_PER_SEC)

struct read {
	char *text; /* decoded in place */
	unsigned int status;
	char *body;
	size_t n;
	int r;
};

static struct read read_first(const uint8_t *data, size_t n, bool end)
{
	struct read x = { .text = malloc(n + 1) };
	struct err e = ERR_INIT;

	assert(x.text);
	memcpy(x.text, data, n);
	x.r = response_body(x.text, n, end, &x.status, &x.body, &x.n, &e);
	assert(x.r == 0 || x.r == 1 || (x.r == -EBADMSG && e.msg[0]));
	assert(!end || x.r != 0);
	if (x.r == 1) {
		assert(x.status >= 200 && x.status <= 999);
		assert(x.body >= x.text && x.body + x.n <= x.text + n);
	}
	return x;
}

static void interpret(enum secret_source type, unsigned int status, const char *body, size_t n)
{
	_cleanup_secret_token_ struct secret_token t = SECRET_TOKEN_INIT;
	const struct credential c = { .type = type };
	struct err e = ERR_INIT;
	int r = token_answer(&c, status, body, n, NOW, &t, &e);

	assert(r == 0 || (r < 0 && e.msg[0]));
	if (r < 0)
		return;
	assert(status == 200 || status == 201);
	assert(t.issued == NOW && t.expires >= NOW + TOKEN_LIFE_MIN_S * NSEC_PER_SEC);
	assert(secret_value_check(buf_text(&t.token), t.token.len, &e) == 0);
	assert(type == SECRET_OAUTH || t.refresh.len == 0);
	assert(t.refresh.len == 0 ||
	       secret_value_check(buf_text(&t.refresh), t.refresh.len, &e) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t step = size / 64 + 1;
	struct read whole;

	if (size > TOKEN_RESPONSE_MAX)
		return 0;
	whole = read_first(data, size, true);
	for (size_t n = 0; n < size; n += step) {
		struct read part = read_first(data, n, false);

		if (part.r != 0)
			assert(part.r == whole.r);
		if (part.r == 1)
			assert(part.status == whole.status && part.n == whole.n &&
			       memcmp(part.body, whole.body, part.n) == 0);
		free(part.text);
	}
	for (int type = SECRET_OAUTH; type <= SECRET_GITHUB_APP; type++) {
		if (whole.r == 1)
			interpret((enum secret_source)type, whole.status, whole.body, whole.n);
		interpret((enum secret_source)type, 200, (const char *)data, size);
	}
	free(whole.text);
	return 0;
}
