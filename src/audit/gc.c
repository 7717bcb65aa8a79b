/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Enforces the cap. If the log is too large, removes the oldest chains of ended sandboxes, then the
 * oldest files of the host chain, until an eighth is free. Keeps a file of the host chain in which
 * an existing chain begins: otherwise that beginning could not be verified. Records each removal
 * first, followed by a checkpoint; an unsigned removal counts as damage.
 */
#include <fcntl.h>
#include <string.h>

#include "audit/audit-inner.h"
#include "base/fault.h"
#include "base/str.h"

struct gc {
	struct audit_log *log;
	struct audit_set set;
	struct audit_lives lives;
	struct audit_head *ends; /* end of each host chain file */
	size_t n_host;
	bool *going; /* files of the set to be removed */
	uint64_t used, target;
	bool any;
};

static void gc_done(struct gc *g)
{
	audit_set_done(&g->set);
	audit_lives_done(&g->lives);
	free(g->ends);
	free(g->going);
}

/* Reads the host chain to learn about the sandboxes, and where each of its files ends. */
static int look(struct gc *g, struct err *e)
{
	_cleanup_scan_ struct audit_scan *s = malloc(sizeof(*s));
	struct audit_record rec;
	const char *why = NULL;
	uint64_t torn, offset = 0;
	size_t at;
	int r, added = 0;

	if (!s)
		return err_oom(e);
	audit_scan_init(s, &g->set, 0, g->n_host);
	r = audit_scan_adopt(s);
	while (r >= 0 && (r = audit_scan_next(s, &rec, &torn, &why)) == 1) {
		why = audit_lives_add(&g->lives, &g->set.files[s->file], offset, &rec, &added);
		if (why || added < 0)
			r = added < 0 ? added : -EBADMSG;
		g->ends[s->file] = s->head;
		offset = s->offset;
	}
	if (r == 0 && (why = audit_lives_fold(&g->lives, &at)))
		r = -EBADMSG;
	if (r == -EBADMSG)
		return err_set(e, r, "the audit log is damaged (%s: %s): see 'hutch audit verify'",
			       g->set.files[s->file].name, why);
	return r < 0 ? err_set(e, r, "cannot read the audit log: %s", strerror(-r)) : 0;
}

/* Size of the chain's files; marks them for removal if `going`. */
static uint64_t chain_bytes(struct gc *g, const char *id, bool going)
{
	uint64_t bytes = 0;

	for (size_t i = g->n_host; i < g->set.n; i++)
		if (!g->going[i] && str_eq(g->set.files[i].id, id)) {
			bytes += g->set.files[i].size;
			g->going[i] = going;
		}
	return bytes;
}

static int drop_chain(struct gc *g, struct audit_life *life, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	uint64_t bytes = chain_bytes(g, life->id, false);
	int r;

	audit_put_text(&p, "sandbox", life->id);
	audit_put_number(&p, "records", life->count);
	audit_put_hex(&p, "last", life->last, AUDIT_HASH);
	audit_put_number(&p, "bytes", bytes);
	r = audit_host_locked(g->log, AUDIT_DROPPED, &p, e);
	if (r < 0)
		return r;
	life->dropped = g->any = true;
	(void)chain_bytes(g, life->id, true);
	g->used -= bytes;
	return 0;
}

static int drop_host(struct gc *g, size_t i, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	int r;

	audit_put_number(&p, "host", g->set.files[i].number);
	audit_put_number(&p, "records", g->ends[i].count);
	audit_put_hex(&p, "last", g->ends[i].hash, AUDIT_HASH);
	audit_put_number(&p, "bytes", g->set.files[i].size);
	r = audit_host_locked(g->log, AUDIT_DROPPED, &p, e);
	if (r < 0)
		return r;
	g->going[i] = g->any = true;
	g->used -= g->set.files[i].size;
	return 0;
}

/* The existing chain that was sealed first. */
static struct audit_life *oldest(struct gc *g)
{
	struct audit_life *best = NULL;

	for (size_t i = 0; i < g->lives.n; i++) {
		struct audit_life *life = &g->lives.v[i];

		if (life->sealed && !life->dropped &&
		    (!best || life->sealed_seq < best->sealed_seq))
			best = life;
	}
	return best;
}

