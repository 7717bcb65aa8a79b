/* SPDX-License-Identifier: Apache-2.0 */
/* Ends a sandbox. The warden kills PID 1 first, and all processes inside die with it. The keeper
 * then has a moment to deliver its last output. The mounts go with the warden's mount namespace. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/scratch.h"
#include "state/kept.h"
#include "warden/warden.h"

enum {
	FLUSH_S = 2,
	KILL_S = 10,
};

static uint64_t in_seconds(unsigned int s)
{
	return clock_mono() + s * NSEC_PER_SEC;
}

static void kill_init(struct warden *w)
{
	siginfo_t info;

	if (w->box.init.pid <= 0)
		return;
	(void)proc_signal(&w->box.init, SIGKILL);
	/* A frozen process on cgroup v1 dies only when it is thawed. */
	if (w->life.paused)
		(void)w->engine->resume(&w->group, in_seconds(KILL_S));
	(void)FAULT("end-thawed");
	if (proc_wait(&w->box.init, in_seconds(KILL_S), &info) < 0)
		log_error("PID 1 of the sandbox does not die");
}

static bool on_met(void *arg, uint64_t value, const int *files, size_t n)
{
	struct warden *w = arg;

	return met_unpack(value, &w->met);
}

/* Reads the last limits that a VM's hutch-guest reported; all other notes are ignored. */
static void last_notes(struct warden *w)
{
	static note_handler *const ending[NOTE_KINDS] = { [NOTE_MET] = on_met };
	int r = w->note >= 0 ? 0 : -EPIPE;

	while (r == 0 || r == -EBADMSG)
		r = note_dispatch(w->note, NOTE_BY_KEEPER, PHASE_ENDING, ending, w);
	w->note = fd_close(w->note);
}

static void end_keeper(struct warden *w)
{
	siginfo_t info;

	if (w->note >= 0)
		(void)shutdown(w->note, SHUT_WR); /* it may send a last note first */
	if (w->keeper.pid > 0 && proc_wait(&w->keeper, in_seconds(FLUSH_S), &info) < 0)
		(void)proc_signal(&w->keeper, SIGKILL);
	proc_done(&w->keeper);
	last_notes(w);
}

static bool has_scratch(const struct warden *w)
{
	return w->box.disk > 0 && engine_has(w->engine, ENGINE_SCRATCH);
}

static void measure(struct warden *w, struct end *end)
{
	struct cgroup_usage u = { 0 };
	struct statfs fs;

	cgroup_usage(&w->group, &u);
	end->oom_kills = u.oom_kills;
	end->pids_refused = u.pids_refused;
	end->throttled = u.throttled;
	end->memory_peak = u.memory_peak;
	end->cpu_us = u.cpu_us;
	end_add_met(end, &w->met);
	/* Only a VM's own kernel knows how full its disk is: hutch-guest reports it. */
	if (has_scratch(w) && statfs(SCRATCH_ROOT, &fs) == 0) {
		end->disk_full = scratch_is_full((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize);
		end->inodes_full = fs.f_ffree == 0;
	}
	(void)disk_watch_look(w);
	end->disk_lost = w->disk_watch.lost;
}

/*
 * A sandbox with --rm leaves no files. But if the sandbox ended unexpectedly, a running `hutch run`
 * still reads why, then removes the directory itself, or the next sweep does. An incomplete audit
 * log keeps the directory too. Other sandboxes' directories move to ended/.
 */
static void write_down(struct warden *w, const struct end *end, bool sealed)
{
	bool told = !w->spec.once || end->reason == END_CLIENT, written;
	struct err e = ERR_INIT;

	if (w->spec.remove && !told && state_write(w->dir, STATE_REMOVE, "", 0, &e) < 0)
		log_error("%s", e.msg);
	written = end_write(w->dir, end, &e) == 0;
	if (!written)
		log_error("%s", e.msg);
	(void)FAULT("end-written");
	if (w->spec.remove && told && sealed)
		(void)state_remove(&w->root, w->spec.id);
	(void)FAULT("end-removed");
	/* Until the end is recorded, the directory stays where a sweep looks. */
	if (!w->spec.remove && sealed && written && kept_move(&w->root, w->spec.id, w->dir, &e) < 0)
		log_error("%s", e.msg);
}

void warden_end(struct warden *w, enum end_reason reason, bool started)
{
	struct end end = { .reason = reason };
	char group[STATE_GROUP_MAX];
	struct err e = ERR_INIT;
	bool sealed;

	TRACE(TRACE_STATE, "the sandbox ends: %s",
	      started ? end_reason_names[reason] : "not started");
	(void)FAULT("end-begin");
	warden_save_drop(w);
	kill_init(w);
	(void)FAULT("end-init");
	end_keeper(w);
	tokens_end(w);
	warden_filter_end(w);
	tapping_end(w);
	budgets_end(w);
	(void)FAULT("end-keeper");
	end.time = clock_wall();
	end_read_killer(w->dir, &end);
	measure(w, &end);
	if (has_scratch(w))
		scratch_disk_drop();
	cgroup_close(&w->group);
	dial_guard_close(&w->guard);
	if (w->root.dir >= 0 && cgroup_remove(state_group(&w->root, w->spec.id, group), &e) < 0)
		log_error("%s", e.msg);
	(void)FAULT("end-groups");
	sealed = witness_end(w, &end, started);
	(void)FAULT("end-sealed");
	if (started && reason != END_SUSPENDED)
		write_down(w, &end, sealed);
	else if (started && sealed) /* a missing socket means: nothing is left to clean up */
		(void)unlinkat(w->dir, "sock", 0);
	spec_done(&w->spec);
	state_root_close(&w->root);
}
