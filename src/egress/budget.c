/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/budget.h"

#include <string.h>

#include "base/clock.h"
#include "base/str.h"

void budget_init(struct budget *b, const struct budget_limits *max)
{
	*b = (struct budget){ .max = *max, .out = max->bytes_out, .in = max->bytes_in };
}

void budget_done(struct budget *b)
{
	for (size_t i = 0; i < b->names.cap; i++)
		free(b->names.v[i]);
	free(b->names.v);
	b->names = (struct budget_names){ 0 };
}

/* ---- names ---- */

/* The slot of `host`, or the free slot for it; the table is never full. */
static char **slot_of(const struct budget_names *t, const char *host)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	size_t i;

	for (const char *s = host; *s; s++)
		h = (h ^ (unsigned char)*s) * UINT64_C(0x100000001b3);
	for (i = (size_t)(h ^ h >> 32) & (t->cap - 1); t->v[i] && !str_eq(t->v[i], host);)
		i = (i + 1) & (t->cap - 1);
	return &t->v[i];
}

static int grow(struct budget_names *t)
{
	struct budget_names wide = { .n = t->n, .cap = t->cap ? t->cap * 2 : 64 };

	if (t->n < t->cap / 2)
		return 0;
	wide.v = calloc(wide.cap, sizeof(wide.v[0]));
	if (!wide.v)
		return -ENOMEM;
	for (size_t i = 0; i < t->cap; i++)
		if (t->v[i])
			*slot_of(&wide, t->v[i]) = t->v[i];
	free(t->v);
	*t = wide;
	return 0;
}

static enum budget_result use_name(struct budget *b, const char *host)
{
	char **slot;

	if (grow(&b->names) < 0)
		return BUDGET_NO_MEMORY;
	slot = slot_of(&b->names, host);
	if (*slot)
		return BUDGET_OK;
	if (b->names.n >= b->max.names)
		return BUDGET_NAMES;
	*slot = strdup(host);
	if (!*slot)
		return BUDGET_NO_MEMORY;
	b->names.n++;
	return BUDGET_OK;
}

void budget_spend(struct budget *b, uint64_t out, uint64_t in)
{
	b->out -= MIN(b->out, out);
	b->in -= MIN(b->in, in);
}

int budget_spend_name(struct budget *b, const char *host)
{
	return use_name(b, host) == BUDGET_NO_MEMORY ? -ENOMEM : 0;
}

/* ---- streams ---- */

static void pass_time(struct budget *b, uint64_t now)
{
	uint64_t second = now / NSEC_PER_SEC;

	for (unsigned int i = 0; b->second < second && i < BUDGET_SLOTS; i++) {
		uint32_t *slot = &b->opened[++b->second % BUDGET_SLOTS];

		b->recent -= *slot;
		*slot = 0;
	}
	b->second = second;
}

enum budget_result budget_open(struct budget *b, const char *host, uint64_t now)
{
	enum budget_result r;

	pass_time(b, now);
	if (b->out == 0)
		return BUDGET_BYTES_OUT;
	if (b->in == 0)
		return BUDGET_BYTES_IN;
	if (b->streams >= b->max.streams)
		return BUDGET_STREAMS;
	if (b->recent >= b->max.streams_per_minute)
		return BUDGET_RATE;
	r = use_name(b, host);
	if (r != BUDGET_OK)
		return r;
	b->streams++;
	b->recent++;
	b->opened[b->second % BUDGET_SLOTS]++;
	return BUDGET_OK;
}

void budget_close(struct budget *b)
{
	assert(b->streams > 0);
	b->streams--;
}
