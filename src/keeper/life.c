/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles client requests to change a deadline, pause or resume. The keeper records the request and
 * forwards it to the warden, which alone decides; the client waits in a queue. The warden answers
 * in order. The result is recorded before the client sees it.
 *
 * A paused guest cannot answer, so nothing is asked of it. Channels stay open; the time limits of
 * commands and the idle timer stand still.
 *
 * The warden saves the rest of the deadline when the VM's state is complete, and may then end the
 * sandbox without reading another request. Requests are refused from then on, so that a client
 * knows that its change is not saved.
 */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "keeper/serve.h"

static const char *name_of(const struct life_order *o)
{
	if (o->want == WANT_PAUSED)
		return "pause";
	return o->want == WANT_RUNNING ? "resume" : "deadline";
}

static struct life_order order_of(const struct fields *f)
{
	return (struct life_order){
		.timeout = (uint32_t)fields_number(f, TAG_TIMEOUT, 0),
		.on_timeout = (enum life_then)fields_number(f, TAG_ON_TIMEOUT, THEN_AS_BEFORE),
		.want = (enum life_want)fields_number(f, TAG_WANT, WANT_NOTHING),
	};
}

/* True for a request that only reads the current state. */
static bool is_question(const struct life_order *o)
{
	return o->timeout == 0 && o->on_timeout == THEN_AS_BEFORE && o->want == WANT_NOTHING;
}

/* ---- records ---- */

static int record_order(struct keeper *k, const struct life_order *o, uint64_t number)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_number(&p, "n", number);
	audit_put_text(&p, "op", name_of(o));
	if (o->timeout > 0)
		audit_put_number(&p, "timeout_ms", o->timeout);
	if (o->on_timeout != THEN_AS_BEFORE)
		audit_put_text(&p, "on_timeout", o->on_timeout == THEN_PAUSE ? "pause" : "end");
	return journal_append(k, AUDIT_LIFE, &p);
}

static void record_answer(struct keeper *k, const struct asked *q, const struct life_answer *a,
			  enum wire_code code)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	char deadline[CLOCK_RFC3339_MAX];

	audit_put_number(&p, "n", q->number);
	audit_put_text(&p, "op", name_of(&q->order));
	audit_put_text(&p, "state", a->paused ? "paused" : "running");
	if (a->result == LIFE_DONE && a->ms > 0)
		audit_put_text(&p, "deadline", clock_format(a->ms * NSEC_PER_MSEC, deadline));
	if (code != WIRE_DONE)
		audit_put_text(&p, "result", wire_code_name(code));
	journal_outcome(k, AUDIT_LIFE_END, &p);
}

/* ---- clocks ---- */

static void set_paused(struct keeper *k, bool paused)
{
	if (k->life.paused == paused)
		return;
	k->life.paused = paused;
	relays_set_clocks(k);
	if (paused)
		loop_del_timer(&k->idle);
	else
		idle_arm(k);
}

/* ---- clients ---- */

static void refuse_leaving(struct client *c, uint32_t ch)
{
	char text[WIRE_TEXT_MAX + 1];

	(void)snprintf(text, sizeof(text),
		       "the sandbox is being suspended, and nothing is changed: hutch resume %s, "
		       "then repeat",
		       c->keeper->spec->id);
	client_check(c, link_close(c->port.link, ch, WIRE_TOO_MANY, text));
}

void life_opened(struct client *c, uint32_t ch, const struct fields *f)
{
	struct keeper *k = c->keeper;
	struct life_order o = order_of(f);
	struct asked q = { .client = c, .ch = ch, .order = o };
	struct link *l = c->port.link;

	if (k->save.leaving) {
		refuse_leaving(c, ch);
		return;
	}
	if (k->life.n == LIFE_QUEUE) {
		client_check(c, link_close(l, ch, WIRE_TOO_MANY,
					   "too many pending requests to pause, resume or set a "
					   "deadline; try again"));
		return;
	}
	if (!is_question(&o)) {
		q.number = ++k->life.orders;
		if (record_order(k, &o, q.number) < 0) {
			client_check(c, link_close(l, ch, WIRE_IO,
						   "cannot write the audit log, so nothing was "
						   "done"));
			return;
		}
		(void)FAULT("life-recorded");
	}
	k->life.queue[k->life.n++] = q;
	/* Tests run without a warden and send the answers themselves. */
	keeper_tell(k, NOTE_LIFE, life_order_pack(&o));
}

