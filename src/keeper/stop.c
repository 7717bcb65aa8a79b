/* SPDX-License-Identifier: Apache-2.0 */
/* Ends the keeper or one of its clients, for every file that can find a reason. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "keeper/serve.h"

static const char *end_name(enum keeper_end end)
{
	switch (end) {
	case KEEPER_ONCE:
		return "its only client has gone";
	case KEEPER_IDLE:
		return "idle";
	case KEEPER_GUEST_GONE:
		return "the guest has gone";
	case KEEPER_GUEST_BROKE:
		return "the guest broke the protocol";
	case KEEPER_DISK_FULL:
		return "the host's disk is full";
	default:
		return "it failed";
	}
}

void keeper_stop(struct keeper *k, enum keeper_end end)
{
	if (!k->ended) {
		k->end = end;
		TRACE(TRACE_STATE, "the keeper ends: %s", end_name(end));
	}
	k->ended = true;
}

void keeper_check(struct keeper *k, int r)
{
	if (r >= 0 || r == -ESTALE || k->ended)
		return;
	log_error("the guest's link failed: %s", strerror(-r));
	keeper_stop(k, KEEPER_FAILED);
}

void keeper_tell(struct keeper *k, enum note_kind kind, uint64_t value)
{
	if (k->warden.fd >= 0 && note_send(k->warden.fd, kind, value, NULL, 0) < 0)
		keeper_stop(k, KEEPER_FAILED);
}

void client_check(struct client *c, int r)
{
	if (r < 0 && r != -ESTALE)
		c->gone = true;
}

static void on_idle(struct loop_timer *t)
{
	keeper_stop(t->arg, KEEPER_IDLE);
}

/* A sandbox with running commands is not idle, even without a client. */
void idle_arm(struct keeper *k)
{
	uint64_t ms = k->spec->limits.idle;

	if (ms == 0 || ms >= UINT64_MAX / NSEC_PER_MSEC / 2 || k->clients.n > 0 || k->relays.list ||
	    k->life.paused || k->save.active || k->ended)
		return;
	k->idle.cb = on_idle;
	k->idle.arg = k;
	if (loop_set_timer(k->loop, &k->idle, clock_mono() + ms * NSEC_PER_MSEC) < 0)
		keeper_stop(k, KEEPER_FAILED);
}
