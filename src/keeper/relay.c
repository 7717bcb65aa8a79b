/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A relay joins a channel of a client's link to one of the guest's link. What one side says is said
 * to the other; the numbers of channels differ, the bytes do not. Here are its ends and what the
 * links say; relay-open.c begins one, relay-flow.c moves the bytes, relay-port.c is about ports.
 *
 * MSG has no credit. An exit is sent once and behind all output, as are the guest's CLOSE and the
 * end of a time limit: they wait in the relay until its flows are empty. Entries and events go at
 * once; where the client's link is full, the channel is closed (too many): to wait would mean to
 * stop reading the guest, for everybody.
 *
 * A relay has two ends. The guest's is over (guest_ch is 0) when the guest closed, or we did, and
 * then the client may still have to read. The client's is over (client_ch is 0) when the client
 * closed or has gone: then the guest's is closed at once, and the relay with it. Numbers of
 * channels are never used again and the link forgets the cookie of what is closed, so nothing that
 * comes late finds a relay that is over.
 *
 * Callbacks of one link call functions of the other, but these call nobody back: bytes are only
 * taken in by link_feed(), in the round of their own port. So callbacks are never nested.
 */
#include <signal.h>
#include <string.h>

#include "clock.h"
#include "command.h"
#include "connect.h"
#include "relay-inner.h"
#include "serve.h"

/* A bit for each stream that an operation uses, by direction. */
static const uint8_t used[WIRE_OP_MAX][WAYS] = {
	[WIRE_OP_EXEC] = { [TO_CLIENT] = 1 << 1 | 1 << 2, [TO_GUEST] = 1 << 0 },
	[WIRE_OP_READ] = { [TO_CLIENT] = 1 << 0 },
	[WIRE_OP_WRITE] = { [TO_GUEST] = 1 << 0 },
	[WIRE_OP_PACK] = { [TO_CLIENT] = 1 << 0 },
	[WIRE_OP_UNPACK] = { [TO_GUEST] = 1 << 0 },
	[WIRE_OP_PORT] = { [TO_CLIENT] = 1 << 0, [TO_GUEST] = 1 << 0 },
};

enum relay_kind relay_kind(enum wire_op op)
{
	switch (op) {
	case WIRE_OP_EXEC:
		return RELAY_EXEC;
	case WIRE_OP_ATTACH:
		return RELAY_ATTACH;
	case WIRE_OP_PORT:
		return RELAY_PORT;
	default:
		return RELAY_FILES;
	}
}

size_t relay_held_max(enum wire_op op)
{
	static const size_t most[RELAY_KINDS] = { [RELAY_EXEC] = HELD_MAX,
						  [RELAY_FILES] = HELD_FILES_MAX,
						  [RELAY_PORT] = HELD_PORT_MAX };

	return most[relay_kind(op)];
}

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

	if (r->closing)
		journal_end(r, r->code, r->text);
	else
		journal_end(r, WIRE_GONE, "given up by its client");
	loop_del_timer(&r->timer);
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
	loop_del_timer(&r->timer);
	flows_forget(r, TO_GUEST);
	if (ch != 0)
		keeper_check(r->keeper, link_close(r->keeper->guest.link, ch, WIRE_DONE, NULL));
}

/* Who has attached to a command hears of its end; how it was is in the record. Others may be going
 * through the list: relays_sweep() takes them out. */
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
	struct buf b = { .data = (char *)r->exit, .len = r->exit_len, .max = sizeof(r->exit) };

	if (!flows_empty(r, TO_CLIENT))
		return;
	if (r->has_exit && !r->sent_exit && r->client_ch != 0) {
		r->sent_exit = true;
		/* Who hears of the end finds in the log what was denied until then. */
		egress_record_sums(r->keeper);
		client_check(r->client,
			     link_msg(r->client->port.link, r->client_ch, WIRE_MSG_EXIT, &b));
	}
	if (r->closing)
		relay_cut(r, r->code, r->text[0] != '\0' ? r->text : NULL);
}

