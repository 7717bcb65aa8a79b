/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Flow control works end to end. DATA is passed on directly as far as the other link takes it,
 * which is the usual case and needs no copy. The rest is held, and its sender gets credit only
 * after it was passed on, so a stream never holds more than its sender's initial credit.
 * relay_held_max() limits all relays of a kind together: a relay that would exceed it is closed
 * (too many); other kinds are not affected. Held bytes move when the receiver gives credit, or when
 * a full link has been written out (starved, relays_wake()). Bytes on streams that an operation
 * does not use are dropped, as the protocol says.
 */
#include "base/clock.h"
#include "keeper/relay-inner.h"
#include "keeper/serve.h"

/* A bit for each used stream, by operation and direction. */
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

static size_t relay_held_max(enum wire_op op)
{
	static const size_t most[RELAY_KINDS] = { [RELAY_EXEC] = HELD_MAX,
						  [RELAY_FILES] = HELD_FILES_MAX,
						  [RELAY_PORT] = HELD_PORT_MAX };

	return most[relay_kind(op)];
}

bool flow_is_used(enum wire_op op, enum way way, unsigned int stream)
{
	return used[op][way] >> stream & 1;
}

/* The link and the channel that a flow goes to; channel 0: no receiver. */
static struct link *link_to(const struct relay *r, enum way way)
{
	return way == TO_CLIENT ? r->client->port.link : r->keeper->guest.link;
}

static uint32_t channel_to(const struct relay *r, enum way way)
{
	if (way == TO_GUEST)
		return r->guest_ch;
	return r->detached ? 0 : r->client_ch;
}

static void check(struct relay *r, enum way way, int result)
{
	if (way == TO_CLIENT)
		client_check(r->client, result);
	else
		keeper_check(r->keeper, result);
}

void flow_forget(struct relay *r, struct flow *f)
{
	r->keeper->relays.held[relay_kind(r->op)] -= f->held.len - f->done;
	buf_done(&f->held);
	f->done = f->orphaned = 0;
}

void flows_forget(struct relay *r, enum way way)
{
	for (unsigned int i = 0; i < WIRE_STREAMS; i++)
		flow_forget(r, &r->flows[way][i]);
}

bool flows_empty(const struct relay *r, enum way way)
{
	for (unsigned int i = 0; i < WIRE_STREAMS; i++)
		if (r->flows[way][i].held.len > 0)
			return false;
	return true;
}

/* Returns credit in quarters: the sender still has the other three. */
void flow_credit(struct relay *r, enum way way, unsigned int stream, size_t n)
{
	struct flow *f = &r->flows[way][stream];
	size_t not_theirs = MIN(n, f->orphaned), all = f->owed + n - not_theirs;

	f->orphaned -= not_theirs;
	f->owed = all >= CREDIT_STEP ? 0 : all;
	if (all < CREDIT_STEP)
		return;
	if (way == TO_CLIENT && r->guest_ch != 0)
		keeper_check(r->keeper,
			     link_consumed(r->keeper->guest.link, r->guest_ch, stream, all));
	if (way == TO_GUEST && r->input_ch != 0)
		client_check(r->input,
			     link_consumed(r->input->port.link, r->input_ch, stream, all));
}

/* Without the bytes that earn no credit: those are still held. */
void flow_credit_back(struct relay *r, unsigned int stream, size_t n)
{
	struct flow *f = &r->flows[TO_CLIENT][stream];
	const size_t orphaned = f->orphaned;

	f->orphaned = 0;
	flow_credit(r, TO_CLIENT, stream, n);
	f->orphaned = orphaned;
}

void flow_set_input(struct relay *r, struct client *c, uint32_t ch)
{
	struct flow *f = &r->flows[TO_GUEST][0];

	r->input = c;
	r->input_ch = ch;
	f->owed = 0;
	f->orphaned = f->held.len - f->done;
}

/* Sends to one end and returns credit to the other. Returns how many bytes were taken; all of
 * them without a receiver. */
static size_t pass_on(struct relay *r, enum way way, unsigned int stream, const void *data,
		      size_t n)
{
	uint32_t to = channel_to(r, way);
	ssize_t sent = to == 0 ? (ssize_t)n : link_data(link_to(r, way), to, stream, data, n);

	if (sent < 0) {
		check(r, way, (int)sent);
		sent = (ssize_t)n;
	}
	flow_credit(r, way, stream, (size_t)sent);
	return (size_t)sent;
}

static bool hold(struct relay *r, struct flow *f, enum way way, const void *data, size_t n)
{
	struct keeper *k = r->keeper;
	size_t *sum = &k->relays.held[relay_kind(r->op)];

	k->relays.starved |= !link_ready(link_to(r, way));
	/* Bytes already passed on are still in front. A filter's texts may be longer than what they
	 * replace. */
	f->held.max =
		(size_t)(r->filtered.number > 0 ? FILTERED_GROWTH : 1) * 2 * WIRE_CREDIT_START;
	if (f->done >= f->held.len / 2) {
		buf_consume(&f->held, f->done);
		f->done = 0;
	}
	if (*sum + n > relay_held_max(r->op) || buf_put(&f->held, data, n) < 0)
		return false;
	*sum += n;
	return true;
}

bool flow_data(struct relay *r, enum way way, unsigned int stream, const void *data, size_t n)
{
	struct flow *f = &r->flows[way][stream];
	size_t sent;

	if (r->op == WIRE_OP_PORT)
		r->used = clock_mono();
	sent = f->held.len == 0 ? pass_on(r, way, stream, data, n) : 0;
	return sent == n || hold(r, f, way, (const char *)data + sent, n - sent);
}

static void send_eof(struct relay *r, enum way way, unsigned int stream)
{
	if (channel_to(r, way) != 0)
		check(r, way, link_eof(link_to(r, way), channel_to(r, way), stream));
}

void flow_eof(struct relay *r, enum way way, unsigned int stream)
{
	struct flow *f = &r->flows[way][stream];

	f->eof = true;
	if (f->held.len == 0)
		send_eof(r, way, stream);
}

bool flow_pump(struct relay *r, enum way way, unsigned int stream)
{
	struct flow *f = &r->flows[way][stream];
	size_t n = f->held.len - f->done, sent;

	if (f->held.len == 0)
		return false;
	sent = pass_on(r, way, stream, f->held.data + f->done, n);
	f->done += sent;
	r->keeper->relays.held[relay_kind(r->op)] -= sent;
	if (sent < n) {
		r->keeper->relays.starved |= !link_ready(link_to(r, way));
		return sent > 0;
	}
	flow_forget(r, f);
	if (f->eof)
		send_eof(r, way, stream);
	return true;
}
