/* SPDX-License-Identifier: Apache-2.0 */
/* What the warden tells the keeper. */
#include "take-note.h"
#include "greet.h"
#include "serve.h"

static void on_running(void *arg)
{
	struct keeper *k = arg;

	keeper_check(k, greet_guest(k));
}

static bool take_note(struct keeper *k, const struct keeper_note *note, const int *files, size_t n)
{
	if (note->kind == NOTE_GO && n <= 1 && note->value <= 1 && k->phase == PHASE_WAITING) {
		k->clients.once = note->value;
		keeper_wake_if_old(k);
		greet_clients(k, n > 0 ? files[0] : -EBADF);
		egress_record_restored(k);
		adopt_all(k);
		tracing_served(k);
		return true;
	}
	if (note->kind == NOTE_TRACE && k->phase == PHASE_SERVING)
		return tracing_warden(k, files, n);
	if (note->kind == NOTE_RUN && n == 0 && k->phase == PHASE_HELLO && k->vm.monitor)
		return k->engine->monitor->run(k->vm.monitor, (enum vm_start)note->value,
					       on_running);
	if (note->kind == NOTE_RECORDS && k->phase == PHASE_SERVING &&
	    records_came(k, note->value, files, n)) {
		relays_recordable(k, 0);
		return true;
	}
	if (note->kind == NOTE_NO_RECORDS && n == 0 && k->phase == PHASE_SERVING) {
		records_refused(k, note->value);
		relays_recordable(k, note->value);
		return true;
	}
	if (note->kind == NOTE_ADOPT && n == 1 && k->phase == PHASE_WAITING && k->vm.adopt < 0) {
		k->vm.adopt = files[0];
		return true;
	}
	if (note->kind == NOTE_RULES && n == 1 && k->phase == PHASE_HELLO) {
		if (!egress_restore(k, files[0]))
			keeper_stop(k, KEEPER_FAILED);
		(void)fd_close(files[0]);
		return true;
	}
	if (note->kind == NOTE_EGRESS && k->phase == PHASE_WAITING)
		return egress_start(k, note->value, files, n);
	if (note->kind == NOTE_LIFE_NOW && n == 0 && k->phase == PHASE_SERVING)
		return life_answered(k, note->value);
	if (note->kind == NOTE_PAUSED && n == 0 && k->phase == PHASE_SERVING) {
		life_paused(k);
		return true;
	}
	if (note->kind == NOTE_SUSPEND && n == 0 && k->phase == PHASE_SERVING) {
		save_at_deadline(k);
		return true;
	}
	if (note->kind == NOTE_SAVE)
		return save_begin(k, files, n);
	if (note->kind == NOTE_SAVE_END && n == 0)
		return save_finished(k, note->value);
	if (note->kind == NOTE_AUDIT && k->phase == PHASE_SERVING)
		return journal_file(k, note->value, files, n);
	return false;
}

/* What it says at a wrong time is its end, or as good as that. */
void keeper_take_note(struct loop_fd *src, uint32_t events)
{
	struct keeper *k = src->arg;
	int files[NOTE_FILES_MAX], r;
	struct keeper_note note;
	size_t n = 0;

	r = note_receive(src->fd, &note, files, &n);
	if (r == -EAGAIN || (r == 0 && take_note(k, &note, files, n)))
		return;
	while (n > 0)
		(void)fd_close(files[--n]);
	keeper_stop(k, KEEPER_FAILED);
}