void relay_finish(struct relay *r, enum wire_code code, const char *text, size_t n)
{
	close_guest(r);
	r->closing = true;
	r->code = code;
	n = MIN(n, (size_t)WIRE_TEXT_MAX);
	memcpy(r->text, text, n);
	r->text[n] = '\0';
	TRACE_OF(r->request, TRACE_STATE, "%s over: %s%s%s", wire_op_name(r->op),
		 wire_code_name(code), n > 0 ? ": " : "", r->text);
	if (r->command)
		command_over(r->command, RECORD_CLOSED, code, r->text);
	cut_attached(r);
	relay_settle(r);
}

/* ---- the guest's end ---- */

static void guest_hello(struct link *l, const struct fields *f, void *arg)
{
	keeper_ready(arg, (uint32_t)fields_number(f, TAG_LANDLOCK, 0));
}

/* A view of a payload that was checked, to be sent as it came. */
static struct buf raw(const struct fields *f)
{
	return (struct buf){ .data = (char *)f->data, .len = f->len, .max = f->len };
}

static void guest_asked(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
			void *arg)
{
	connection_opened(arg, ch, op, f);
}

static void guest_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct relay *r = link_cookie(l, ch);
	struct buf b = raw(f);

	if (r && r->command) {
		r->pid = (uint32_t)fields_number(f, TAG_PID, 0);
		command_runs(r->command, r->pid);
		relay_accept_command(r, r);
	} else if (r) {
		client_check(r->client, link_accept(r->client->port.link, r->client_ch, &b));
	}
}

static void guest_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		       void *arg)
{
	struct relay *r;

	if (guest_opened(ch)) {
		connection_data(arg, ch, stream, data, n);
		return;
	}
	r = link_cookie(l, ch);
	if (!r || !(used[r->op][TO_CLIENT] >> stream & 1)) {
		(void)tracing_guest_data(arg, ch, data, n);
		keeper_check(arg, link_consumed(l, ch, stream, n));
		return;
	}
	if (r->command)
		record_put(&r->command->record, stream, data, n, clock_mono());
	flow_data(r, TO_CLIENT, stream, data, n);
}

static void guest_asleep(struct link *l, void *arg)
{
	struct keeper *k = arg;

	(void)l;
	if (k->save.begun && k->save.file >= 0)
		save_asleep(k);
	else
		keeper_stop(k, KEEPER_GUEST_BROKE);
}

static void guest_pong(struct link *l, uint64_t token, void *arg)
{
	keeper_heard(arg, token);
}

static void guest_eof(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct relay *r = guest_opened(ch) ? NULL : link_cookie(l, ch);

	if (guest_opened(ch))
		connection_eof(arg, ch, stream);
	else if (r)
		flow_eof(r, TO_CLIENT, stream);
}

static void guest_credit(struct link *l, uint32_t ch, unsigned int stream, void *arg)
{
	struct relay *r = guest_opened(ch) ? NULL : link_cookie(l, ch);

	if (guest_opened(ch))
		connection_credit(arg, ch, stream);
	else if (r)
		(void)flow_pump(r, TO_GUEST, stream);
}

static void trace_exit(const struct relay *r, const struct fields *f)
{
	const unsigned int sig = (unsigned int)fields_number(f, TAG_SIGNAL, 0);

	TRACE_OF(r->request, TRACE_STATE, "pid %u on guest channel %u ended: %s %u", r->pid,
		 r->guest_ch, sig > 0 ? "signal" : "exit",
		 sig > 0 ? sig : (unsigned int)fields_number(f, TAG_CODE, 0));
	if (sig == SIGSYS)
		TRACE_OF(r->request, TRACE_SYSCALL,
			 "pid %u was killed by SIGSYS: a filter of its own forbids a system call",
			 r->pid);
}

static void on_exit_msg(struct relay *r, const struct fields *f)
{
	if (r->has_exit || f->len > sizeof(r->exit))
		return;
	memcpy(r->exit, f->data, f->len);
	r->exit_len = f->len;
	r->has_exit = true;
	if (r->command)
		command_exited(r->command, f);
	trace_exit(r, f);
	relay_settle(r);
}

static void guest_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		      void *arg)
{
	struct relay *r = guest_opened(ch) ? NULL : link_cookie(l, ch);
	struct buf b = raw(f);

	if (!r)
		return;
	if (kind == WIRE_MSG_LIMIT && !met_said(arg, f))
		return;
	if (kind == WIRE_MSG_EXIT)
		on_exit_msg(r, f);
	else if (r->client_ch == 0)
		return; /* entries or events of a command: nonsense */
	else if (port_waiting(&r->client->port) > RELAY_MESSAGES_MAX)
		relay_cut(r, WIRE_TOO_MANY, "too many entries or events wait to be read");
	else
		client_check(r->client, link_msg(r->client->port.link, r->client_ch, kind, &b));
}

