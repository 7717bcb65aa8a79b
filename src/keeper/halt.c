/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A VM stops when its disk cannot be written because the host's disk is full. The keeper records
 * this, reports it to the warden, which writes it down for other processes, and refuses operations
 * that need the guest. Every TRY_MS it orders the VM to continue. The VM then repeats the failed
 * write and stops again at once if there is still no room, so a VM that runs for TRY_MS has
 * continued.
 *
 * Time limits of commands are not stopped: a client must not wait without end for a host without
 * room.
 *
 * A guest that has broken into its VM monitor can report any number of stops. They cost one order
 * for each TRY_MS, and one pair of records for each two.
 */
#include "base/clock.h"
#include "base/log.h"
#include "keeper/serve.h"

enum {
	TRY_MS = 1000,
};

bool halted(const struct keeper *k)
{
	return k->halt.state != HALT_NONE;
}

static void record(struct keeper *k, const char *op, const char *state, uint64_t ms)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_text(&p, "op", op);
	audit_put_text(&p, "state", state);
	audit_put_text(&p, "reason", life_stop_names[k->halt.why]);
	if (ms > 0)
		audit_put_number(&p, "stopped_ms", ms);
	journal_outcome(k, AUDIT_LIFE_END, &p);
}

static void arm(struct keeper *k)
{
	keeper_check(k,
		     loop_set_timer(k->loop, &k->halt.tick, clock_mono() + TRY_MS * NSEC_PER_MSEC));
}

static void on_again(void *arg)
{
	arm(arg);
}

/* A paused VM is frozen and cannot answer. A snapshot continues the VM at its end. */
static void try_again(struct keeper *k)
{
	if (k->life.paused || k->save.stopped ||
	    !k->engine->monitor->again(k->vm.monitor, on_again))
		arm(k);
	else
		k->halt.state = HALT_TRYING;
}

static void continued(struct keeper *k)
{
	const uint64_t ms = (clock_mono() - k->halt.since) / NSEC_PER_MSEC;

	log_info("the VM continues after %llu ms", (unsigned long long)ms);
	k->halt.state = HALT_NONE;
	record(k, "continue", "running", ms);
	keeper_tell(k, NOTE_STOPPED, LIFE_RUNS);
	if (!k->save.begun)
		keeper_wake(k); /* its clock stood still */
}

static void on_tick(struct loop_timer *t)
{
	struct keeper *k = t->arg;

	if (k->halt.state == HALT_TRYING)
		continued(k);
	else
		try_again(k);
}

void halt_stopped(struct keeper *k, enum vm_stop why)
{
	const bool again = halted(k);

	if (k->phase != PHASE_SERVING) {
		log_error(
			"the VM has stopped during its start: %s",
			life_stop_texts[why == VM_STOP_DISK_FULL ? LIFE_DISK_FULL : LIFE_STOPPED]);
		keeper_stop(k, why == VM_STOP_DISK_FULL ? KEEPER_DISK_FULL : KEEPER_FAILED);
		return;
	}
	k->halt.state = HALT_STOPPED;
	if (again)
		return;
	k->halt.why = why == VM_STOP_DISK_FULL ? LIFE_DISK_FULL : LIFE_STOPPED;
	k->halt.since = clock_mono();
	k->halt.tick = (struct loop_timer){ .cb = on_tick, .arg = k };
	log_error("the VM has stopped: %s", life_stop_texts[k->halt.why]);
	record(k, "stop", "stopped", 0);
	keeper_tell(k, NOTE_STOPPED, k->halt.why);
	arm(k);
}

void halt_done(struct keeper *k)
{
	loop_del_timer(&k->halt.tick);
}

void halt_refuse(struct client *c, uint32_t ch)
{
	char text[WIRE_TEXT_MAX + 1];

	(void)snprintf(text, sizeof(text),
		       "the sandbox has stopped: %s; it continues when this is fixed",
		       life_stop_texts[c->keeper->halt.why]);
	client_check(c, link_close(c->port.link, ch, WIRE_UNSUPPORTED, text));
}
