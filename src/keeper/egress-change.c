/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes a sandbox's egress rules while it runs. Clients can add rules beside those of the policy;
 * deny still wins over allow. A new rule replaces an added rule for the same host and port. A
 * client can also replace the narrowing (names/narrow.h).
 *
 * When another keeper continues a suspended or forked VM, it must enforce the same rules and what
 * is left of the budgets. The keeper saves them as lines of text while the guest is asleep; the
 * next keeper reads them before the guest runs:
 *
 *	allow RULE, deny RULE	added rules
 *	narrow TEXT		all of the narrowing
 *	name NAME		a name that was used
 *	bytes OUT IN		bytes that were used
 *	end
 *
 * If the list is damaged, the VM is not continued. A sandbox started from a kept snapshot follows
 * its own policy and has no such list.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "keeper/serve.h"

enum {
	RECORDED_MAX = 128, /* rules of a narrowing in one record, to fit in a payload */
	SAVED_MAX = 16 * 1024 * 1024,
};

/* ---- added rules ---- */

/* Removes added rules for the same host and port. */
static void remove_added(struct egress *g, const struct rule *rule)
{
	struct ruleset_entry *live = g->entries + g->n_policy;
	size_t kept = 0;

	for (size_t i = 0; i < g->n_live; i++)
		if (!rule_same_place(&live[i].rule, rule))
			live[kept++] = live[i];
	g->n_live = kept;
}

static int record_change(struct keeper *k, const char *text, size_t n, bool deny)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_text(&p, "change", deny ? "deny" : "allow");
	audit_put_bytes(&p, "rule", text, n);
	return journal_append(k, AUDIT_POLICY, &p);
}

static int take_effect(struct egress *g)
{
	struct ruleset *ours = NULL, *brokers = NULL;

	if (egress_make_rules(g, &ours) < 0 || egress_make_rules(g, &brokers) < 0) {
		(void)ruleset_free(ours);
		return -ENOMEM;
	}
	(void)ruleset_free(g->rules);
	g->rules = ours;
	broker_set_rules(g->broker, brokers);
	return 0;
}

static int read_live(const struct egress *g, const char *text, size_t n, bool deny,
		     struct ruleset_entry *ret, struct err *e)
{
	*ret = (struct ruleset_entry){ .deny = deny };
	if (rule_parse(text, n, &ret->rule, e) < 0)
		return e->num;
	if (!deny && ret->rule.port == 0)
		return err_set(e, -EINVAL, "the port is missing: write NAME:PORT");
	if (deny && ret->rule.private)
		return err_set(e, -EINVAL,
			       "a deny rule is for all addresses: leave out '/private'");
	if (g->n_live >= EGRESS_LIVE_MAX)
		return err_set(e, -E2BIG, "%d rules were added already", EGRESS_LIVE_MAX);
	return 0;
}

static void put_live(struct egress *g, struct ruleset_entry entry)
{
	remove_added(g, &entry.rule);
	entry.id = (uint32_t)(g->n_policy + g->n_live);
	g->entries[g->n_policy + g->n_live++] = entry;
}

/* Adds a rule. On failure the rules stay as they were, including a deny rule it would have
 * replaced. */
static int add_live(struct egress *g, struct ruleset_entry entry)
{
	static struct ruleset_entry before[EGRESS_LIVE_MAX];
	struct ruleset_entry *live = g->entries + g->n_policy;
	const size_t n = g->n_live;

	memcpy(before, live, n * sizeof(before[0]));
	put_live(g, entry);
	if (take_effect(g) == 0)
		return 0;
	memcpy(live, before, n * sizeof(before[0]));
	g->n_live = n;
	return -ENOMEM;
}

static int change(struct keeper *k, const char *text, size_t n, bool deny, struct err *e)
{
	struct egress *g = k->egress;
	struct ruleset_entry entry;

	if (!g)
		return err_set(e, -EOPNOTSUPP,
			       "the sandbox has no network, because its policy allowed no target "
			       "when it started");
	if (read_live(g, text, n, deny, &entry, e) < 0)
		return e->num;
	if (record_change(k, text, n, deny) < 0)
		return err_set(e, -EIO, "the audit log cannot be written, so nothing is changed");
	return add_live(g, entry) < 0 ? err_oom(e) : 0;
}

/* ---- narrowing ---- */

static int read_narrow(const struct fields *f, struct narrow *ret, struct err *e)
{
	const char *text = NULL;
	size_t pos = 0, n = 0;
	int r = 0;

	while (r == 0 && fields_next(f, TAG_RULE, &pos, &text, &n))
		r = narrow_add(ret, text, n, e);
	return r;
}

/* Records all rules of a narrowing, in as many records as they need; `first` is the index of the
 * first rule in each. */
static int record_narrow(struct keeper *k, const struct narrow *w)
{
	char text[NARROW_TEXT_MAX], key[24];
	size_t n = 0, first = 0;
	int r = 0;

	while (narrow_text(w, n, text))
		n++;
	do {
		_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

		audit_put_text(&p, "change", "narrow");
		audit_put_number(&p, "rules", n);
		audit_put_number(&p, "first", first);
		for (size_t i = first; i < n && i < first + RECORDED_MAX; i++) {
			(void)snprintf(key, sizeof(key), "rule%zu", i);
			audit_put_text(&p, key, narrow_text(w, i, text));
		}
		r = journal_append(k, AUDIT_POLICY, &p);
		first += RECORDED_MAX;
	} while (r == 0 && first < n);
	return r;
}

