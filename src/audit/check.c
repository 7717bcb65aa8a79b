/* SPDX-License-Identifier: Apache-2.0 */
/* Collects what the host chain says about the other chains: beginnings, ends, removals. */
#include <string.h>

#include "audit/audit-inner.h"
#include "base/str.h"

enum {
	LIVES_MAX = 16 * 1024 * 1024
};

static const char says_not[] = "its payload lacks what such a record must contain";

void audit_lives_done(struct audit_lives *l)
{
	free(l->v);
	free(l->gone);
}

static void *grow(void *v, size_t n, size_t *cap, size_t size)
{
	size_t more = *cap ? 2 * *cap : 64;
	void *p;

	if (n < *cap)
		return v;
	p = more > LIVES_MAX ? NULL : reallocarray(v, more, size);
	if (p)
		*cap = more;
	return p;
}

static int push_life(struct audit_lives *l, const struct audit_life *life)
{
	struct audit_life *v = grow(l->v, l->n, &l->cap, sizeof(*v));

	if (!v)
		return -ENOMEM;
	l->v = v;
	l->v[l->n++] = *life;
	return 0;
}

static int push_gone(struct audit_lives *l, const struct audit_gone *gone)
{
	struct audit_gone *v = grow(l->gone, l->n_gone, &l->cap_gone, sizeof(*v));

	if (!v)
		return -ENOMEM;
	l->gone = v;
	l->gone[l->n_gone++] = *gone;
	return 0;
}

/* The end of a chain: "records" and "last". */
static bool get_end(const struct audit_record *r, uint64_t *ret_count,
		    uint8_t ret_hash[static AUDIT_HASH])
{
	return audit_get_number(r->payload, r->n_payload, "records", ret_count) &&
	       audit_get_hex(r->payload, r->n_payload, "last", ret_hash, AUDIT_HASH);
}

static bool read_life(const struct audit_record *rec, struct audit_life *life)
{
	if (!audit_get_id(rec->payload, rec->n_payload, life->id))
		return false;
	life->seq = rec->seq;
	if (rec->kind == AUDIT_BEGIN)
		return life->begun = audit_get_hex(rec->payload, rec->n_payload, "first",
						   life->first, AUDIT_HASH);
	if (rec->kind == AUDIT_SEAL) {
		life->sealed = true;
		life->sealed_seq = rec->seq;
		return get_end(rec, &life->count, life->last);
	}
	life->dropped = true;
	life->dropped_seq = rec->seq;
	return true;
}

const char *audit_lives_add(struct audit_lives *l, const struct audit_file *f, uint64_t offset,
			    const struct audit_record *rec, int *ret_r)
{
	struct audit_life life = { .number = f->number, .offset = offset };
	struct audit_gone gone = { .seq = rec->seq };
	uint64_t number;

	*ret_r = 0;
	if (rec->kind != AUDIT_BEGIN && rec->kind != AUDIT_SEAL && rec->kind != AUDIT_DROPPED)
		return NULL;
	if (rec->kind == AUDIT_BEGIN && rec->seq == 0) /* the host chain's own */
		return NULL;
	if (rec->kind == AUDIT_DROPPED &&
	    audit_get_number(rec->payload, rec->n_payload, "host", &number)) {
		if (!get_end(rec, &gone.head.count, gone.head.hash))
			return says_not;
		*ret_r = push_gone(l, &gone);
		return NULL;
	}
	if (!read_life(rec, &life))
		return says_not;
	*ret_r = push_life(l, &life);
	return NULL;
}

static int by_id(const void *a, const void *b)
{
	const struct audit_life *x = a, *y = b;
	int order = strcmp(x->id, y->id);

	return order ? order : x->seq == y->seq ? 0 : x->seq < y->seq ? -1 : 1;
}

/* Merges `next` into the earlier entry of the same id. */
static const char *join(struct audit_life *life, const struct audit_life *next)
{
	if (next->begun) {
		if (life->begun && !life->dropped)
			return "this sandbox has begun before";
		*life = *next;
	} else if (next->sealed) {
		if (life->sealed &&
		    (life->count != next->count || memcmp(life->last, next->last, AUDIT_HASH) != 0))
			return "this sandbox has ended before, elsewhere";
		life->sealed = true;
		life->count = next->count;
		life->sealed_seq = next->sealed_seq;
		memcpy(life->last, next->last, AUDIT_HASH);
	} else {
		life->dropped = true;
		life->dropped_seq = next->dropped_seq;
	}
	return NULL;
}

const char *audit_lives_fold(struct audit_lives *l, size_t *ret_at)
{
	size_t n = 0;

	if (l->n > 0)
		qsort(l->v, l->n, sizeof(*l->v), by_id);
	for (size_t i = 0; i < l->n; i++) {
		const char *why = NULL;

		if (n > 0 && str_eq(l->v[n - 1].id, l->v[i].id))
			why = join(&l->v[n - 1], &l->v[i]);
		else
			l->v[n++] = l->v[i];
		if (why) {
			*ret_at = i;
			return why;
		}
	}
	l->n = n;
	return NULL;
}
