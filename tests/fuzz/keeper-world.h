/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A keeper without file descriptors: the test moves the bytes of its links by hand. At one end the
 * fuzzed input plays guest or client. At the other end is our own link, which dies of the first
 * frame that the protocol does not allow: so the keeper must not pass invalid input on. The first
 * two bytes of an input select its split into pieces and the actions of our end between them.
 */
#pragma once

#include <string.h>

#include "../unit/unit-engine.h"
#include "fuzz.h"
#include "keeper/serve.h"

enum {
	CHANNELS = 64
};

struct world {
	struct keeper k;
	struct client *client;
	bool guest_is_ours;
	struct link *ours;   /* our end */
	struct link *theirs; /* the keeper's end that gets the fuzzed bytes */
	uint32_t ch[CHANNELS];
	enum wire_op op[CHANNELS];
	bool open[CHANNELS], eof[CHANNELS][WIRE_STREAMS];
	size_t unread[CHANNELS][WIRE_STREAMS];
	unsigned int exits[CHANNELS];
	bool connected[CHANNELS]; /* by guest channel */
	size_t n;
	uint32_t seed;
};

static uint32_t draw(struct world *w, uint32_t below)
{
	w->seed = w->seed * 1664525 + 1013904223;
	return (w->seed >> 16) % below;
}

static size_t index_of(const struct world *w, uint32_t ch)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->ch[i] == ch)
			return i;
	return CHANNELS;
}

static void ours_opened(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
			void *arg)
{
	struct world *w = arg;

	assert(!fields_has(f, TAG_TIMEOUT) && !fields_has(f, TAG_NAME) &&
	       !fields_has(f, TAG_DETACH));
	if (op == WIRE_OP_EXEC)
		assert(fields_has(f, TAG_ENV) && fields_has(f, TAG_CWD));
	assert(fields_has(f, TAG_USER) == (op != WIRE_OP_PORT));
	if (w->n == CHANNELS) {
		(void)link_close(l, ch, WIRE_TOO_MANY, NULL);
		return;
	}
	w->op[w->n] = op;
	w->ch[w->n++] = ch;
}

static void ours_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct world *w = arg;

	w->open[index_of(w, ch)] = true;
}

static void ours_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		      void *arg)
{
	struct world *w = arg;

	w->unread[index_of(w, ch)][stream] += n;
}

static void ours_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		     void *arg)
{
	struct world *w = arg;

	if (kind == WIRE_MSG_EXIT)
		assert(++w->exits[index_of(w, ch)] == 1);
}

static void ours_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct world *w = arg;
	size_t i = index_of(w, ch);

	/* No timer runs here, so no timeout may be reported. */
	assert(fields_number(f, TAG_CODE, 0) < WIRE_TIMEOUT);
	if (i < CHANNELS)
		w->open[i] = false;
	if (i < CHANNELS)
		w->ch[i] = 0;
}

static const struct link_ops ours_ops = {
	.opened = ours_opened,
	.accepted = ours_accepted,
	.data = ours_data,
	.msg = ours_msg,
	.closed = ours_closed,
};

static struct link *keeper_end(struct world *w, bool ours)
{
	if (w->guest_is_ours == ours)
		return w->k.guest.link;
	return w->k.clients.list ? w->client->port.link : NULL;
}

/* Moves the pending bytes of a link; returns true if there were any. */
static bool move(struct link *from, struct link *to)
{
	struct err e = ERR_INIT;
	size_t n;
	const void *data = link_pending(from, &n);
	_cleanup_free_ void *copy = malloc(n + 1);

	assert(copy);
	if (n == 0)
		return false;
	memcpy(copy, data, n);
	link_wrote(from, n);
	if (to)
		assert(link_feed(to, copy, n, &e) == 0);
	return true;
}

static void round_of(struct world *w)
{
	keeper_round(&w->k);
	assert(w->k.relays.held[RELAY_EXEC] <= HELD_MAX &&
	       w->k.relays.held[RELAY_FILES] <= HELD_FILES_MAX);
	assert(w->k.relays.held[RELAY_PORT] <= HELD_PORT_MAX &&
	       w->k.relays.held[RELAY_ATTACH] == 0);
	assert(w->k.relays.n_public <= RELAYS_PUBLIC && w->k.relays.n <= RELAYS_MAX);
	if (keeper_end(w, true) && draw(w, 4) > 0)
		(void)move(keeper_end(w, true), w->ours);
	if (keeper_end(w, false) && draw(w, 8) > 0)
		(void)move(keeper_end(w, false), NULL);
}

