/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers for the warden's notes, one for each kind. note.c says which may come when. */
#include "keeper/take-note.h"
#include "keeper/filtering.h"
#include "keeper/greet.h"
#include "keeper/serve.h"

static bool on_go(void *arg, uint64_t once, const int *files, size_t n)
{
	struct keeper *k = arg;

	k->clients.once = once;
	filtering_begin(k);
	keeper_wake_if_old(k);
	greet_clients(k, n > 0 ? files[0] : -EBADF);
	egress_record_restored(k);
	adopt_all(k);
	tracing_served(k);
	return true;
}

static void on_running(void *arg)
{
	struct keeper *k = arg;

	keeper_check(k, greet_guest(k));
}

static bool on_run(void *arg, uint64_t how, const int *files, size_t n)
{
	struct keeper *k = arg;

	return k->vm.monitor &&
	       k->engine->monitor->run(k->vm.monitor, (enum vm_start)how, on_running);
}

static bool on_rules(void *arg, uint64_t value, const int *files, size_t n)
{
	struct keeper *k = arg;

	if (!egress_restore(k, files[0]))
		keeper_stop(k, KEEPER_FAILED);
	(void)fd_close(files[0]);
	return true;
}

static bool on_adopt(void *arg, uint64_t value, const int *files, size_t n)
{
	struct keeper *k = arg;

	if (k->vm.adopt >= 0)
		return false;
	k->vm.adopt = files[0];
	return true;
}

static bool on_egress(void *arg, uint64_t which, const int *files, size_t n)
{
	return egress_start(arg, which, files, n);
}

static bool on_records(void *arg, uint64_t first, const int *files, size_t n)
{
	if (!records_came(arg, first, files, n))
		return false;
	relays_recordable(arg, 0);
	return true;
}

static bool on_no_records(void *arg, uint64_t error, const int *files, size_t n)
{
	records_refused(arg, error);
	relays_recordable(arg, error);
	return true;
}

static bool on_audit(void *arg, uint64_t number, const int *files, size_t n)
{
	return journal_file(arg, number, files, n);
}

static bool on_life_now(void *arg, uint64_t answer, const int *files, size_t n)
{
	return life_answered(arg, answer);
}

static bool on_paused(void *arg, uint64_t value, const int *files, size_t n)
{
	life_paused(arg);
	return true;
}

static bool on_suspend(void *arg, uint64_t value, const int *files, size_t n)
{
	save_at_deadline(arg);
	return true;
}

static bool on_save(void *arg, uint64_t value, const int *files, size_t n)
{
	return save_begin(arg, files, n);
}

static bool on_save_end(void *arg, uint64_t number, const int *files, size_t n)
{
	save_finished(arg, number);
	return true;
}

static bool on_trace(void *arg, uint64_t value, const int *files, size_t n)
{
	return tracing_warden(arg, files[0]);
}

static bool on_tap(void *arg, uint64_t error, const int *files, size_t n)
{
	return tap_came(arg, error, files, n);
}

static bool on_filter(void *arg, uint64_t error, const int *files, size_t n)
{
	return filtering_came(arg, error, files, n);
}

note_handler *const keeper_notes[NOTE_KINDS] = {
	[NOTE_RUN] = on_run,	       [NOTE_GO] = on_go,
	[NOTE_RECORDS] = on_records,   [NOTE_NO_RECORDS] = on_no_records,
	[NOTE_EGRESS] = on_egress,     [NOTE_AUDIT] = on_audit,
	[NOTE_LIFE_NOW] = on_life_now, [NOTE_SAVE] = on_save,
	[NOTE_SAVE_END] = on_save_end, [NOTE_PAUSED] = on_paused,
	[NOTE_SUSPEND] = on_suspend,   [NOTE_RULES] = on_rules,
	[NOTE_ADOPT] = on_adopt,       [NOTE_TRACE] = on_trace,
	[NOTE_TAP] = on_tap,	       [NOTE_FILTER] = on_filter,
};

static enum note_phase phase_of(const struct keeper *k)
{
	if (!k->save.active)
		return k->phase;
	return k->save.begun ? PHASE_SAVING : PHASE_SAVE_ASKED;
}

void keeper_take_note(struct loop_fd *src, uint32_t events)
{
	struct keeper *k = src->arg;
	int r = note_dispatch(src->fd, NOTE_BY_WARDEN, phase_of(k), keeper_notes, k);

	(void)events;
	if (r < 0 && r != -EAGAIN)
		keeper_stop(k, KEEPER_FAILED);
}