static bool is_needed(const struct gc *g, uint32_t number)
{
	for (size_t i = 0; i < g->lives.n; i++)
		if (g->lives.v[i].begun && !g->lives.v[i].dropped && g->lives.v[i].number == number)
			return true;
	return false;
}

static int drop_enough(struct gc *g, struct err *e)
{
	int r = 0;

	while (r == 0 && g->used > g->target) {
		struct audit_life *life = oldest(g);

		if (!life)
			break;
		r = drop_chain(g, life, e);
	}
	for (size_t i = 0; r == 0 && g->used > g->target && i + 1 < g->n_host; i++) {
		if (is_needed(g, g->set.files[i].number))
			break;
		r = drop_host(g, i, e);
	}
	return r;
}

static void remove_files(const struct gc *g)
{
	/* A file that cannot be removed now stays recorded as removed; the next run tries again. */
	for (size_t i = 0; i < g->set.n; i++)
		if (g->going[i])
			(void)unlinkat(i < g->n_host ? g->log->dir : g->log->sandboxes,
				       g->set.files[i].name, 0);
}

/* Marks files of chains that a process recorded as removed and was killed before removing them. */
static void mark_leftovers(struct gc *g)
{
	for (size_t i = 0; i < g->lives.n; i++)
		if (g->lives.v[i].dropped)
			g->used -= chain_bytes(g, g->lives.v[i].id, true);
	for (size_t i = 0; i + 1 < g->n_host; i++)
		for (size_t k = 0; k < g->lives.n_gone && !g->going[i]; k++)
			if (g->lives.gone[k].head.count == g->ends[i].count) {
				g->going[i] = true;
				g->used -= g->set.files[i].size;
			}
}

static int collect(struct gc *g, struct err *e)
{
	int r;

	g->ends = calloc(g->n_host + 1, sizeof(*g->ends));
	g->going = calloc(g->set.n + 1, sizeof(*g->going));
	if (!g->ends || !g->going)
		return err_oom(e);
	r = look(g, e);
	if (r == 0) {
		mark_leftovers(g);
		r = drop_enough(g, e);
	}
	if (r == 0 && g->any)
		r = audit_checkpoint_locked(g->log, NULL, e);
	if (r == 0 && g->any)
		r = audit_sync(g->log, NULL) < 0 ? err_set(e, -EIO, "cannot sync the audit log")
						 : 0;
	if (r == 0)
		r = FAULT_ERR("audit-dropping", e);
	if (r == 0)
		remove_files(g);
	if (r == 0)
		(void)FAULT("audit-dropped");
	return r;
}

int audit_gc_locked(struct audit_log *l, struct err *e)
{
	_cleanup_(gc_done) struct gc g = { .log = l,
					   .set = AUDIT_SET_INIT,
					   .target = l->max / 8 * 7 };
	int r;

	if (!l->check)
		return 0;
	r = audit_set_list(l, &g.set, e);
	if (r < 0)
		return r;
	for (size_t i = 0; i < g.set.n; i++) {
		g.used += g.set.files[i].size;
		g.n_host += !g.set.files[i].id[0];
	}
	if (g.used > l->max)
		r = collect(&g, e);
	l->check = r < 0 || g.used > l->max;
	if (r == 0 && g.used > l->max)
		return err_set(e, -ENOSPC,
			       "the audit log '%s' has %llu of %llu bytes and nothing can be "
			       "removed; nothing is "
			       "started: end sandboxes, or raise HUTCH_AUDIT_MAX",
			       l->path, (unsigned long long)g.used, (unsigned long long)l->max);
	return r;
}

/* Appends a record, then enforces the cap. */
int audit_host(struct audit_log *l, enum audit_kind kind, const struct audit_payload *p,
	       struct err *e)
{
	int r;

	if (l->off)
		return 0;
	r = audit_lock(l, LOCK_EX, e);
	if (r < 0)
		return r;
	r = audit_host_locked(l, kind, p, e);
	if (r == 0)
		r = audit_gc_locked(l, e);
	audit_unlock(l);
	return r;
}
