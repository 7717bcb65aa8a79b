/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Budgets of `llm`. hutch-tap asks for a reservation before it sends a call, and settles it with
 * the call's usage. The ledger counts a reservation as used until it is settled, so whatever is
 * killed meanwhile, a call is never forgotten: without its settlement it counts as reserved.
 *
 * A call gets as much as it may use. If the budget has less, the call waits until the sandbox's
 * other calls are settled, because they usually leave some; when there are none, the call gets all
 * of the rest, and hutch-tap ends its answer there. So the budget is exceeded by at most one answer
 * that is not a stream. Calls wait in order.
 */
#include <string.h>

#include "base/json-util.h"
#include "base/log.h"
#include "base/str.h"
#include "warden/warden.h"

enum {
	TURN_MAX = 64,	  /* messages before other events are handled */
	CALLS_MAX = 4096, /* reserved or waiting, of one sandbox */
	AT_MAX = 96,
};

struct budget_call {
	struct budget_call *next;
	struct tap_reserve ask;
	bool waits;
	uint64_t tokens, usd; /* reserved */
};

/* ---- the beginning ---- */

static int read_rule(const json_t *o, struct budget *b, struct err *e)
{
	const char *at;

	if (json_get_u64(o, "requests", INT64_MAX, &b->limit.requests, e) < 0 ||
	    json_get_u64(o, "tokens", INT64_MAX, &b->limit.tokens, e) < 0 ||
	    json_get_u64(o, "usd", INT64_MAX, &b->limit.usd, e) < 0 ||
	    json_get_string(o, "at", SPEC_TAP_MAX, &at, e) < 0)
		return e->num;
	(void)snprintf(b->at, sizeof(b->at), "%s", at);
	return 0;
}

int budgets_begin(struct warden *w, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	const json_t *rules;
	bool any = false;

	if (!w->spec.tap || !w->spec.tap[0])
		return 0;
	if (json_read(w->spec.tap, strlen(w->spec.tap), &j, e) < 0)
		return err_wrap(e, "tap");
	rules = json_object_get(json_object_get(j, "llm"), "rules");
	if (json_array_size(rules) > TAP_LLM_MAX)
		return err_set(e, -EINVAL, "'tap' has more than %d rules on models", TAP_LLM_MAX);
	for (size_t i = 0; i < json_array_size(rules); i++) {
		struct budget *b = &w->budgets.rules[i];

		if (read_rule(json_array_get(rules, i), b, e) < 0)
			return err_wrap(e, "rule %zu on models", i + 1);
		any |= b->limit.requests > 0 || b->limit.tokens > 0 || b->limit.usd > 0;
	}
	w->budgets.n = any ? json_array_size(rules) : 0;
	/* A fork continues the ledger of the sandbox that it came from. */
	return any ? ledger_open(w->spec.ledger[0] ? w->spec.ledger : w->spec.id,
				 &w->budgets.ledger, e)
		   : 0;
}

/* ---- one reservation ---- */

static uint64_t left(uint64_t limit, uint64_t used)
{
	return limit == 0 ? UINT64_MAX : limit - MIN(limit, used);
}

/* How a reservation ends. */
enum outcome {
	OUTCOME_GRANT,
	OUTCOME_WAIT,
	OUTCOME_REFUSE,
};

struct attempt {
	const struct budget *b;
	struct budget_call *call;
	bool is_alone; /* no other call of this rule is reserved */
	struct tap_grant *grant;
};

static void say_spent(const struct attempt *a, const struct ledger_counter *c)
{
	const struct ledger_counter *limit = &a->b->limit;
	struct tap_grant *g = a->grant;

	if (left(limit->requests, c->requests) == 0)
		(void)snprintf(g->text, sizeof(g->text),
			       "the budget of rule %s is spent: %llu of %llu requests used",
			       a->b->at, (unsigned long long)c->requests,
			       (unsigned long long)limit->requests);
	else if (left(limit->tokens, c->tokens) <= a->call->ask.least_tokens)
		(void)snprintf(g->text, sizeof(g->text),
			       "the budget of rule %s is spent: %llu of %llu tokens used, and this "
			       "call needs about %llu",
			       a->b->at, (unsigned long long)c->tokens,
			       (unsigned long long)limit->tokens,
			       (unsigned long long)a->call->ask.least_tokens);
	else
		(void)snprintf(g->text, sizeof(g->text),
			       "the budget of rule %s is spent: $%.4f of $%.2f used", a->b->at,
			       (double)c->usd / 1e6, (double)limit->usd / 1e6);
}

static int take(const struct attempt *a, struct ledger_counter *c, uint64_t tokens, uint64_t usd)
{
	const struct ledger_counter *limit = &a->b->limit;

	c->requests++;
	c->tokens += tokens;
	c->usd += usd;
	a->call->tokens = tokens;
	a->call->usd = usd;
	a->grant->granted = true;
	a->grant->tokens = limit->tokens > 0 ? tokens : UINT64_MAX;
	a->grant->usd = limit->usd > 0 ? usd : UINT64_MAX;
	return OUTCOME_GRANT;
}