/* Replaces the narrowing. Without egress there is nothing to narrow. */
static int narrow(struct keeper *k, const struct fields *f, struct err *e)
{
	_cleanup_narrow_ struct narrow next = { 0 };
	struct egress *g = k->egress;
	struct narrow before;
	int r = read_narrow(f, &next, e);

	if (r < 0 || !g)
		return r;
	if (record_narrow(k, &next) < 0)
		return err_set(e, -EIO, "the audit log cannot be written, so nothing is changed");
	before = g->narrow;
	g->narrow = next;
	next = before;
	if (take_effect(g) == 0)
		return 0;
	next = g->narrow;
	g->narrow = before;
	return err_oom(e);
}

void egress_opened(struct client *c, uint32_t ch, const struct fields *f)
{
	struct link *l = c->port.link;
	struct err e = ERR_INIT;
	const char *rule = "", *more;
	size_t pos = 0, n = 0, next;
	int r;

	(void)fields_next(f, TAG_RULE, &pos, &rule, &n);
	next = pos;
	if (fields_has(f, TAG_REPLACE))
		r = narrow(c->keeper, f, &e);
	else if (fields_next(f, TAG_RULE, &next, &more, &(size_t){ 0 }))
		r = err_set(&e, -EINVAL, "one rule at a time");
	else
		r = change(c->keeper, rule, n, fields_has(f, TAG_DENY), &e);
	if (r < 0) {
		client_check(c, link_close(l, ch, WIRE_INVALID, e.msg));
		return;
	}
	client_check(c, link_accept(l, ch, NULL));
	client_check(c, link_close(l, ch, WIRE_DONE, NULL));
}

/* ---- saved with a VM ---- */

int egress_save(const struct keeper *k, int fd)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SAVED_MAX);
	const struct egress *g = k->egress;
	const struct budget *spent = g ? broker_budget(g->broker) : NULL;
	char text[NARROW_TEXT_MAX];

	for (size_t i = 0; g && i < g->n_live; i++) {
		const struct ruleset_entry *entry = &g->entries[g->n_policy + i];

		(void)buf_printf(&b, "%s %s\n", entry->deny ? "deny" : "allow",
				 rule_format(&entry->rule, text));
	}
	for (size_t i = 0; g && narrow_text(&g->narrow, i, text); i++)
		(void)buf_printf(&b, "narrow %s\n", text);
	for (size_t i = 0; g && i < spent->names.cap; i++)
		if (spent->names.v[i])
			(void)buf_printf(&b, "name %s\n", spent->names.v[i]);
	if (g)
		(void)buf_printf(&b, "bytes %llu %llu\n",
				 (unsigned long long)(spent->max.bytes_out - spent->out),
				 (unsigned long long)(spent->max.bytes_in - spent->in));
	(void)buf_puts(&b, "end\n");
	return b.err ? b.err : fd_write_all(fd, b.data, b.len);
}

static int restore_bytes(struct egress *g, char *text)
{
	const char *out = strsep(&text, " ");
	uint64_t n_out, n_in;

	if (!text || str_to_u64(out, strlen(out), UINT64_MAX, &n_out) < 0 ||
	    str_to_u64(text, strlen(text), UINT64_MAX, &n_in) < 0)
		return -EBADMSG;
	budget_spend(broker_budget(g->broker), n_out, n_in);
	return 0;
}

static int restore_line(struct egress *g, char *line, struct err *e)
{
	const char *word = strsep(&line, " ");
	struct ruleset_entry entry;
	int r = -EBADMSG;

	if (!line)
		return r;
	if (str_eq(word, "allow") || str_eq(word, "deny")) {
		r = read_live(g, line, strlen(line), word[0] == 'd', &entry, e);
		if (r == 0)
			put_live(g, entry);
	} else if (str_eq(word, "narrow")) {
		r = narrow_add(&g->narrow, line, strlen(line), e);
	} else if (str_eq(word, "name")) {
		r = budget_spend_name(broker_budget(g->broker), line);
	} else if (str_eq(word, "bytes")) {
		r = restore_bytes(g, line);
	}
	return r;
}

bool egress_restore(struct keeper *k, int fd)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SAVED_MAX);
	_cleanup_free_ char *text = NULL;
	struct egress *g = k->egress;
	struct err e = ERR_INIT;
	char *line, *rest;
	int r = fd_read_all(fd, &b);

	if (!g)
		return true; /* no egress: the list does not matter */
	text = r < 0 ? NULL : strdup(buf_text(&b));
	narrow_done(&g->narrow);
	for (rest = text; (line = strsep(&rest, "\n")) && !str_eq(line, "end") && r == 0;)
		r = restore_line(g, line, &e);
	g->restored = r == 0 && line && take_effect(g) == 0;
	if (g->restored)
		return true;
	log_error("cannot restore the egress rules: %s",
		  e.msg[0] ? e.msg : "the saved list is damaged");
	return false;
}

void egress_record_restored(struct keeper *k)
{
	const bool copy = !k->spec->chain || !k->spec->chain[0];
	const struct egress *g = copy && k->egress && k->egress->restored ? k->egress : NULL;
	char text[RULE_TEXT_MAX];

	for (size_t i = 0; g && i < g->n_live; i++) {
		const struct ruleset_entry *entry = &g->entries[g->n_policy + i];

		(void)rule_format(&entry->rule, text);
		(void)record_change(k, text, strlen(text), entry->deny);
	}
	if (g && narrow_text(&g->narrow, 0, (char[NARROW_TEXT_MAX]){ 0 }))
		(void)record_narrow(k, &g->narrow);
}
