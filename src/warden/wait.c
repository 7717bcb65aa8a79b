/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for a reason to end the sandbox: its deadline or ttl, a signal, the end of PID 1 or of
 * the keeper. Works without any client. */
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "warden/warden.h"

enum {
	KEEPER_S = 3, /* for the keeper to end after PID 1, or after a note that it did not take */
	ASK_S = 5,    /* for the keeper to ask for a snapshot */
	DISK_S = 5,   /* between looks at the disk */
};

struct waiting {
	struct warden *w;
	struct loop *loop;
	struct loop_fd init, keeper, note;
	struct loop_fd copied; /* a child copies the VM's memory for a snapshot */
	struct loop_signal term, interrupt, child;
	struct loop_fd changes; /* the store of secrets has changed */
	struct loop_fd token;	/* hutch-token says something or ends */
	struct loop_timer due, sync, late, disk, refresh;
};

static void on_signal(struct loop_signal *src, int signo)
{
	(void)signo;
	loop_stop(((struct waiting *)src->arg)->loop, END_KILLED);
}

/* Syncs all audit records of the last second together. */
static void on_sync(struct loop_timer *src)
{
	witness_sync(((struct waiting *)src->arg)->w);
}

/* Once noted, it stays so. */
static void on_disk(struct loop_timer *src)
{
	struct waiting *s = src->arg;

	if (!disk_watch_look(s->w))
		(void)loop_set_timer(s->loop, src, clock_mono() + DISK_S * NSEC_PER_SEC);
}

static int arm(struct waiting *s)
{
	const uint64_t due = lifetime_due(&s->w->life);

	loop_del_timer(&s->due);
	return due == UINT64_MAX ? 0 : loop_set_timer(s->loop, &s->due, due);
}

static enum end_reason reason_of(const siginfo_t *info)
{
	if (info->si_code != CLD_EXITED)
		return END_KEEPER;
	switch (info->si_status) {
	case KEEPER_ONCE:
		return END_CLIENT;
	case KEEPER_IDLE:
		return END_IDLE;
	case KEEPER_GUEST_GONE:
		return END_GUEST;
	case KEEPER_GUEST_BROKE:
		return END_PROTOCOL;
	default:
		return END_KEEPER;
	}
}

/* Waits for the keeper's end, whose exit status has the reason; `otherwise`: it does not end. */
static enum end_reason reason_of_keeper(struct warden *w, enum end_reason otherwise)
{
	siginfo_t info = { 0 };
	int r = proc_wait(&w->keeper, clock_mono() + KEEPER_S * NSEC_PER_SEC, &info);

	return r == 0 ? reason_of(&info) : otherwise;
}

static void on_due(struct loop_timer *src)
{
	struct waiting *s = src->arg;

	/* A snapshot is being made: try again in a second. */
	if (s->w->saving.active && clock_mono() < MIN(s->w->life.ttl, s->w->saving.until)) {
		(void)loop_set_timer(s->loop, src, clock_mono() + NSEC_PER_SEC);
		return;
	}
	/* A VM is suspended to disk, where it needs no memory and survives a restart of the
	 * host: the keeper now asks for a snapshot. */
	if (lifetime_pauses(&s->w->life) && warden_suspend(s->w)) {
		(void)loop_set_timer(s->loop, src, clock_mono() + ASK_S * NSEC_PER_SEC);
		return;
	}
	if (lifetime_over(s->w))
		loop_stop(s->loop, END_TTL);
	else if (note_send(s->w->note, NOTE_PAUSED, 0, NULL, 0) < 0) /* idle at the same moment */
		loop_stop(s->loop, (int)reason_of_keeper(s->w, END_KEEPER));
}

/*
 * The warden is a subreaper: it inherits orphaned helpers of the runtime, and processes of the
 * sandbox that PID 1 does not adopt. PID 1 and the keeper are reaped through their pidfds, not
 * here.
 */
static void reap_others(const struct warden *w)
{
	for (;;) {
		siginfo_t info = { 0 };

		if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0 ||
		    info.si_pid == w->box.init.pid || info.si_pid == w->keeper.pid)
			return;
		(void)waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
	}
}

static void on_child(struct loop_signal *src, int signo)
{
	(void)signo;
	reap_others(((struct waiting *)src->arg)->w);
}

/* ---- notes; note.c says which are allowed ---- */

