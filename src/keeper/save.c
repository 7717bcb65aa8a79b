/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a snapshot of a running VM for a client or for its deadline. The warden creates the
 * directory and copies the disk; in between, the guest sleeps and the hypervisor writes the VM's
 * memory:
 *
 *	client: save -> warden: files -> guest: asleep -> VM: stopped, state written
 *	-> warden: disk copied, all synced -> VM: resumed, guest woken -> client: the name
 *
 * One snapshot at a time. If a step fails, the VM wakes up and continues as before; but a guest
 * that does not fall asleep is at fault, and its sandbox ends. A VM that is suspended does not
 * continue: the warden ends it when its snapshot is complete.
 */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "keeper/serve.h"

enum {
	ASLEEP_MS = 20 * 1000,
	WAITS_MAX = 29, /* ten minutes */
};

/* ---- reporting the result ---- */

static const char *operation(enum wire_save what_for)
{
	return what_for == WIRE_SAVE_SUSPEND ? "suspend" : "snapshot";
}

static void record_end(struct keeper *k, const char *result)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_number(&p, "n", k->save.number);
	audit_put_text(&p, "op", operation(k->save.what_for));
	if (k->save.name[0])
		audit_put_text(&p, "snapshot", k->save.name);
	if (result)
		audit_put_text(&p, "result", result);
	journal_outcome(k, AUDIT_LIFE_END, &p);
}

static void tell(struct keeper *k, const char *failure)
{
	_cleanup_buf_ struct buf b = BUF_INIT(128);
	struct save s = k->save;
	struct link *l = s.client ? s.client->port.link : NULL;

	record_end(k, failure);
	k->save = (struct save){ .orders = s.orders };
	idle_arm(k);
	if (!l)
		return;
	fields_put_text(&b, TAG_NAME, s.name);
	if (!failure)
		client_check(s.client, b.err ? b.err : link_accept(l, s.ch, &b));
	client_check(s.client, link_close(l, s.ch, failure ? WIRE_IO : WIRE_DONE, failure));
}

static void on_resumed(void *arg)
{
	struct keeper *k = arg;

	keeper_wake(k);
	tell(k, k->save.failed ? "no snapshot was made: the sandbox's log says why" : NULL);
}

/* A suspend that fails at the sandbox's deadline has no client, and the warden freezes the VM,
 * which then answers after its resume: no time limit. A client must not wait for a VM that does not
 * answer. */
static void resume_vm(struct keeper *k)
{
	const struct monitor_ops *m = k->engine->monitor;
	const bool begun = k->save.client ? m->run(k->vm.monitor, VM_BOOT, on_resumed)
					  : m->again(k->vm.monitor, on_resumed);

	if (!begun)
		keeper_stop(k, KEEPER_FAILED);
}

/* ---- making the snapshot ---- */

static void on_saved(void *arg, bool saved)
{
	struct keeper *k = arg;

	k->save.failed |= !saved;
	k->save.leaving = !k->save.failed && k->save.what_for == WIRE_SAVE_SUSPEND;
	if (note_send(k->warden.fd, NOTE_SAVED, k->save.failed, NULL, 0) < 0)
		keeper_stop(k, KEEPER_FAILED);
}

static void abort_save(struct keeper *k, const char *why)
{
	save_done(k);
	tell(k, why);
}

static void on_awake(struct loop_timer *t)
{
	struct keeper *k = t->arg;

	if (halted(k) && k->save.waits++ < WAITS_MAX) { /* it cannot */
		keeper_check(k,
			     loop_set_timer(k->loop, t, clock_mono() + ASLEEP_MS * NSEC_PER_MSEC));
		return;
	}
	log_error("the guest did not stop its programs for the snapshot");
	abort_save(k,
		   "hutch-guest did not stop the VM's programs in time: no snapshot was made, and "
		   "the sandbox was ended; start a new one, or one from an earlier snapshot");
	keeper_stop(k, KEEPER_GUEST_BROKE);
}

void save_guest_gone(struct keeper *k)
{
	if (k->save.active)
		abort_save(k, "the sandbox has ended, and no snapshot was made; 'hutch ps -a' says "
			      "how it ended");
}

