/* SPDX-License-Identifier: Apache-2.0 */
/* As in "SipHash: a fast short-input PRF", Aumasson and Bernstein, 2012. */
#include "egress/siphash.h"

struct state {
	uint64_t a, b, c, d;
};

static uint64_t load(const uint8_t *p, size_t n)
{
	uint64_t v = 0;

	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

static uint64_t rotate(uint64_t v, unsigned int by)
{
	return v << by | v >> (64 - by);
}

static void rounds(struct state *s, unsigned int n)
{
	while (n-- > 0) {
		s->a += s->b;
		s->b = rotate(s->b, 13) ^ s->a;
		s->a = rotate(s->a, 32);
		s->c += s->d;
		s->d = rotate(s->d, 16) ^ s->c;
		s->a += s->d;
		s->d = rotate(s->d, 21) ^ s->a;
		s->c += s->b;
		s->b = rotate(s->b, 17) ^ s->c;
		s->c = rotate(s->c, 32);
	}
}

static void word(struct state *s, uint64_t w)
{
	s->d ^= w;
	rounds(s, 2);
	s->a ^= w;
}

uint64_t siphash(const uint8_t key[static SIPHASH_KEY], const void *data, size_t n)
{
	uint64_t k0 = load(key, 8), k1 = load(key + 8, 8);
	struct state s = { .a = k0 ^ UINT64_C(0x736f6d6570736575),
			   .b = k1 ^ UINT64_C(0x646f72616e646f6d),
			   .c = k0 ^ UINT64_C(0x6c7967656e657261),
			   .d = k1 ^ UINT64_C(0x7465646279746573) };
	const uint8_t *p = data;
	size_t i = 0;

	for (; i + 8 <= n; i += 8)
		word(&s, load(p + i, 8));
	word(&s, load(p + i, n - i) | (uint64_t)n << 56);
	s.c ^= 0xff;
	rounds(&s, 4);
	return s.a ^ s.b ^ s.c ^ s.d;
}