void life_drop(const struct client *c, uint32_t ch)
{
	struct life_queue *life = &c->keeper->life;

	for (size_t i = 0; i < life->n; i++)
		if (life->queue[i].client == c && (ch == 0 || life->queue[i].ch == ch))
			life->queue[i].client = NULL;
}

void life_refuse(struct client *c, uint32_t ch)
{
	char text[WIRE_TEXT_MAX + 1];

	(void)snprintf(text, sizeof(text), "the sandbox is paused: hutch resume %s",
		       c->keeper->spec->id);
	client_check(c, link_close(c->port.link, ch, WIRE_UNSUPPORTED, text));
}

/* The code and text for a client whose request failed. */
static enum wire_code explain(const struct keeper *k, const struct asked *q,
			      const struct life_answer *a, char text[static WIRE_TEXT_MAX + 1])
{
	switch (a->result) {
	case LIFE_ALREADY:
		(void)snprintf(text, WIRE_TEXT_MAX + 1, "the sandbox is %s already",
			       a->paused ? "paused" : "running");
		return WIRE_EXISTS;
	case LIFE_NO_FREEZER:
		(void)snprintf(text, WIRE_TEXT_MAX + 1,
			       "cannot pause this sandbox: there is no freezer: %.150s",
			       k->life.no_freezer);
		return WIRE_UNSUPPORTED;
	case LIFE_TOO_LATE:
		(void)snprintf(text, WIRE_TEXT_MAX + 1,
			       "the policy's ttl has %llu s left: the deadline cannot be in %llu s",
			       (unsigned long long)a->ms / 1000,
			       (unsigned long long)q->order.timeout / 1000);
		return WIRE_INVALID;
	default:
		(void)snprintf(text, WIRE_TEXT_MAX + 1,
			       "the request failed and changed nothing: see the sandbox's log");
		return WIRE_IO;
	}
}

static void tell(const struct asked *q, const struct life_answer *a, enum wire_code code,
		 const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	struct link *l = q->client->port.link;

	fields_put_number(&b, TAG_WANT, a->paused ? WIRE_PAUSED : WIRE_RUNNING);
	fields_put_number(&b, TAG_DEADLINE, a->ms);
	if (code == WIRE_DONE)
		client_check(q->client, b.err ? b.err : link_accept(l, q->ch, &b));
	client_check(q->client, link_close(l, q->ch, code, code == WIRE_DONE ? NULL : text));
}

bool life_answered(struct keeper *k, uint64_t value)
{
	char text[WIRE_TEXT_MAX + 1] = "";
	struct life_answer a;
	enum wire_code code;
	struct asked q;

	if (k->life.n == 0 || !life_answer_unpack(value, &a))
		return false;
	q = k->life.queue[0];
	k->life.n--;
	memmove(&k->life.queue[0], &k->life.queue[1], k->life.n * sizeof(q));
	set_paused(k, a.paused);
	code = a.result == LIFE_DONE ? WIRE_DONE : explain(k, &q, &a, text);
	if (!is_question(&q.order))
		record_answer(k, &q, &a, code);
	if (q.client)
		tell(&q, &a, code, text);
	return true;
}

/* The warden paused the sandbox at its deadline; no client waits for an answer. */
void life_paused(struct keeper *k)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_text(&p, "op", "pause");
	audit_put_text(&p, "state", "paused");
	audit_put_text(&p, "reason", "deadline");
	journal_outcome(k, AUDIT_LIFE_END, &p);
	set_paused(k, true);
}
