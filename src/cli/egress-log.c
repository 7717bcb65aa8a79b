/* SPDX-License-Identifier: Apache-2.0 */
#include "egress-log.h"

#include <string.h>

#include "str.h"

const char *egress_text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

uint64_t egress_number(const json_t *o, const char *key)
{
	json_int_t n = json_integer_value(json_object_get(o, key));

	return n > 0 ? (uint64_t)n : 0;
}

static struct egress_seen *seen_of(struct egress_reader *r, const char *id)
{
	struct egress_seen *v;

	for (size_t i = 0; i < r->n; i++)
		if (str_eq(r->seen[i].id, id))
			return &r->seen[i];
	v = reallocarray(r->seen, r->n + 1, sizeof(*v));
	if (!v)
		return NULL;
	r->seen = v;
	v[r->n] = (struct egress_seen){ 0 };
	(void)snprintf(v[r->n].id, sizeof(v[r->n].id), "%s", id);
	return &v[r->n++];
}

static int tell(struct egress_reader *r, const char *id, const struct audit_record *rec)
{
	_cleanup_json_ json_t *o = NULL;
	struct err ignored = ERR_INIT;
	struct egress_event ev = { .kind = rec->kind, .time = rec->wall, .seq = rec->seq };

	(void)snprintf(ev.id, sizeof(ev.id), "%.*s", SPEC_ID, id);
	if (rec->kind != AUDIT_EGRESS && rec->kind != AUDIT_EGRESS_SUM && rec->kind != AUDIT_POLICY)
		return 0;
	if (json_read(rec->payload, rec->n_payload, &o, &ignored) < 0)
		return ignored.num == -ENOMEM ? -ENOMEM : 0;
	ev.o = o;
	return json_is_object(o) ? r->event(&ev, r->arg) : 0;
}

static int read_chain(struct egress_reader *r, struct audit_scan *s, struct egress_seen *seen,
		      struct err *e)
{
	const char *why = "", *name = s->set->files[s->file].name;
	struct audit_record rec;
	uint64_t torn = 0;
	int got, r2 = 0;

	got = s->set->files[s->file].number > 0 ? audit_scan_adopt(s) : 0;
	while (got >= 0 && r2 == 0 && (got = audit_scan_next(s, &rec, &torn, &why)) == 1)
		if (rec.seq >= seen->seq) {
			seen->seq = rec.seq + 1;
			r2 = tell(r, seen->id, &rec);
		}
	if (r2 < 0)
		return err_set(e, r2, "cannot show the log: %s", strerror(-r2));
	if (got < 0)
		return err_set(e, got == -EBADMSG ? -EINVAL : got,
			       "%s is damaged (%s); see 'hutch audit verify'", name,
			       got == -EBADMSG ? why : strerror(-got));
	return 0;
}

static int read_files(struct egress_reader *r, const struct audit_set *set, size_t first,
		      size_t until, struct audit_scan *s, struct err *e)
{
	struct egress_seen *seen = seen_of(r, set->files[first].id);
	uint64_t size = 0;
	int r2;

	if (!seen)
		return err_oom(e);
	for (size_t i = first; i < until; i++)
		size += set->files[i].size;
	if (size == seen->size)
		return 0;
	seen->size = size;
	audit_scan_init(s, set, first, until);
	r2 = read_chain(r, s, seen, e);
	audit_scan_done(s);
	return r2;
}

int egress_read(struct egress_reader *r, struct audit_log *l, struct err *e)
{
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	_cleanup_free_ struct audit_scan *s = malloc(sizeof(*s));
	bool found = r->sandbox[0] == '\0';
	int r2 = 0;

	if (!s)
		return err_oom(e);
	if (l->off)
		return err_set(e, -ENOENT, "the audit log is switched off (HUTCH_AUDIT)");
	if (audit_set_open(l, &set, e) < 0)
		return e->num;
	for (size_t i = 0, until; r2 == 0 && i < set.n; i = until) {
		for (until = i + 1; until < set.n && str_eq(set.files[i].id, set.files[until].id);)
			until++;
		if (set.files[i].id[0] == '\0' || !str_has_prefix(set.files[i].id, r->sandbox))
			continue;
		found = true;
		r2 = read_files(r, &set, i, until, s, e);
	}
	if (!found)
		return err_set(e, -ENOENT, "the log knows no sandbox '%.40s'", r->sandbox);
	return r2;
}

void egress_reader_done(struct egress_reader *r)
{
	free(r->seen);
}
