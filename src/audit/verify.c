/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verification. Checks the host chain first, record by record, with its signatures, and collects
 * what it says about the other chains (audit_lives). Then checks each sandbox's chain against that:
 * its first and last record, and that it exists. Stops at the first error.
 */
#include <string.h>

#include "audit/audit-inner.h"
#include "base/str.h"

struct verify {
	const struct audit_set *set;
	const uint8_t *key;
	const struct audit_mark *from;
	struct audit_lives lives;
	struct audit_scan *scan;
	struct audit_report *report;
	struct err *e;
	uint64_t first_seq, last_mark; /* sequence numbers in the host chain */
	uint8_t before[AUDIT_HASH];    /* the hash before its first record, by that record */
	bool any_mark;
};

static int bad(struct verify *v, const char *file, uint64_t seq, uint64_t offset, const char *what)
{
	struct audit_report *r = v->report;

	r->bad = true;
	(void)snprintf(r->file, sizeof(r->file), "%s", file);
	r->seq = seq;
	r->offset = offset;
	(void)snprintf(r->what, sizeof(r->what), "%s", what);
	return -EBADMSG;
}

/* 1, 0, or an error that has been reported. */
static int next(struct verify *v, struct audit_record *rec, uint64_t *ret_offset)
{
	struct audit_scan *s = v->scan;
	const char *why = NULL;
	uint64_t torn = 0;
	int r = audit_scan_next(s, rec, &torn, &why);
	const struct audit_file *f = &v->set->files[MIN(s->file, s->until - 1)];

	if (r == -EBADMSG)
		return bad(v, f->name, s->head.count, s->offset, why);
	if (r < 0)
		return err_set(v->e, r, "cannot read '%s': %s", f->name, strerror(-r));
	v->report->records += (uint64_t)r;
	v->report->torn += torn > 0;
	if (r == 1)
		*ret_offset = s->offset - AUDIT_HEADER - rec->n_payload;
	return r;
}

/* ---- the host chain ---- */

static const char *mark_fault(struct verify *v, const struct audit_record *rec)
{
	struct audit_mark m = { 0 };

	if (!audit_get_mark(rec->payload, rec->n_payload, &m))
		return "its payload is not a checkpoint";
	if (rec->seq == 0 || m.seq != rec->seq - 1 || memcmp(m.hash, rec->prev, AUDIT_HASH) != 0)
		return "the checkpoint is about another record than the one before it";
	if (memcmp(m.key, v->key, AUDIT_PUBLIC) != 0)
		return "the checkpoint is signed with another key";
	if (!audit_mark_valid(&m))
		return "the signature of the checkpoint is wrong";
	v->report->checkpoints++;
	v->last_mark = rec->seq;
	v->any_mark = true;
	return NULL;
}

static int host_record(struct verify *v, const struct audit_record *rec, uint64_t offset)
{
	const struct audit_file *f = &v->set->files[v->scan->file];
	int r = 0;
	const char *why = rec->kind == AUDIT_CHECKPOINT ? mark_fault(v, rec) : NULL;

	if (!why && v->from && rec->seq == v->from->seq &&
	    memcmp(rec->hash, v->from->hash, AUDIT_HASH) != 0)
		why = "it is not the record that the checkpoint was made of";
	if (!why)
		why = audit_lives_add(&v->lives, f, offset, rec, &r);
	if (r < 0)
		return err_oom(v->e);
	return why ? bad(v, f->name, rec->seq, offset, why) : 0;
}

/* If the first files were removed, a signed record must say so and match this beginning. */
static bool start_is_right(const struct verify *v)
{
	if (v->first_seq == 0)
		return true;
	for (size_t i = 0; i < v->lives.n_gone; i++) {
		const struct audit_gone *g = &v->lives.gone[i];

		if (g->head.count == v->first_seq &&
		    memcmp(g->head.hash, v->before, AUDIT_HASH) == 0)
			return v->any_mark && g->seq < v->last_mark;
	}
	return false;
}

static int check_from(struct verify *v, const char *last)
{
	const struct audit_scan *s = v->scan;

	if (!v->from)
		return 0;
	if (memcmp(v->from->key, v->key, AUDIT_PUBLIC) != 0)
		return bad(v, "checkpoint", v->from->seq, 0, "it was signed with another key");
	if (v->from->seq >= s->head.count)
		return bad(
			v, last, s->head.count, s->offset,
			"the chain ends here, before the record that the checkpoint was made of");
	v->report->from_gone = v->from->seq < v->first_seq;
	return 0;
}

static int fold(struct verify *v)
{
	size_t at = 0;
	const char *why = audit_lives_fold(&v->lives, &at);
	char name[AUDIT_NAME_MAX];

	if (!why)
		return 0;
	audit_file_name("", v->lives.v[at].number, name);
	return bad(v, name, v->lives.v[at].seq, v->lives.v[at].offset, why);
}

static int host_chain(struct verify *v, size_t n)
{
	const struct audit_file *files = v->set->files;
	struct audit_record rec;
	uint64_t offset = 0;
	int r;

	if (n == 0 && (v->set->n > 0 || v->from))
		return bad(v, "host-00000000.log", 0, 0, "the host chain is missing");
	if (n == 0)
		return 0;
	audit_scan_init(v->scan, v->set, 0, n);
	/* Only a chain that lost its first file may begin with a later record. */
	r = files[0].number > 0 ? audit_scan_adopt(v->scan) : 0;
	if (r < 0)
		return err_set(v->e, r, "cannot read '%s': %s", files[0].name, strerror(-r));
	v->first_seq = v->scan->head.count;
	memcpy(v->before, v->scan->head.hash, AUDIT_HASH);
	while ((r = next(v, &rec, &offset)) == 1) {
		r = host_record(v, &rec, offset);
		if (r < 0)
			break;
	}
	audit_scan_done(v->scan);
	if (r < 0)
		return r;
	v->report->chains++;
	if (!start_is_right(v))
		return bad(v, files[0].name, v->first_seq, 0,
			   "the records before it are missing, and no signed record says why");
	r = check_from(v, files[n - 1].name);
	return r < 0 ? r : fold(v);
}