static int reserve(struct ledger_counter *c, void *arg)
{
	const struct attempt *a = arg;
	const struct tap_reserve *ask = &a->call->ask;
	const struct ledger_counter *limit = &a->b->limit;
	const uint64_t tokens = left(limit->tokens, c->tokens), usd = left(limit->usd, c->usd);

	if (left(limit->requests, c->requests) > 0) {
		if (ask->tokens <= tokens && ask->usd <= usd)
			return take(a, c, ask->tokens, ask->usd);
		if (!a->is_alone)
			return OUTCOME_WAIT;
		if (ask->least_tokens < tokens && ask->least_usd <= usd)
			return take(a, c, MIN(ask->tokens, tokens), MIN(ask->usd, usd));
	}
	say_spent(a, c);
	return OUTCOME_REFUSE;
}

static bool is_alone(const struct warden *w, const struct budget_call *call)
{
	for (const struct budget_call *c = w->budgets.calls; c; c = c->next)
		if (c != call && !c->waits && c->ask.rule == call->ask.rule)
			return false;
	return true;
}

static void answer(const struct warden *w, struct tap_grant *g, const struct budget_call *call)
{
	struct tap_message m = { .kind = TAP_GRANT };

	g->call = call->ask.call;
	m.grant = *g;
	/* If hutch-tap does not read, the call waits, and its reservation stays used. */
	(void)tap_send(w->tap.sock, &m, NULL, 0);
}

/* False if the call has to wait. A refused call is settled by hutch-tap, too. */
static bool try(struct warden *w, struct budget_call *call)
{
	struct tap_grant grant = { 0 };
	struct attempt a = { &w->budgets.rules[call->ask.rule], call, is_alone(w, call), &grant };
	struct err e = ERR_INIT;
	int r = ledger_change(&w->budgets.ledger, call->ask.rule, reserve, &a, &e);

	if (r == OUTCOME_WAIT)
		return false;
	call->waits = false;
	if (r < 0) {
		log_error("%s", e.msg);
		grant = (struct tap_grant){ 0 };
		call->tokens = call->usd = 0;
		(void)snprintf(grant.text, sizeof(grant.text), "the budget cannot be read");
	}
	answer(w, &grant, call);
	return true;
}

/* ---- messages ---- */

static void on_reserve(struct warden *w, const struct tap_reserve *ask)
{
	struct budget_call *call = w->budgets.n_calls < CALLS_MAX ? calloc(1, sizeof(*call)) : NULL;
	struct budget_call **last = &w->budgets.calls;
	struct tap_grant none = { .text = "too many calls at the same time" };

	if (!call) {
		answer(w, &none, &(struct budget_call){ .ask = *ask });
		return;
	}
	call->ask = *ask;
	call->waits = true;
	while (*last)
		last = &(*last)->next;
	*last = call;
	w->budgets.n_calls++;
	(void)try(w, call);
}

struct settlement {
	const struct budget_call *call;
	const struct tap_settle *by;
};

static uint64_t replace(uint64_t used, uint64_t reserved, uint64_t by)
{
	used -= MIN(used, reserved);
	return by > UINT64_MAX - used ? UINT64_MAX : used + by;
}

static int settle(struct ledger_counter *c, void *arg)
{
	const struct settlement *s = arg;

	c->tokens = replace(c->tokens, s->call->tokens, s->by->tokens);
	c->usd = replace(c->usd, s->call->usd, s->by->usd);
	return 0;
}

static void on_settle(struct warden *w, const struct tap_settle *by)
{
	struct budget_call **at = &w->budgets.calls, *call;
	struct err e = ERR_INIT;

	while (*at && (*at)->ask.call != by->call)
		at = &(*at)->next;
	call = *at;
	if (!call)
		return;
	*at = call->next;
	w->budgets.n_calls--;
	if (!call->waits && !by->as_reserved &&
	    ledger_change(&w->budgets.ledger, call->ask.rule, settle,
			  &(struct settlement){ call, by }, &e) < 0)
		log_error("%s", e.msg);
	free(call);
	for (call = w->budgets.calls; call; call = call->next)
		if (call->waits && !try(w, call))
			return;
}

bool budgets_take(struct warden *w)
{
	int files[2] = { -EBADF, -EBADF }, r = 0;
	struct tap_message m;

	for (int i = 0; i < TURN_MAX; i++) {
		r = tap_receive(w->tap.sock, &m, files);
		if (r < 0)
			break;
		if (m.kind == TAP_RESERVE && m.reserve.rule < w->budgets.n)
			on_reserve(w, &m.reserve);
		else if (m.kind == TAP_SETTLE)
			on_settle(w, &m.settle);
		else
			r = -EBADMSG;
		for (size_t k = 0; k < ARRAY_SIZE(files); k++)
			files[k] = fd_close(files[k]);
		if (r < 0)
			break;
	}
	if (r == -EBADMSG)
		log_error("hutch-tap sent an invalid message about a budget");
	return r == 0 || r == -EAGAIN;
}

void budgets_drop(struct warden *w)
{
	struct budget_call *next;

	for (struct budget_call *c = w->budgets.calls; c; c = next) {
		next = c->next;
		free(c);
	}
	w->budgets.calls = NULL;
	w->budgets.n_calls = 0;
}

void budgets_end(struct warden *w)
{
	budgets_drop(w);
	/* Forks, and snapshots of a sandbox, continue its budget. */
	if (!w->budgets.is_shared && !w->spec.ledger[0] && w->origin.from.kind != SNAPSHOT_SAVED)
		ledger_remove(&w->budgets.ledger);
	ledger_close(&w->budgets.ledger);
}
