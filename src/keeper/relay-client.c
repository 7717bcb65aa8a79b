/* SPDX-License-Identifier: Apache-2.0 */
/* Callbacks of a client's link: they reach a relay, or an operation that the keeper answers
 * itself. */
#include <signal.h>

#include "keeper/command.h"
#include "keeper/relay-inner.h"
#include "keeper/serve.h"

static void open_tracing(struct client *c, uint32_t ch, const struct fields *f)
{
	(void)f;
	tracing_opened(c, ch);
}

/* Only the keeper itself may open this operation. */
static void open_nothing(struct client *c, uint32_t ch, const struct fields *f)
{
	(void)f;
	client_check(c, link_close(c->port.link, ch, WIRE_UNSUPPORTED, NULL));
}

/* Operations that the keeper answers without the guest. */
static void (*const open_own[WIRE_OP_MAX])(struct client *c, uint32_t ch,
					   const struct fields *f) = {
	[WIRE_OP_ADOPT] = open_nothing, [WIRE_OP_EGRESS] = egress_opened,
	[WIRE_OP_LIFE] = life_opened,	[WIRE_OP_SAVE] = save_opened,
	[WIRE_OP_TRACE] = open_tracing,
};

void relay_client_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
			 void *arg)
{
	struct client *c = arg;

	(void)l;
	if (open_own[op])
		open_own[op](c, ch, f);
	else if (c->keeper->life.paused && op != WIRE_OP_ATTACH)
		life_refuse(c, ch);
	else if (halted(c->keeper) && op != WIRE_OP_ATTACH)
		halt_refuse(c, ch);
	else
		relay_open(c, ch, op, f);
}

/* The relay that takes the input of a channel, or NULL. */
static struct relay *receiver(struct link *l, uint32_t ch)
{
	struct relay *r = link_cookie(l, ch);

	if (r && r->op == WIRE_OP_ATTACH)
		r = r->target;
	return r && r->input_ch == ch && r->input->port.link == l ? r : NULL;
}

void relay_client_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		       void *arg)
{
	struct relay *r = receiver(l, ch);

	if (r && flow_is_used(r->op, TO_GUEST, stream)) {
		journal_data(r, data, n);
		relay_data(r, TO_GUEST, stream, data, n);
		return;
	}
	client_check(arg, link_consumed(l, ch, stream, n));
}

void relay_client_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct relay *r = receiver(l, ch);

	if (r)
		flow_eof(r, TO_GUEST, stream);
}

void relay_client_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct relay *r = link_cookie(l, ch);

	if (r)
		(void)relay_pump(r, TO_CLIENT, stream);
}

void relay_client_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		      void *arg)
{
	struct relay *r = link_cookie(l, ch);
	struct buf b = relay_raw(f);

	if (r && r->op == WIRE_OP_ATTACH)
		r = r->target;
	if (r && r->guest_ch != 0 && kind == WIRE_MSG_SIGNAL)
		journal_signal(r, fields_number(f, TAG_NUMBER, 0));
	if (r && r->guest_ch != 0)
		keeper_check(r->keeper, link_msg(r->keeper->guest.link, r->guest_ch, kind, &b));
}

void relay_client_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct relay *r = link_cookie(l, ch);

	if (!r) {
		life_drop(arg, ch); /* each ignores a channel that it does not know */
		tracing_drop(arg, ch);
		save_drop(arg, ch);
		return;
	}
	if (r->op == WIRE_OP_ATTACH || (r->detached && r->open.len == 0)) {
		relay_detach(r);
		return;
	}
	r->client_ch = 0; /* closed by the client */
	if (r->command)
		command_over(r->command, RECORD_SIGNALED, SIGKILL, "its client ended it");
	relay_cut(r, WIRE_DONE, NULL);
}