/* ---- sandbox chains ---- */

static int at_begin(struct verify *v, const struct audit_life *life, const char *what)
{
	char name[AUDIT_NAME_MAX], text[160];

	audit_file_name("", life->number, name);
	(void)snprintf(text, sizeof(text), "sandbox %s: %s", life->id, what);
	return bad(v, name, life->seq, life->offset, text);
}

/* A chain without files. */
static int absent(struct verify *v, const struct audit_life *life)
{
	v->report->missing++;
	if (life->dropped && (!v->any_mark || life->dropped_seq > v->last_mark))
		return at_begin(v, life, "it was removed without a signed record");
	return life->dropped || !life->begun ? 0 : at_begin(v, life, "its chain is missing");
}

/* Checks the first record against the host chain. */
static int first_record(struct verify *v, const struct audit_life *life,
			const struct audit_record *rec)
{
	const struct audit_file *f = &v->set->files[v->scan->file];
	char id[AUDIT_ID_MAX + 1];

	if (life && memcmp(rec->hash, life->first, AUDIT_HASH) != 0)
		return bad(v, f->name, 0, 0,
			   "it is not the record that the host chain says it begins with");
	if (rec->kind != AUDIT_BEGIN || !audit_get_id(rec->payload, rec->n_payload, id) ||
	    !str_eq(id, f->id))
		return bad(v, f->name, 0, 0, "it does not begin the chain of this sandbox");
	return 0;
}

/* After reading up to the seal: does the end match? */
static int at_end(struct verify *v, const struct audit_life *life)
{
	const struct audit_scan *s = v->scan;
	const char *name = v->set->files[s->file].name;

	if (!life) /* its creator was killed before the host chain had it: it must say nothing yet
		    */
		return s->head.count <= 1
			       ? 0
			       : bad(v, name, 0, 0, "the host chain does not know this sandbox");
	v->report->live += !life->sealed;
	if (life->sealed && s->head.count < life->count)
		return bad(v, name, s->head.count, s->offset, "it ends here, before its seal");
	if (life->sealed && s->offset < v->set->files[s->file].size)
		return bad(v, name, s->head.count, s->offset, "data follows its seal");
	return 0;
}

static int sandbox_chain(struct verify *v, const struct audit_life *life, size_t first,
			 size_t until)
{
	struct audit_record rec;
	uint64_t offset = 0;
	int r;

	audit_scan_init(v->scan, v->set, first, until);
	if (v->set->files[first].number != 0)
		return bad(v, v->set->files[first].name, 0, 0, "a file is missing before this one");
	while ((r = next(v, &rec, &offset)) == 1) {
		const char *name = v->set->files[v->scan->file].name;

		r = rec.seq == 0 ? first_record(v, life, &rec) : 0;
		if (r == 0 && life && life->sealed && rec.seq >= life->count)
			r = bad(v, name, rec.seq, offset, "it comes after the seal of its chain");
		if (r == 0 && life && life->sealed && rec.seq + 1 == life->count &&
		    memcmp(rec.hash, life->last, AUDIT_HASH) != 0)
			r = bad(v, name, rec.seq, offset, "it is not the record that was sealed");
		if (r < 0)
			break;
	}
	if (r == 0)
		r = at_end(v, life);
	audit_scan_done(v->scan);
	v->report->chains++;
	return r;
}

/* Both files and lives are sorted by id. */
static int sandbox_chains(struct verify *v, size_t first)
{
	const struct audit_file *f = v->set->files;
	size_t k = 0;
	int r = 0;

	for (size_t i = first, until; r == 0 && i < v->set->n; i = until) {
		const struct audit_life *life = NULL;

		for (until = i + 1; until < v->set->n && str_eq(f[i].id, f[until].id);)
			until++;
		for (; r == 0 && k < v->lives.n && strcmp(v->lives.v[k].id, f[i].id) < 0; k++)
			r = absent(v, &v->lives.v[k]);
		if (k < v->lives.n && str_eq(v->lives.v[k].id, f[i].id))
			life = &v->lives.v[k++];
		/* Recorded as removed: it may disappear at any moment. */
		if (r == 0 && !(life && life->dropped))
			r = sandbox_chain(v, life && life->begun ? life : NULL, i, until);
	}
	for (; r == 0 && k < v->lives.n; k++)
		r = absent(v, &v->lives.v[k]);
	return r;
}

int audit_verify(const struct audit_set *s, const uint8_t key[static AUDIT_PUBLIC],
		 const struct audit_mark *from, struct audit_report *ret, struct err *e)
{
	_cleanup_scan_ struct audit_scan *scan = malloc(sizeof(*scan));
	struct audit_report report = { 0 };
	struct verify v = {
		.set = s, .key = key, .from = from, .scan = scan, .report = &report, .e = e
	};
	size_t host = 0;
	int r;

	if (!scan)
		return err_oom(e);
	audit_scan_init(scan, s, 0, 0);
	while (host < s->n && !s->files[host].id[0])
		host++;
	r = host_chain(&v, host);
	if (r == 0)
		r = sandbox_chains(&v, host);
	audit_lives_done(&v.lives);
	if (r < 0 && !report.bad)
		return r;
	*ret = report;
	return 0;
}
