/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forwards a VM's reached limits to the warden, which writes them down. The VM's own kernel counts
 * them and hutch-guest reports them, so no decision depends on them. Numbers are capped to what a
 * note holds, and the keeper sends at most one note each MET_MS.
 */
#include "base/clock.h"
#include "engine/engine.h"
#include "keeper/serve.h"

enum {
	MET_MS = 100,
};

static void tell(struct keeper *k)
{
	k->met.changed = false;
	keeper_tell(k, NOTE_MET, met_pack(&k->met.now));
}

static void tell_and_wait(struct keeper *k);

static void on_again(struct loop_timer *t)
{
	struct keeper *k = t->arg;

	k->met.waiting = false;
	if (k->met.changed)
		tell_and_wait(k);
}

static void tell_and_wait(struct keeper *k)
{
	tell(k);
	k->met.again.cb = on_again;
	k->met.again.arg = k;
	k->met.waiting = true;
	keeper_check(k,
		     loop_set_timer(k->loop, &k->met.again, clock_mono() + MET_MS * NSEC_PER_MSEC));
}

static void take(struct met *m, uint64_t limit, uint64_t size)
{
	if (limit == WIRE_LIMIT_MEMORY)
		m->oom_kills = size;
	else if (limit == WIRE_LIMIT_PIDS)
		m->pids_refused = size;
	else if (limit == WIRE_LIMIT_DISK)
		m->disk_full = size > 0;
	else
		m->inodes_full = size > 0;
}

bool met_said(struct keeper *k, const struct fields *f)
{
	/* For a container the host's kernel counts. */
	if (!engine_has(k->engine, ENGINE_OWN_KERNEL))
		return false;
	take(&k->met.now, fields_number(f, TAG_LIMIT, 0), fields_number(f, TAG_SIZE, 0));
	k->met.changed = true;
	if (!k->met.waiting)
		tell_and_wait(k);
	return true;
}

void met_done(struct keeper *k)
{
	loop_del_timer(&k->met.again);
	if (k->met.changed)
		tell(k);
}
