/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to ports of the sandbox. Clients without the owner's credentials may open any number
 * of them and never send a byte, so connections are limited: one that was quiet for PORT_IDLE_MS is
 * closed, and if there is no room, the one quiet for longest is closed after PORT_QUIET_MS. Some
 * room is reserved for the sandbox's owner.
 */
#include <string.h>

#include "base/clock.h"
#include "keeper/relay-inner.h"
#include "keeper/serve.h"

static struct relay *quietest(struct keeper *k)
{
	struct relay *found = NULL;

	for (struct relay *r = k->relays.list; r; r = r->next)
		if (r->public && (!found || r->used < found->used))
			found = r;
	return found;
}

static bool is_full(const struct keeper *k, bool public)
{
	return k->relays.n_kind[RELAY_PORT] >= RELAYS_PORT ||
	       (public && k->relays.n_public >= RELAYS_PUBLIC);
}

bool relay_port_room(struct keeper *k, bool public)
{
	struct relay *r;

	if (!is_full(k, public))
		return true;
	r = quietest(k);
	if (!r || clock_mono() - r->used < PORT_QUIET_MS * NSEC_PER_MSEC)
		return false;
	relay_cut(r, WIRE_TIMEOUT, "it was quiet, and another one needs its place");
	relay_leave(r);
	return true;
}

static void on_idle(struct loop_timer *t)
{
	struct relay *r = t->arg;
	const uint64_t end = r->used + PORT_IDLE_MS * NSEC_PER_MSEC;

	if (clock_mono() < end)
		keeper_check(r->keeper, loop_set_timer(r->keeper->loop, t, end));
	else
		relay_cut(r, WIRE_TIMEOUT, "it was quiet for too long");
}

int relay_port_begin(struct relay *r)
{
	r->used = clock_mono();
	r->clock.timer = (struct loop_timer){ .cb = on_idle, .arg = r };
	return loop_set_timer(r->keeper->loop, &r->clock.timer,
			      r->used + PORT_IDLE_MS * NSEC_PER_MSEC);
}