static void world_start(struct world *w, const struct spec *spec, enum link_role ours)
{
	const struct keeper_start s = {
		.spec = spec,
		.engine = spec->machine.kernel ? &unit_vm : &unit_container,
		.no_snapshots = "",
		.guest = -EBADF,
		.listener = -EBADF,
		.warden = -EBADF,
	};
	_cleanup_buf_ struct buf keeper = BUF_INIT(64), guest = BUF_INIT(64);
	struct link *g = NULL;
	struct err e = ERR_INIT;

	*w = (struct world){ 0 };
	fields_put_number(&keeper, TAG_VERSION, WIRE_VERSION);
	fields_put_number(&guest, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&guest, TAG_AGENT, "fuzz");
	assert(keeper_init(&w->k, &s, &e) == 0);
	assert(link_new(LINK_GUEST, &ours_ops, w, &g) == 0);
	assert(link_hello(w->k.guest.link, &keeper) == 0 && link_hello(g, &guest) == 0);
	do /* the keeper sends a VM the time, perhaps more than once */
		(void)move(w->k.guest.link, g);
	while (move(g, w->k.guest.link));
	assert(w->k.phase == PHASE_SERVING);
	w->client = client_new(&w->k, -EBADF);
	assert(w->client);
	if (ours == LINK_GUEST) {
		w->guest_is_ours = true;
		w->ours = g;
		w->theirs = w->client->port.link;
		return;
	}
	(void)link_free(g);
	w->theirs = w->k.guest.link;
	assert(link_new(LINK_KEEPER, &ours_ops, w, &w->ours) == 0);
	link_with_client(w->ours);
	assert(link_hello(w->ours, &keeper) == 0);
	(void)move(w->ours, w->client->port.link);
	(void)move(w->client->port.link, w->ours);
}

static void world_end(struct world *w)
{
	keeper_done(&w->k);
	for (size_t i = 0; i < RELAY_KINDS; i++)
		assert(w->k.relays.held[i] == 0 && w->k.relays.n_kind[i] == 0);
	assert(w->k.relays.n_public == 0 && w->k.relays.n == 0 && w->k.clients.n == 0);
	w->ours = link_free(w->ours);
}

/* Sends a little on a stream, or ends it. */
static void act_stream(struct world *w, size_t i)
{
	static const char bytes[70000];
	unsigned int stream = draw(w, WIRE_STREAMS);

	if (!w->open[i] || w->eof[i][stream])
		return;
	if (draw(w, 12) == 0) {
		w->eof[i][stream] = true;
		(void)link_eof(w->ours, w->ch[i], stream);
	} else {
		(void)link_data(w->ours, w->ch[i], stream, bytes,
				draw(w, 3) == 0 ? sizeof(bytes) : 1 + draw(w, 100));
	}
}

static void act_read(struct world *w, size_t i)
{
	unsigned int stream = draw(w, WIRE_STREAMS);

	(void)link_consumed(w->ours, w->ch[i], stream, w->unread[i][stream]);
	w->unread[i][stream] = 0;
}

static void act_close(struct world *w, size_t i)
{
	(void)link_close(w->ours, w->ch[i], (enum wire_code)draw(w, WIRE_TIMEOUT), "enough");
	w->open[i] = false;
	w->ch[i] = 0;
}

/* Feeds the input in pieces; `act` does the actions of our end. */
static void world_run(struct world *w, const uint8_t *data, size_t size,
		      void (*act)(struct world *w))
{
	size_t step;

	if (size < 2)
		return;
	/* Not for every byte of a long input: each round is expensive. */
	step = data[0] == 0 ? size : MAX((size_t)data[0], size / 64);
	w->seed = data[1];
	for (size_t at = 2; at < size && !w->k.ended && w->k.clients.list; at += step) {
		size_t n = MIN(step, size - at);
		_cleanup_free_ uint8_t *copy = malloc(n);
		struct err e = ERR_INIT;

		assert(copy);
		memcpy(copy, data + at, n);
		if (link_feed(w->theirs, copy, n, &e) < 0)
			break;
		act(w);
		if (keeper_end(w, true))
			(void)move(w->ours, keeper_end(w, true));
		round_of(w);
	}
}
