/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by streams: messages to the keeper, rates of rules, its end. */
#include "base/clock.h"
#include "base/fault.h"
#include "tap/gateway.h"
#include "tap/tap.h"

#define MINUTE (60 * NSEC_PER_SEC)

void tap_stop(struct tap *t, int result)
{
	if (t->is_over)
		return;
	t->is_over = true;
	t->result = result;
}

/* ---- messages to the keeper ---- */

static void watch_keeper(struct tap *t)
{
	const uint32_t out = t->first ? (uint32_t)EPOLLOUT : 0;

	(void)loop_mod_fd(&t->keeper[0], EPOLLIN | out);
	(void)loop_mod_fd(&t->keeper[1], out);
}

void tap_send_queued(struct tap *t)
{
	while (t->first && !t->is_over) {
		struct tap_queued *q = t->first;
		struct tap_message m = { .kind = q->kind };
		int r;

		if (m.kind == TAP_REQUEST)
			m.request = q->request;
		else
			m.end = q->end;
		r = tap_send(TAP_FD_KEEPER, &m, NULL, 0);
		if (r == -EAGAIN)
			break;
		if (r < 0)
			tap_stop(t, r == -EPIPE ? 0 : r);
		t->first = q->next;
		if (!t->first)
			t->last = NULL;
		t->n_queued--;
		free(q);
	}
	watch_keeper(t);
}

void tap_tell(struct tap *t, const struct tap_message *m)
{
	struct tap_queued *q;
	int r = t->first ? -EAGAIN : tap_send(TAP_FD_KEEPER, m, NULL, 0);

	(void)FAULT("tap-told");
	if (r == 0)
		return;
	if (r != -EAGAIN) {
		tap_stop(t, r == -EPIPE ? 0 : r);
		return;
	}
	q = malloc(sizeof(*q));
	if (!q) {
		/* A request without a record must not exist. */
		tap_stop(t, -ENOMEM);
		return;
	}
	q->next = NULL;
	q->kind = m->kind;
	if (m->kind == TAP_REQUEST)
		q->request = m->request;
	else
		q->end = m->end;
	*(t->last ? &t->last->next : &t->first) = q;
	t->last = q;
	t->n_queued++;
	watch_keeper(t);
}

bool tap_may_pass(struct tap *t, size_t i)
{
	const uint64_t now = clock_mono(), rate = t->config.http[i].rate;
	uint64_t *pass = &t->passes[i];

	if (rate == 0)
		return true;
	/* Each request takes 1/rate of a minute, of which at most one is saved. */
	if (MAX(*pass, now) + MINUTE / rate > now + MINUTE)
		return false;
	*pass = MAX(*pass, now) + MINUTE / rate;
	return true;
}

/* ---- budgets ---- */

int tap_reserve(struct tap *t, struct gateway *g, struct tap_reserve *r)
{
	struct tap_message m = { .kind = TAP_RESERVE };
	int sent;

	r->call = t->last_call + 1;
	m.reserve = *r;
	sent = tap_send(TAP_FD_WARDEN, &m, NULL, 0);
	if (sent < 0)
		return sent;
	g->id = ++t->last_call;
	g->next = t->calls;
	if (g->next)
		g->next->prev = g;
	t->calls = g;
	return 0;
}

void tap_settle(struct tap *t, struct gateway *g, struct tap_settle *s)
{
	struct tap_message m = { .kind = TAP_SETTLE };
	int r;

	s->call = g->id;
	m.settle = *s;
	r = tap_send(TAP_FD_WARDEN, &m, NULL, 0);
	*(g->prev ? &g->prev->next : &t->calls) = g->next;
	if (g->next)
		g->next->prev = g->prev;
	g->id = 0;
	g->prev = g->next = NULL;
	/* The warden would wait for this settlement for ever. */
	if (r < 0)
		tap_stop(t, r == -EPIPE ? 0 : r);
}

void tap_granted(struct tap *t, const struct tap_grant *grant)
{
	for (struct gateway *g = t->calls; g; g = g->next)
		if (g->id == grant->call) {
			gateway_answer(g, grant);
			g->conf->wake(g->conf->arg);
			return;
		}
}
