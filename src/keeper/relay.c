/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay connects a channel of a client's link with one of the guest's link. It forwards each
 * side's messages to the other; channel numbers differ, the bytes do not. This file handles the two
 * ends. relay-open.c opens relays, relay-flow.c moves bytes, relay-time.c limits the time of
 * commands, relay-port.c limits connections to ports; relay-guest.c and relay-client.c are the
 * links' callbacks.
 *
 * MSG has no credit. Three things wait in the relay until its flows are empty, so that the client
 * reads them after all output: the exit message, sent once, the guest's CLOSE, and the end of a
 * time limit. Entries and events are sent at once. If the client's link is full, the keeper closes
 * the channel (too many): waiting would stop reading from the guest for all clients.
 *
 * The guest's end is closed (guest_ch is 0) when the guest or the keeper closed it; the client may
 * then still have output to read. The client's end is closed (client_ch is 0) when the client
 * closed it or disconnected; the keeper then closes the guest's end at once, unless the command
 * continues detached. Channel numbers are never reused and the link forgets the cookie of a closed
 * channel, so a late frame never finds a closed relay.
 *
 * Callbacks of one link call functions of the other link, but these never call back: only
 * link_feed() does, in the round of its own port. So callbacks are never nested.
 */
#include <signal.h>
#include <string.h>

#include "keeper/command.h"
#include "keeper/connect.h"
#include "keeper/relay-inner.h"
#include "keeper/serve.h"

/* ---- the two ends ---- */

static void unlink_relay(struct relay *r)
{
	if (r->prev)
		r->prev->next = r->next;
	else
		r->keeper->relays.list = r->next;
	if (r->next)
		r->next->prev = r->prev;
	r->prev = r->next = NULL;
}

void relay_leave(struct relay *r)
{
	struct keeper *k = r->keeper;

	if (!r->in_place)
		return;
	r->in_place = false;
	k->relays.n--;
	k->relays.n_kind[relay_kind(r->op)]--;
	k->relays.n_public -= r->public;
}

void relay_put_aside(struct relay *r)
{
	struct keeper *k = r->keeper;

	if (r->end.due)
		journal_end(r, r->end.code, r->end.text);
	else
		journal_end(r, WIRE_GONE, "closed by its client");
	loop_del_timer(&r->clock.timer);
	filtering_forget(r);
	flows_forget(r, TO_CLIENT);
	flows_forget(r, TO_GUEST);
	k->relays.held[relay_kind(r->op)] -= r->open.len;
	buf_done(&r->open);
	unlink_relay(r);
	r->next = k->relays.over;
	k->relays.over = r;
	idle_arm(k);
}

static void close_guest(struct relay *r)
{
	uint32_t ch = r->guest_ch;

	r->guest_ch = 0;
	loop_del_timer(&r->clock.timer);
	flows_forget(r, TO_GUEST);
	if (ch != 0)
		keeper_check(r->keeper, link_close(r->keeper->guest.link, ch, WIRE_DONE, NULL));
}

/* Closes all attached channels of an ended command; its record says how it ended. Callers may be
 * walking the list, so relays_sweep() unlinks the attach relays later. */
static void cut_attached(struct relay *r)
{
	for (struct relay *a = r->keeper->relays.list; a; a = a->next) {
		uint32_t ch = a->client_ch;

		if (a->target != r)
			continue;
		a->target = NULL;
		a->client_ch = 0;
		client_check(a->client, link_close(a->client->port.link, ch, WIRE_DONE, NULL));
	}
	r->input_ch = 0;
}

void relay_cut(struct relay *r, enum wire_code code, const char *text)
{
	uint32_t ch = r->client_ch;

	cut_attached(r);
	close_guest(r);
	if (r->command)
		command_over(r->command, RECORD_CLOSED, code, text ? text : "");
	r->client_ch = 0;
	if (r->op == WIRE_OP_EXEC)
		egress_record_sums(r->keeper);
	if (ch != 0)
		client_check(r->client, link_close(r->client->port.link, ch, code, text));
	relay_put_aside(r);
}

void relay_settle(struct relay *r)
{
	struct buf b = { .data = (char *)r->exit.bytes,
			 .len = r->exit.len,
			 .max = sizeof(r->exit.bytes) };

	if (!flows_empty(r, TO_CLIENT) || r->filtered.open != 0)
		return;
	if (r->exit.came && !r->exit.sent && r->client_ch != 0) {
		r->exit.sent = true;
		/* The client must find all denials so far in the log once it sees the exit. */
		egress_record_sums(r->keeper);
		client_check(r->client,
			     link_msg(r->client->port.link, r->client_ch, WIRE_MSG_EXIT, &b));
	}
	if (r->end.due)
		relay_cut(r, r->end.code, r->end.text[0] != '\0' ? r->end.text : NULL);
}

void relay_exited(struct relay *r)
{
	struct err e = ERR_INIT;
	struct fields f;

	/* The bytes were checked when they came. */
	if (r->command && fields_parse(MESSAGE_EXIT, r->exit.bytes, r->exit.len, &f, &e) == 0)
		command_exited(r->command, &f);
}

static void finish_now(struct relay *r)
{
	if (r->command)
		command_over(r->command, RECORD_CLOSED, r->end.code, r->end.text);
	cut_attached(r);
	relay_settle(r);
}

