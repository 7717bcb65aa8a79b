/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets the clock of a VM. HELLO carries the time, but the guest reads it only after booting or
 * resuming, tenths of a second or seconds later. So the keeper sends the time again once the guest
 * answers, before clients can reach it. The guest's clock is then late by less than the time until
 * its PONG. On a busy host that may be long; the keeper then tries again.
 */
#include <sodium.h>
#include <sys/random.h>

#include "base/clock.h"
#include "keeper/serve.h"

enum {
	CLOCK_AGE_S = 5,    /* maximum age of the time sent, when serving begins */
	CLOCK_LATE_MS = 20, /* a later PONG means another try */
	CLOCK_TRIES = 16,   /* enough if every third one is late */
};

void guest_clock_put(struct buf *b)
{
	uint8_t seed[WIRE_SEED];

	if (getrandom(seed, sizeof(seed), 0) != (ssize_t)sizeof(seed)) {
		b->err = -EIO;
		return;
	}
	fields_put_bytes(b, TAG_SEED, seed, sizeof(seed));
	fields_put_number(b, TAG_TIME, clock_wall());
	sodium_memzero(seed, sizeof(seed));
}

static void tell_time(struct keeper *k)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);

	guest_clock_put(&b);
	k->clock.ping_sent = k->clock.last_sent = clock_mono();
	k->clock.times_sent++;
	keeper_check(k, b.err ? b.err : link_wake(k->guest.link, &b));
	keeper_check(k, link_ping(k->guest.link, k->clock.ping_sent));
}

void keeper_wake(struct keeper *k)
{
	k->clock.times_sent = 0;
	tell_time(k);
}

/* A spare may have waited for days, and its clock drifts with its processor's. */
void keeper_wake_if_old(struct keeper *k)
{
	if (engine_has(k->engine, ENGINE_OWN_KERNEL) &&
	    clock_mono() - k->clock.last_sent > CLOCK_AGE_S * NSEC_PER_SEC)
		keeper_wake(k);
}

bool guest_clock_heard(struct keeper *k, uint64_t token)
{
	if (k->clock.ping_sent == 0 || token != k->clock.ping_sent || k->save.begun)
		return false;
	if (clock_mono() - k->clock.ping_sent > CLOCK_LATE_MS * NSEC_PER_MSEC &&
	    k->clock.times_sent < CLOCK_TRIES) {
		tell_time(k);
		return false;
	}
	k->clock.ping_sent = 0;
	return true;
}
