/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records egress verdicts in the sandbox's audit chain: one record when a stream is allowed or
 * denied, and one when an allowed stream ends. A sandbox can cause millions of denials, so beyond a
 * few each second they are counted and recorded as sums.
 */
#include "base/clock.h"
#include "keeper/serve.h"
#include "names/why.h"

/* The rules allowed the stream, but the keeper stopped it: the name resolved to a forbidden
 * address, or the first bytes asked for another host. That is a denial, not an end. */
static enum broker_what verdict_of(const struct broker_event *ev)
{
	bool ours = ev->reason == BROKER_ADDRESS || ev->reason == BROKER_CONTENT;

	return ev->what == BROKER_END && ours ? BROKER_DENY : ev->what;
}

static const char *host_of(const struct target *t, char text[static ADDR_TEXT_MAX])
{
	return t->is_addr ? addr_format(&t->addr, text) : t->name.text;
}

/* Returns which of policy, added rules and narrowing denies the target. */
static const char *not_allowed(const struct egress *g, const struct target *t)
{
	const struct why_rules rules = { g->entries, g->n_policy, g->n_live, &g->narrow };

	return why_text(why_denied(&rules, t));
}

static void put_event(const struct keeper *k, struct audit_payload *p,
		      const struct broker_event *ev)
{
	const char *proxy = k->spec->egress.proxy;
	char text[ADDR_TEXT_MAX];

	audit_put_number(p, "stream", ev->stream);
	audit_put_text(p, "verdict", broker_what_name(verdict_of(ev)));
	audit_put_text(p, "host", host_of(ev->target, text));
	audit_put_number(p, "port", ev->target->port);
	if (ev->addr)
		audit_put_text(p, "address", addr_format(ev->addr, text));
	if (ev->addr && proxy && proxy[0])
		audit_put_text(p, "proxy", proxy);
	if (ev->rule[0])
		audit_put_text(p, "rule", ev->rule);
	if (ev->what != BROKER_ALLOW)
		audit_put_text(p, "reason",
			       ev->reason == BROKER_RULES ? not_allowed(k->egress, ev->target)
							  : broker_reason_text(ev->reason));
	if (ev->detail && ev->detail[0])
		audit_put_text(p, "detail", ev->detail);
	if (ev->what == BROKER_END) {
		audit_put_number(p, "bytes_out", ev->bytes_out);
		audit_put_number(p, "bytes_in", ev->bytes_in);
		audit_put_number(p, "ms", ev->ns / NSEC_PER_MSEC);
	}
}

void egress_record_sums(struct keeper *k)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	if (k->egress && audit_tally_due(&k->egress->tally) != 0)
		journal_tally(k, &k->egress->tally, &p);
}

void egress_on_tally(struct loop_timer *t)
{
	struct keeper *k = t->arg;
	struct egress *g = k->egress;

	egress_record_sums(k);
	if (audit_tally_due(&g->tally) != 0)
		(void)loop_set_timer(k->loop, t, clock_mono() + AUDIT_TALLY_WINDOW);
}

/* False: the denial was counted and will be recorded in a sum. */
static bool is_single(struct keeper *k, const char *host, unsigned int port)
{
	struct egress *g = k->egress;
	char key[NAME_TEXT_MAX + 16];

	(void)snprintf(key, sizeof(key), "%s:%u", host, port);
	if (!journal_is_on(k) || audit_tally_add(&g->tally, AUDIT_EGRESS, key, clock_mono()))
		return true;
	if (g->tally_timer.slot == 0)
		(void)loop_set_timer(k->loop, &g->tally_timer, audit_tally_due(&g->tally));
	return false;
}

static void trace_event(const struct broker_event *ev)
{
	char host[ADDR_TEXT_MAX], addr[ADDR_TEXT_MAX];

	TRACE(TRACE_VERDICT, "stream %llu to %s:%u: %s%s%s%s%s%s%s", (unsigned long long)ev->stream,
	      host_of(ev->target, host), ev->target->port, broker_what_name(verdict_of(ev)),
	      ev->what != BROKER_ALLOW ? ", " : "",
	      ev->what != BROKER_ALLOW ? broker_reason_text(ev->reason) : "",
	      ev->rule[0] ? ", rule " : "", ev->rule, ev->addr ? ", address " : "",
	      ev->addr ? addr_format(ev->addr, addr) : "");
}

void egress_on_report(void *arg, const struct broker_event *ev)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	char text[ADDR_TEXT_MAX];
	struct keeper *k = arg;

	trace_event(ev);
	if (ev->what == BROKER_DENY && !is_single(k, host_of(ev->target, text), ev->target->port))
		return;
	put_event(k, &p, ev);
	journal_outcome(k, AUDIT_EGRESS, &p);
}

/* Records a denied DNS query; no connection follows it. */
static void record_question(struct keeper *k, const struct name *name)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	const struct target t = { .name = *name };

	if (!is_single(k, name->text, 0))
		return;
	audit_put_text(&p, "verdict", broker_what_name(BROKER_DENY));
	audit_put_text(&p, "host", name->text);
	audit_put_text(&p, "reason", not_allowed(k->egress, &t));
	audit_put_text(&p, "detail", "asked for by DNS");
	journal_outcome(k, AUDIT_EGRESS, &p);
}

bool egress_may_resolve(struct keeper *k, const struct name *name)
{
	const bool may = ruleset_knows(k->egress->rules, name);

	TRACE(TRACE_VERDICT, "name %s asked for by DNS: %s", name->text,
	      may ? "allowed" : "denied, no rule allows it");
	if (may)
		return true;
	record_question(k, name);
	return false;
}