void relay_finish(struct relay *r, enum wire_code code, const char *text, size_t n)
{
	close_guest(r);
	r->end.due = true;
	r->end.code = code;
	n = MIN(n, (size_t)WIRE_TEXT_MAX);
	memcpy(r->end.text, text, n);
	r->end.text[n] = '\0';
	TRACE_OF(r->request, TRACE_STATE, "%s over: %s%s%s", wire_op_name(r->op),
		 wire_code_name(code), n > 0 ? ": " : "", r->end.text);
	if (!filtering_ends(r))
		finish_now(r);
}

static void drained(struct relay *r)
{
	if (r->exit.came)
		relay_exited(r);
	if (r->end.due)
		finish_now(r);
	else
		relay_settle(r);
}

void relay_detach(struct relay *r)
{
	struct relay *t = r->target ? r->target : r;

	if (t->input_ch != 0 && t->input == r->client && t->input_ch == r->client_ch)
		flow_set_input(t, NULL, 0);
	r->client_ch = 0;
	r->client = NULL;
	r->detached = true;
	r->target = NULL;
	for (unsigned int i = 0; i < WIRE_STREAMS; i++) {
		struct flow *f = &r->flows[TO_CLIENT][i];
		size_t n = f->held.len - f->done;

		flow_credit(r, TO_CLIENT, i, n);
		flow_forget(r, f);
	}
	if ((r->end.due && r->filtered.open == 0) || !r->command)
		relay_put_aside(r);
}

void relay_data(struct relay *r, enum way way, unsigned int stream, const void *data, size_t n)
{
	if (!flow_data(r, way, stream, data, n))
		relay_cut(r, WIRE_TOO_MANY, "too much waits to be read");
}

bool relay_pump(struct relay *r, enum way way, unsigned int stream)
{
	const bool moved = flow_pump(r, way, stream);

	if (moved && way == TO_CLIENT)
		relay_settle(r);
	return moved;
}

void relay_accept_command(struct relay *r, const struct relay *of)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	if (r->client_ch == 0)
		return;
	fields_put_number(&b, TAG_PID, of->pid);
	fields_put_number(&b, TAG_RECORD, of->command->record.number);
	client_check(r->client,
		     b.err ? b.err : link_accept(r->client->port.link, r->client_ch, &b));
}

static void filtered(struct relay *r, unsigned int stream, const void *data, size_t n)
{
	relay_data(r, TO_CLIENT, stream, data, n);
}

const struct filtering_ops relay_filtering_ops = {
	.data = filtered,
	.drained = drained,
	.cut = relay_cut,
};

const char *relay_request_of(struct link *l, uint32_t ch, void *arg)
{
	const struct relay *r = guest_opened(ch) ? NULL : link_cookie(l, ch);

	(void)arg;
	return r ? r->request : NULL;
}

/* ---- all relays ---- */

bool relays_wake(struct keeper *k)
{
	struct relay *r = k->relays.list, *next;
	bool moved = false;

	if (!k->relays.starved)
		return false;
	k->relays.starved = false;
	for (; r; r = next) {
		next = r->next;
		for (unsigned int i = 0; i < WIRE_STREAMS; i++) {
			moved |= relay_pump(r, TO_GUEST, i);
			moved |= relay_pump(r, TO_CLIENT, i);
			if (r->client_ch == 0)
				break;
		}
	}
	/* Rotate the list, so that another relay is the first to fill the link next time. */
	r = k->relays.list;
	if (r && r->next) {
		struct relay *last = r->next;

		unlink_relay(r);
		while (last->next)
			last = last->next;
		last->next = r;
		r->prev = last;
	}
	return moved;
}

void relays_drop(struct keeper *k, const struct client *c)
{
	bool end = c->first && k->clients.once;

	for (struct relay *r = k->relays.list, *next; r; r = next) {
		next = r->next;
		if (r->client != c)
			continue;
		if (r->op == WIRE_OP_ATTACH || (r->command && r->open.len == 0 && !end)) {
			relay_detach(r);
			continue;
		}
		r->client_ch = 0;
		if (r->command)
			command_over(r->command, RECORD_SIGNALED, SIGKILL, "its client has gone");
		relay_cut(r, WIRE_DONE, NULL);
	}
}

/* Records of running commands stay without an end; readers detect that. */
void relays_guest_gone(struct keeper *k)
{
	const char *text = k->end == KEEPER_GUEST_BROKE
				   ? "the sandbox was ended: its first process broke the protocol"
				   : "the sandbox has ended";

	relays_publish(k);
	for (struct relay *r = k->relays.list, *next; r; r = next) {
		next = r->next;
		if (r->end.due || r->op == WIRE_OP_ATTACH)
			continue;
		r->guest_ch = 0;
		if (r->command)
			r->command->over = true;
		relay_finish(r, WIRE_GONE, text, strlen(text));
	}
}

void relays_publish(struct keeper *k)
{
	for (struct relay *r = k->relays.list; r; r = r->next)
		if (r->command && r->command->record.dirty)
			(void)record_publish(&r->command->record);
}

void relays_sweep(struct keeper *k)
{
	for (struct relay *r = k->relays.list, *next; r; r = next) {
		next = r->next;
		if (r->op == WIRE_OP_ATTACH && r->client_ch == 0)
			relay_put_aside(r);
	}
	while (k->relays.over) {
		struct relay *r = k->relays.over;

		k->relays.over = r->next;
		relay_leave(r);
		command_free(r->command);
		free(r);
	}
}

void relays_done(struct keeper *k)
{
	while (k->relays.list)
		relay_put_aside(k->relays.list);
	relays_sweep(k);
}