static bool on_life(struct waiting *s, uint64_t value)
{
	struct life_answer answer;
	struct life_order order;

	if (!life_order_unpack(value, &order))
		return false;
	answer = lifetime_order(s->w, &order);
	return note_send(s->w->note, NOTE_LIFE_NOW, life_answer_pack(&answer), NULL, 0) == 0 &&
	       arm(s) == 0;
}

static void end_save(struct waiting *s, bool failed)
{
	loop_del_fd(&s->copied);
	loop_del_timer(&s->late);
	if (warden_saved(s->w, failed))
		loop_stop(s->loop, END_SUSPENDED);
}

static void on_copied(struct loop_fd *src, uint32_t events)
{
	(void)events;
	end_save(src->arg, false);
}

static void on_late(struct loop_timer *src)
{
	log_error("the VM was not saved in time");
	end_save(src->arg, true);
}

/* The VM has stopped and written its state. Its process may be in wrong hands and make the copy
 * slow, so the loop continues meanwhile. */
static bool on_state_saved(struct waiting *s, bool failed)
{
	struct saving *save = &s->w->saving;

	if (s->copied.loop)
		return false; /* a second time */
	if (failed || loop_add_fd(s->loop, &s->copied, save->ram.result, EPOLLIN) < 0)
		end_save(s, true);
	else
		ram_save_go(&save->ram);
	return true;
}

/* ---- hutch-tap and its tokens ---- */

/* Answers NOTE_WANT_TAP, perhaps later. */
static void start_tap(struct waiting *s)
{
	s->w->tokens.wanted = tokens_must_wait(s->w);
	if (!s->w->tokens.wanted)
		tapping_start(s->w);
}

/* Refreshes the next token, or waits for its time. */
static void next_token(struct waiting *s)
{
	uint64_t next;

	while (s->w->tokens.from < 0) {
		if (s->w->tokens.wanted)
			start_tap(s);
		next = tokens_next(s->w);
		loop_del_timer(&s->refresh);
		if (next > clock_mono()) {
			if (next < UINT64_MAX)
				(void)loop_set_timer(s->loop, &s->refresh, next);
			return;
		}
		if (tokens_start(s->w) &&
		    loop_add_fd(s->loop, &s->token, s->w->tokens.from, EPOLLIN) < 0)
			return;
	}
}

static void on_token(struct loop_fd *src, uint32_t events)
{
	struct waiting *s = src->arg;

	(void)events;
	if (!tokens_read(s->w))
		return;
	loop_del_fd(src);
	tokens_close(s->w);
	next_token(s);
}

static void on_refresh(struct loop_timer *src)
{
	next_token(src->arg);
}

/* False if the note is invalid. */
static bool handle(struct waiting *s, enum note_kind kind, uint64_t value)
{
	struct warden *w = s->w;

	switch (kind) {
	case NOTE_WANT_RECORDS:
		warden_give_records(w, value);
		return true;
	case NOTE_DROP_RECORD:
		warden_drop_record(w, value);
		return true;
	case NOTE_WANT_AUDIT:
		witness_next_file(w, value);
		return true;
	case NOTE_DIRTY:
		(void)loop_set_timer(s->loop, &s->sync,
				     clock_mono() + AUDIT_SYNC_MS * NSEC_PER_MSEC);
		return true;
	case NOTE_WANT_SAVE:
		warden_save_begin(w, (enum wire_save)value);
		return !w->saving.active || loop_set_timer(s->loop, &s->late, w->saving.until) == 0;
	case NOTE_SAVED:
		return on_state_saved(s, value);
	case NOTE_LIFE:
		return on_life(s, value);
	case NOTE_MET:
		lifetime_met(w, value);
		return true;
	case NOTE_STOPPED:
		lifetime_stopped(w, (enum life_stop)value);
		return true;
	case NOTE_WANT_TAP:
		start_tap(s);
		next_token(s);
		return true;
	case NOTE_WANT_FILTER:
		warden_filter_start(w);
		return true;
	case NOTE_SECRET_USED:
		tapping_used(w, value);
		return true;
	case NOTE_WANT_TRACE:
		warden_trace(w, value);
		return true;
	default:
		return false;
	}
}

static void on_changes(struct loop_fd *src, uint32_t events)
{
	struct waiting *s = src->arg;

	(void)events;
	if (tapping_changed(s->w))
		warden_filter_refill(s->w);
	next_token(s);
}

