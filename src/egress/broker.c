/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides requests: rules first, then the address if one was requested, then the budgets. A refused
 * request sends no packet. stream.c handles allowed requests.
 */
#include <string.h>

#include "base/clock.h"
#include "egress/broker-inner.h"
#include "egress/check.h"

int broker_new(const struct broker_conf *c, struct ruleset *rules, struct broker **ret,
	       struct err *e)
{
	struct broker *b = calloc(1, sizeof(*b));
	int r;

	if (!b) {
		(void)ruleset_free(rules);
		return err_oom(e);
	}
	b->conf = *c;
	b->conf.idle_ms = c->idle_ms ? c->idle_ms : BROKER_IDLE_MS;
	b->conf.life_ms = c->life_ms ? c->life_ms : BROKER_LIFE_MS;
	b->conf.peek_ms = c->peek_ms ? c->peek_ms : BROKER_PEEK_MS;
	b->rules = rules;
	budget_init(&b->budget, &c->limits);
	r = resolver_new(c->loop, c->resolver, &b->resolver, e);
	if (r < 0)
		(void)broker_free(b);
	else
		*ret = b;
	return r;
}

struct broker *broker_free(struct broker *b)
{
	if (!b)
		return NULL;
	while (b->streams)
		stream_end(b->streams, BROKER_STOPPED, NULL);
	loop_del_timer(&b->look);
	(void)resolver_free(b->resolver);
	pump_pool_done(&b->pool);
	budget_done(&b->budget);
	(void)ruleset_free(b->rules);
	free(b->tapped);
	free(b);
	return NULL;
}

static void note_rule(struct request *r, const struct ruleset_entry *entry)
{
	r->rule[0] = '\0';
	if (!entry)
		return;
	rule_format(&entry->rule, r->rule);
	r->rule_id = entry->id;
	r->proto = rule_proto(&entry->rule);
	r->private = entry->rule.private;
}

static const char *budget_text(enum budget_result r)
{
	static const char *const texts[] = {
		[BUDGET_OK] = "",
		[BUDGET_BYTES_OUT] = "bytes_out",
		[BUDGET_BYTES_IN] = "bytes_in",
		[BUDGET_STREAMS] = "streams",
		[BUDGET_RATE] = "streams_per_minute",
		[BUDGET_NAMES] = "names",
		[BUDGET_NO_MEMORY] = "no memory",
	};

	return texts[r];
}

/* BROKER_OK, or the reason for a refusal with a detail. */
static enum broker_reason judge(struct broker *b, struct request *r, const char **detail)
{
	struct verdict v = ruleset_check(b->rules, &r->target);
	struct rule host = { .kind = r->target.is_addr ? RULE_ADDR : RULE_NAME };
	char text[RULE_TEXT_MAX];
	enum budget_result budget;

	note_rule(r, v.deny ? v.deny : v.allow);
	if (!v.allowed)
		return BROKER_RULES;
	*detail = r->target.is_addr ? check_literal(&r->target.addr) : NULL;
	if (*detail)
		return BROKER_ADDRESS;
	host.name = r->target.name;
	host.addr = r->target.addr;
	budget = budget_open(&b->budget, rule_format_host(&host, text), r->since);
	*detail = budget_text(budget);
	if (budget == BUDGET_NO_MEMORY)
		return BROKER_FAULT;
	return budget == BUDGET_OK ? BROKER_OK : BROKER_BUDGET;
}

void broker_open(struct broker *b, const struct broker_request *req)
{
	struct request r = {
		.broker = b,
		.number = ++b->number,
		.since = clock_mono(),
		.target = req->target,
		.proxy = req->proxy,
		.cookie = req->cookie,
	};
	const char *detail = NULL;
	enum broker_reason reason = judge(b, &r, &detail);

	assert(req->n_early <= BROKER_EARLY_MAX);
	if (reason == BROKER_OK) {
		broker_report(&r, BROKER_ALLOW, BROKER_OK, NULL, NULL);
		if (!b->conf.ops->may_begin || b->conf.ops->may_begin(b->conf.arg)) {
			stream_start(&r, req->fd, req->early, req->n_early);
			return;
		}
		budget_close(&b->budget);
		reason = BROKER_UNRECORDED;
	}
	broker_report(&r, BROKER_DENY, reason, detail, NULL);
	stream_refuse(&r, req->fd, reason);
}

/* Would this stream be allowed now, under the same protocol? */
static bool still_allowed(const struct broker *b, struct stream *s)
{
	struct verdict v = ruleset_check(b->rules, &s->req.target);
	enum rule_proto was = s->req.proto;

	if (v.allowed && rule_proto(&v.allow->rule) == was &&
	    (s->req.target.is_addr || !s->connected || b->conf.upstream.port != 0 ||
	     !check_resolved(b->rules, &s->addr, s->req.target.port, v.allow->rule.private))) {
		note_rule(&s->req, v.allow);
		return true;
	}
	note_rule(&s->req, v.deny);
	s->req.proto = was;
	return false;
}

void broker_set_rules(struct broker *b, struct ruleset *rules)
{
	(void)ruleset_free(b->rules);
	b->rules = rules;
	for (struct stream *s = b->streams, *next; s; s = next) {
		next = s->next;
		if (!still_allowed(b, s))
			stream_end(s, BROKER_POLICY, NULL);
	}
}

void broker_reset(struct broker *b, const void *cookie)
{
	for (struct stream *s = b->streams; s; s = s->next)
		if (s->req.cookie == cookie) {
			stream_end(s, BROKER_RESET_INSIDE, NULL);
			return;
		}
}

struct budget *broker_budget(struct broker *b)
{
	return &b->budget;
}
