/* SPDX-License-Identifier: Apache-2.0 */
#include "names/narrow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

void narrow_done(struct narrow *w)
{
	free(w->allow);
	free(w->deny);
	*w = (struct narrow){ 0 };
}

static int append(struct rule **list, size_t *n, const struct rule *rule, struct err *e)
{
	struct rule *more = reallocarray(*list, *n + 1, sizeof(*more));

	if (!more)
		return err_oom(e);
	more[(*n)++] = *rule;
	*list = more;
	return 0;
}

int narrow_add(struct narrow *w, const char *text, size_t n, struct err *e)
{
	struct rule rule;
	int r;

	if (n == 2 && memcmp(text, "-*", 2) == 0) {
		w->only = true;
		return 0;
	}
	if (n == 0 || (text[0] != '+' && text[0] != '-'))
		return err_set(e, -EINVAL, "'%.*s' is neither +RULE nor -RULE",
			       (int)MIN(n, (size_t)80), text);
	r = rule_parse(text + 1, n - 1, &rule, e);
	if (r < 0)
		return r;
	if (rule.port != 0 || rule.proto != RULE_PROTO_DEFAULT || rule.private)
		return err_set(e, -EINVAL, "'%.*s' has a port: a narrowing applies to all ports",
			       (int)MIN(n, (size_t)80), text);
	if (w->n_allow + w->n_deny >= NARROW_MAX)
		return err_set(e, -E2BIG, "more than %d rules", NARROW_MAX);
	return text[0] == '+' ? append(&w->allow, &w->n_allow, &rule, e)
			      : append(&w->deny, &w->n_deny, &rule, e);
}

const char *narrow_text(const struct narrow *w, size_t i, char out[static NARROW_TEXT_MAX])
{
	char rule[RULE_TEXT_MAX];
	bool deny;

	if (w->only && i-- == 0) {
		memcpy(out, "-*", sizeof("-*"));
		return out;
	}
	deny = i >= w->n_allow;
	if (deny && i - w->n_allow >= w->n_deny)
		return NULL;
	(void)snprintf(out, NARROW_TEXT_MAX, "%c%s", deny ? '-' : '+',
		       rule_format(deny ? &w->deny[i - w->n_allow] : &w->allow[i], rule));
	return out;
}

/* Does `a` match every host that `b` matches, ports aside? */
static bool covers(const struct rule *a, const struct rule *b)
{
	size_t n = a->name.len;

	if ((a->kind == RULE_ADDR) != (b->kind == RULE_ADDR))
		return false;
	if (a->kind == RULE_ADDR)
		return a->addr.family == b->addr.family && a->addr.prefix <= b->addr.prefix &&
		       addr_within(&b->addr, &a->addr);
	if (a->kind == RULE_NAME)
		return b->kind == RULE_NAME && str_eq(a->name.text, b->name.text);
	if (b->name.len == n)
		return str_eq(a->name.text, b->name.text);
	return b->name.len > n && b->name.text[b->name.len - n - 1] == '.' &&
	       str_eq(b->name.text + b->name.len - n, a->name.text);
}

struct out {
	struct ruleset_entry *list;
	size_t n, cap;
};

static int put(struct out *o, const struct ruleset_entry *entry)
{
	struct ruleset_entry *more;

	if (o->n == RULESET_MAX)
		return -E2BIG;
	if (o->n == o->cap) {
		o->cap = o->cap ? o->cap * 2 : 64;
		more = reallocarray(o->list, o->cap, sizeof(*more));
		if (!more)
			return -ENOMEM;
		o->list = more;
	}
	o->list[o->n++] = *entry;
	return 0;
}

/* Adds the intersections of allow rule `entry` and the list's +RULEs. */
static int put_common(struct out *o, const struct ruleset_entry *entry, const struct narrow *w)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < w->n_allow; i++) {
		struct ruleset_entry common = *entry;

		if (covers(&entry->rule, &w->allow[i])) {
			common.rule = w->allow[i];
			common.rule.port = entry->rule.port;
			common.rule.proto = entry->rule.proto;
			common.rule.private = entry->rule.private;
			r = put(o, &common);
		} else if (covers(&w->allow[i], &entry->rule)) {
			r = put(o, &common);
		}
	}
	return r;
}

int narrow_apply(const struct narrow *w, const struct ruleset_entry *entries, size_t n,
		 struct ruleset_entry **ret, size_t *ret_n)
{
	struct out o = { 0 };
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = w->only && !entries[i].deny ? put_common(&o, &entries[i], w)
						: put(&o, &entries[i]);
	for (size_t i = 0; r == 0 && i < w->n_deny; i++)
		r = put(&o, &(struct ruleset_entry){
				    .rule = w->deny[i], .deny = true, .id = (uint32_t)(n + i) });
	if (r < 0) {
		free(o.list);
		return r;
	}
	*ret = o.list;
	*ret_n = o.n;
	return 0;
}