/* An invalid note ends the sandbox. on_keeper() handles a keeper that has ended. */
static void on_note(struct loop_fd *src, uint32_t events)
{
	struct waiting *s = src->arg;
	enum note_phase phase = s->w->saving.active ? PHASE_SAVING : PHASE_SERVING;
	int files[NOTE_FILES_MAX]; /* stays empty: the table allows the keeper no files */
	struct keeper_note note;
	size_t n = 0;
	int r = note_take(src->fd, NOTE_BY_KEEPER, phase, &note, files, &n);

	(void)events;
	if (r == -EBADMSG || (r == 0 && !handle(s, (enum note_kind)note.kind, note.value)))
		loop_stop(s->loop, END_KEEPER);
	else if (r < 0 && r != -EAGAIN)
		loop_del_fd(src); /* the keeper has ended, perhaps with a note unread */
}

/* ---- the end of PID 1 or the keeper ---- */

static void on_keeper(struct loop_fd *src, uint32_t events)
{
	struct waiting *s = src->arg;
	siginfo_t info = { 0 };

	(void)events;
	(void)proc_wait(&s->w->keeper, 0, &info);
	if (info.si_code != CLD_EXITED && info.si_status == SIGSYS)
		log_error("the keeper was killed: it made a system call that its filter forbids");
	loop_stop(s->loop, (int)reason_of(&info));
}

/*
 * The keeper sees the end of PID 1 too and reports it to clients; or PID 1 died because the keeper
 * ended, as the guest does when its channel closes. Either way the keeper's exit status has the
 * reason.
 */
static void on_init(struct loop_fd *src, uint32_t events)
{
	struct waiting *s = src->arg;

	(void)events;
	loop_stop(s->loop, (int)reason_of_keeper(s->w, END_GUEST));
}

static int arrange(struct waiting *s)
{
	int r;

	if ((r = loop_add_signal(s->loop, &s->term, SIGTERM)) < 0 ||
	    (r = loop_add_signal(s->loop, &s->interrupt, SIGINT)) < 0 ||
	    (r = loop_add_signal(s->loop, &s->child, SIGCHLD)) < 0 ||
	    (r = loop_add_fd(s->loop, &s->init, s->w->box.init.pidfd, EPOLLIN)) < 0 ||
	    (r = loop_add_fd(s->loop, &s->keeper, s->w->keeper.pidfd, EPOLLIN)) < 0 ||
	    (r = loop_add_fd(s->loop, &s->note, s->w->note, EPOLLIN)) < 0)
		return r;
	if (s->w->tap.changes >= 0 &&
	    (r = loop_add_fd(s->loop, &s->changes, s->w->tap.changes, EPOLLIN)) < 0)
		return r;
	if (disk_watch_begin(s->w) &&
	    (r = loop_set_timer(s->loop, &s->disk, clock_mono() + DISK_S * NSEC_PER_SEC)) < 0)
		return r;
	return arm(s);
}

enum end_reason warden_wait(struct warden *w)
{
	_cleanup_loop_ struct loop *loop = NULL;
	struct waiting s = {
		.w = w,
		.init = { .cb = on_init, .arg = &s },
		.keeper = { .cb = on_keeper, .arg = &s },
		.note = { .cb = on_note, .arg = &s },
		.term = { .cb = on_signal, .arg = &s },
		.interrupt = { .cb = on_signal, .arg = &s },
		.child = { .cb = on_child, .arg = &s },
		.copied = { .cb = on_copied, .arg = &s },
		.changes = { .cb = on_changes, .arg = &s },
		.token = { .cb = on_token, .arg = &s },
		.refresh = { .cb = on_refresh, .arg = &s },
		.due = { .cb = on_due, .arg = &s },
		.late = { .cb = on_late, .arg = &s },
		.sync = { .cb = on_sync, .arg = &s },
		.disk = { .cb = on_disk, .arg = &s },
	};
	int r = loop_new(&loop);

	s.loop = w->tap.loop = loop;
	if (r == 0)
		r = arrange(&s);
	if (r == 0) {
		reap_others(w); /* children that ended before the loop ran */
		memory_settle();
		r = loop_run(loop);
	}
	loop_del_fd(&w->tap.src);
	w->tap.loop = NULL;
	if (r < 0) {
		log_error("cannot wait for the sandbox: %s", strerror(-r));
		return END_KEEPER;
	}
	return (enum end_reason)r;
}
