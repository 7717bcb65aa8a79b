/* SPDX-License-Identifier: Apache-2.0 */
#include "ca-store/sha1.h"

#include <string.h>

static uint32_t rotate(uint32_t x, unsigned int n)
{
	return x << n | x >> (32 - n);
}

static uint32_t mix(unsigned int round, uint32_t b, uint32_t c, uint32_t d)
{
	static const uint32_t add[] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
	const unsigned int kind = round / 20;

	if (kind == 0)
		return add[kind] + ((b & c) | (~b & d));
	if (kind == 2)
		return add[kind] + ((b & c) | (b & d) | (c & d));
	return add[kind] + (b ^ c ^ d);
}

static void take_block(struct sha1 *s, const uint8_t *block)
{
	uint32_t w[80], v[5];

	for (size_t i = 0; i < 16; i++)
		w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
		       (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
	for (size_t i = 16; i < 80; i++)
		w[i] = rotate(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
	memcpy(v, s->h, sizeof(v));
	for (unsigned int i = 0; i < 80; i++) {
		uint32_t next = rotate(v[0], 5) + mix(i, v[1], v[2], v[3]) + v[4] + w[i];

		v[4] = v[3];
		v[3] = v[2];
		v[2] = rotate(v[1], 30);
		v[1] = v[0];
		v[0] = next;
	}
	for (size_t i = 0; i < 5; i++)
		s->h[i] += v[i];
}

void sha1_init(struct sha1 *s)
{
	*s = (struct sha1){
		.h = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 },
	};
}

void sha1_put(struct sha1 *s, const void *data, size_t n)
{
	const uint8_t *in = data;

	for (size_t i = 0; i < n; i++) {
		s->block[s->n++ % SHA1_BLOCK] = in[i];
		if (s->n % SHA1_BLOCK == 0)
			take_block(s, s->block);
	}
}

void sha1_end(struct sha1 *s, uint8_t ret[static SHA1_BYTES])
{
	const uint64_t bits = s->n * 8;
	uint8_t length[8];

	for (unsigned int i = 0; i < sizeof(length); i++)
		length[i] = (uint8_t)(bits >> (56 - 8 * i));
	sha1_put(s, "\x80", 1);
	while (s->n % SHA1_BLOCK != SHA1_BLOCK - sizeof(length))
		sha1_put(s, "\0", 1);
	sha1_put(s, length, sizeof(length));
	for (size_t i = 0; i < SHA1_BYTES; i++)
		ret[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}
