/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/egress-log.h"

#include <string.h>

#include "audit/audit-read.h"
#include "base/str.h"

const char *egress_text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

bool egress_is_request(const json_t *key)
{
	return str_eq(egress_text(key, "kind"), "http");
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
	if (rec->kind != AUDIT_EGRESS && rec->kind != AUDIT_EGRESS_SUM && rec->kind != AUDIT_HTTP &&
	    rec->kind != AUDIT_LLM && rec->kind != AUDIT_POLICY)
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
		if (r->tail > 0 && until - i > r->tail)
			i = until - r->tail;
		r2 = read_files(r, &set, i, until, s, e);
	}
	if (!found)
		return err_set(e, -ENOENT, "the log has no sandbox '%.40s'", r->sandbox);
	return r2;
}

void egress_reader_done(struct egress_reader *r)
{
	free(r->seen);
}

/* Returns 1 if this record creates the sandbox without rules, 0 if with rules, -EAGAIN if it is
 * another record. */
static int made_without(const struct audit_record *rec, const char *sandbox,
			char id[static AUDIT_ID_MAX + 1])
{
	_cleanup_json_ json_t *o = NULL;
	struct err ignored = ERR_INIT;

	if (rec->kind != AUDIT_CREATE ||
	    json_read(rec->payload, rec->n_payload, &o, &ignored) < 0 ||
	    !str_has_prefix(egress_text(o, "sandbox"), sandbox))
		return -EAGAIN;
	(void)snprintf(id, AUDIT_ID_MAX + 1, "%s", egress_text(o, "sandbox"));
	return json_is_integer(json_object_get(o, "egress_rules")) &&
	       egress_number(o, "egress_rules") == 0;
}

int egress_no_network(struct audit_log *l, const char *sandbox,
		      char ret_id[static AUDIT_ID_MAX + 1], struct err *e)
{
	_cleanup_audit_set_ struct audit_set set = AUDIT_SET_INIT;
	_cleanup_free_ struct audit_scan *s = malloc(sizeof(*s));
	struct audit_record rec;
	const char *why = "";
	uint64_t torn = 0;
	size_t n = 0;
	int got, found = 0;

	if (!s)
		return err_oom(e);
	if (sandbox[0] == '\0')
		return 0;
	if (audit_set_open(l, &set, e) < 0)
		return e->num;
	while (n < set.n && set.files[n].id[0] == '\0')
		n++;
	if (n == 0)
		return 0;
	audit_scan_init(s, &set, 0, n);
	got = set.files[0].number > 0 ? audit_scan_adopt(s) : 0;
	while (got >= 0 && (got = audit_scan_next(s, &rec, &torn, &why)) == 1) {
		int is = made_without(&rec, sandbox, ret_id);

		found = is >= 0 ? is : found;
	}
	audit_scan_done(s);
	return got < 0 ? err_set(e, -EBADMSG,
				 "the host's log is damaged: %s; see 'hutch audit verify'", why)
		       : found;
}

/* ---- recent denials ---- */

enum {
	NAMES_MAX = 1000, /* unresolved names; further ones are not distinguished */
};

struct count {
	uint64_t since, n;
	char **names;
	size_t n_names;
};

static int count_name(struct count *c, const char *name, size_t n)
{
	char **v;

	for (size_t i = 0; i < c->n_names; i++)
		if (strlen(c->names[i]) == n && memcmp(c->names[i], name, n) == 0)
			return 0;
	if (c->n_names == NAMES_MAX)
		return 0;
	v = reallocarray(c->names, c->n_names + 1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	c->names = v;
	v[c->n_names] = strndup(name, n);
	if (!v[c->n_names])
		return -ENOMEM;
	c->n_names++;
	c->n++;
	return 0;
}

/* Keys are "name:port", with port 0 for a DNS query. */
static int count_sum(struct count *c, const json_t *o)
{
	json_t *key;
	size_t i;
	int r = 0;

	json_array_foreach(json_object_get(o, "keys"), i, key)
	{
		const char *text = egress_text(key, "text"), *colon = strrchr(text, ':');

		if (egress_is_request(key))
			continue;
		if (r == 0 && colon && str_eq(colon, ":0"))
			r = count_name(c, text, (size_t)(colon - text));
		else
			c->n += egress_number(key, "count");
	}
	c->n += egress_number(o, "others");
	return r;
}

static int on_denied(const struct egress_event *ev, void *arg)
{
	const char *host = egress_text(ev->o, "host");
	struct count *c = arg;

	if (ev->time < c->since)
		return 0;
	if (ev->kind == AUDIT_EGRESS_SUM)
		return count_sum(c, ev->o);
	if (ev->kind != AUDIT_EGRESS || !str_eq(egress_text(ev->o, "verdict"), "deny"))
		return 0;
	if (egress_number(ev->o, "port") == 0)
		return count_name(c, host, strlen(host));
	c->n++;
	return 0;
}

int egress_count_denied(const char *id, uint64_t since, uint64_t *ret, struct err *e)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	struct count c = { .since = since };
	_cleanup_egress_reader_ struct egress_reader reader = {
		.sandbox = id, .event = on_denied, .arg = &c, .tail = EGRESS_TAIL_FILES
	};
	int r = audit_open(&l, e);

	if (r == 0 && !l.off)
		r = egress_read(&reader, &l, e);
	for (size_t i = 0; i < c.n_names; i++)
		free(c.names[i]);
	free(c.names);
	if (r == 0)
		*ret = c.n;
	return r;
}