const char *relay_request_of(struct link *l, uint32_t ch, void *arg)
{
	const struct relay *r = guest_opened(ch) ? NULL : link_cookie(l, ch);

	(void)arg;
	return r ? r->request : NULL;
}

static void guest_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct relay *r = guest_opened(ch) ? NULL : link_cookie(l, ch);
	uint64_t code = fields_number(f, TAG_CODE, WIRE_IO);
	const char *text = "";
	size_t pos = 0, n = 0;

	if (guest_opened(ch))
		connection_closed(arg, ch, f);
	tracing_guest_closed(arg, ch);
	if (!r)
		return;
	r->guest_ch = 0; /* gone already */
	(void)fields_next(f, TAG_TEXT, &pos, &text, &n);
	/* What only we may say, and numbers that nobody knows. */
	relay_finish(r, code >= WIRE_TIMEOUT ? WIRE_IO : (enum wire_code)code, text, n);
}

const struct link_ops relay_guest_ops = {
	.hello = guest_hello,
	.opened = guest_asked,
	.accepted = guest_accepted,
	.data = guest_data,
	.eof = guest_eof,
	.credit = guest_credit,
	.msg = guest_msg,
	.closed = guest_closed,
	.pong = guest_pong,
	.asleep = guest_asleep,
	.request = relay_request_of,
};

/* ---- the client's end ---- */

/* Whom the input of a channel is for. */
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

	if (r && used[r->op][TO_GUEST] >> stream & 1) {
		journal_data(r, data, n);
		flow_data(r, TO_GUEST, stream, data, n);
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
		(void)flow_pump(r, TO_CLIENT, stream);
}

void relay_client_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		      void *arg)
{
	struct relay *r = link_cookie(l, ch);
	struct buf b = raw(f);

	if (r && r->op == WIRE_OP_ATTACH)
		r = r->target;
	if (r && r->guest_ch != 0 && kind == WIRE_MSG_SIGNAL)
		journal_signal(r, fields_number(f, TAG_NUMBER, 0));
	if (r && r->guest_ch != 0)
		keeper_check(r->keeper, link_msg(r->keeper->guest.link, r->guest_ch, kind, &b));
}

/* Takes the client away from a relay. What its command prints goes to the record alone. */
static void detach(struct relay *r)
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

		flow_forget(r, f);
		flow_credit(r, TO_CLIENT, i, n);
	}
	if (r->closing || !r->command)
		relay_put_aside(r);
}

void relay_client_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct relay *r = link_cookie(l, ch);

	if (!r) {
		life_drop(arg, ch); /* if it is one of those */
		tracing_drop(arg, ch);
		save_drop(arg, ch);
		return;
	}
	if (r->op == WIRE_OP_ATTACH || (r->detached && r->open.len == 0)) {
		detach(r);
		return;
	}
	r->client_ch = 0; /* gone already */
	if (r->command)
		command_over(r->command, RECORD_SIGNALED, SIGKILL, "its client ended it");
	relay_cut(r, WIRE_DONE, NULL);
}

/* ---- all of them ---- */

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
			moved |= flow_pump(r, TO_GUEST, i);
			moved |= flow_pump(r, TO_CLIENT, i);
			if (r->client_ch == 0)
				break;
		}
	}
	/* Another one is the first to fill the link the next time. */
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
			detach(r);
			continue;
		}
		r->client_ch = 0;
		if (r->command)
			command_over(r->command, RECORD_SIGNALED, SIGKILL, "its client has gone");
		relay_cut(r, WIRE_DONE, NULL);
	}
}

/* What has not ended is lost, and readers see that by themselves. */
void relays_guest_gone(struct keeper *k)
{
	const char *text = k->end == KEEPER_GUEST_BROKE
				   ? "the sandbox was ended: its first process broke the protocol"
				   : "the sandbox has ended";

	relays_publish(k);
	for (struct relay *r = k->relays.list, *next; r; r = next) {
		next = r->next;
		if (r->closing || r->op == WIRE_OP_ATTACH)
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
