/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <string.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_put(struct buf *b, const void *data, size_t n)
{
	const uint8_t *in = data;
	size_t len = n / 3 * 4 + (n % 3 > 0 ? 4 : 0);
	char *out = n <= SIZE_MAX / 2 ? buf_reserve(b, len) : NULL;

	if (!out)
		return b->err ? b->err : -ENOBUFS;
	for (; n > 0; in += 3, out += 4) {
		size_t k = MIN(n, (size_t)3);
		uint32_t v = (uint32_t)in[0] << 16 | (k > 1 ? (uint32_t)in[1] << 8 : 0) |
			     (k > 2 ? in[2] : 0);

		out[0] = alphabet[v >> 18];
		out[1] = alphabet[v >> 12 & 63];
		out[2] = k > 1 ? alphabet[v >> 6 & 63] : '=';
		out[3] = k > 2 ? alphabet[v & 63] : '=';
		n -= k;
	}
	buf_commit(b, len);
	return 0;
}

static int value_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

/* Returns the length without padding; SIZE_MAX if the padding is wrong. */
static size_t strip(const char *text, size_t n)
{
	size_t pad = 0;

	while (pad < 2 && pad < n && text[n - 1 - pad] == '=')
		pad++;
	if (pad > 0 && n % 4 != 0)
		return SIZE_MAX;
	return (n - pad) % 4 == 1 ? SIZE_MAX : n - pad;
}

int base64_decode(const char *text, size_t n, char **ret, size_t *ret_n)
{
	_cleanup_free_ char *out = NULL;
	size_t used = 0;
	uint32_t bits = 0;
	unsigned int n_bits = 0;

	n = strip(text, n);
	if (n == SIZE_MAX)
		return -EINVAL;
	out = malloc(n / 4 * 3 + 4);
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		int v = value_of(text[i]);

		if (v < 0)
			return -EINVAL;
		bits = (bits << 6 | (uint32_t)v) & 0xffff;
		n_bits += 6;
		if (n_bits >= 8) {
			n_bits -= 8;
			out[used++] = (char)(uint8_t)(bits >> n_bits);
		}
	}
	if (bits & ((1U << n_bits) - 1))
		return -EINVAL;
	out[used] = '\0';
	*ret = TAKE_PTR(out);
	*ret_n = used;
	return 0;
}