void save_asleep(struct keeper *k)
{
	(void)FAULT("save-asleep");
	loop_del_timer(&k->save.timer);
	if (adopt_write(k, k->save.list) < 0) {
		log_error("cannot save the list of running commands");
		k->save.failed = true;
	}
	if (k->save.rules >= 0 && egress_save(k, k->save.rules) < 0) {
		log_error("cannot save the egress rules");
		k->save.failed = true;
	}
	k->save.list = fd_close(k->save.list);
	k->save.rules = fd_close(k->save.rules);
	if (halted(k)) {
		k->save.file = fd_close(k->save.file);
		on_saved(k, false);
		return;
	}
	k->save.stopped = true;
	if (!k->engine->monitor->save(k->vm.monitor, TAKE_FD(k->save.file), on_saved))
		keeper_stop(k, KEEPER_FAILED);
}

bool save_begin(struct keeper *k, const int *files, size_t n)
{
	if (n == 0) {
		tell(k, "no snapshot can be made: the sandbox's log says why");
		return true;
	}
	if (n < 2)
		return false;
	k->save.begun = true;
	k->save.file = files[0];
	k->save.list = files[1];
	k->save.rules = n == 3 ? files[2] : -EBADF;
	k->save.timer = (struct loop_timer){ .cb = on_awake, .arg = k };
	keeper_check(k, link_sleep(k->guest.link));
	keeper_check(k, loop_set_timer(k->loop, &k->save.timer,
				       clock_mono() + ASLEEP_MS * NSEC_PER_MSEC));
	return true;
}

void save_finished(struct keeper *k, uint64_t number)
{
	k->save.failed = number == 0;
	k->save.leaving &= number != 0;
	if (number != 0)
		save_name(number, k->save.name);
	if (k->save.what_for == WIRE_SAVE_SUSPEND && !k->save.failed) {
		tell(k, NULL); /* the warden ends the sandbox */
		k->save.leaving = true;
		adopt_leave(k);
	} else if (k->save.stopped) {
		resume_vm(k);
	} else {
		on_resumed(k);
	}
}

/* ---- requests ---- */

static int record_wish(struct keeper *k, uint64_t number, enum wire_save what_for, bool deadline)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_number(&p, "n", number);
	audit_put_text(&p, "op", operation(what_for));
	if (deadline)
		audit_put_text(&p, "reason", "deadline");
	return journal_append(k, AUDIT_LIFE, &p);
}

static const char *obstacle(const struct keeper *k)
{
	if (k->vm.no_snapshots[0])
		return k->vm.no_snapshots;
	if (halted(k))
		return "the sandbox has stopped; 'hutch inspect' says why";
	return k->save.active ? "a snapshot is being made" : NULL;
}

/* Asks for a snapshot; `c` is NULL for the deadline. Returns NULL, or why it is refused. */
static const char *want(struct keeper *k, enum wire_save what_for, struct client *c, uint32_t ch)
{
	const uint64_t number = k->save.orders + 1;
	const char *why = obstacle(k);

	if (!why && record_wish(k, number, what_for, !c) < 0)
		why = "the audit log cannot be written, so nothing is done";
	if (why)
		return why;
	k->save = (struct save){ .active = true,
				 .what_for = what_for,
				 .client = c,
				 .ch = ch,
				 .number = number,
				 .orders = number,
				 .file = -EBADF,
				 .list = -EBADF,
				 .rules = -EBADF };
	loop_del_timer(&k->idle); /* the sandbox must not end while it is saved */
	if (note_send(k->warden.fd, NOTE_WANT_SAVE, what_for, NULL, 0) < 0)
		keeper_stop(k, KEEPER_FAILED);
	return NULL;
}

void save_opened(struct client *c, uint32_t ch, const struct fields *f)
{
	const char *why;

	if (c->keeper->life.paused) {
		life_refuse(c, ch);
		return;
	}
	why = want(c->keeper, (enum wire_save)fields_number(f, TAG_WANT, WIRE_SAVE_KEEP), c, ch);
	if (why)
		client_check(c, link_close(c->port.link, ch, WIRE_UNSUPPORTED, why));
}

void save_at_deadline(struct keeper *k)
{
	const char *why = want(k, WIRE_SAVE_SUSPEND, NULL, 0);

	/* The warden does not wait for an answer: it pauses a sandbox that still runs after a
	 * while. */
	if (why)
		log_error("cannot suspend the sandbox at its deadline: %s", why);
}

void save_drop(const struct client *c, uint32_t ch)
{
	struct save *s = &c->keeper->save;

	if (s->active && s->client == c && (ch == 0 || s->ch == ch))
		s->client = NULL;
}

void save_done(struct keeper *k)
{
	if (!k->save.active)
		return;
	loop_del_timer(&k->save.timer);
	k->save.file = fd_close(k->save.file);
	k->save.list = fd_close(k->save.list);
	k->save.rules = fd_close(k->save.rules);
}
