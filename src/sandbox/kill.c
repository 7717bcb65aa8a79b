/* SPDX-License-Identifier: Apache-2.0 */
/* Ends sandboxes, and reclaims those whose warden was killed. A warden that gets SIGTERM cleans up
 * and records how the sandbox ended. If it does not or cannot, another process does it later: every
 * start sweeps, and a sweep without work costs one look at each directory.
 *
 * A process claims a directory (state_claim) before it reclaims it, so only one of two concurrent
 * sweeps does it. */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "audit/audit-log.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "sandbox/gc.h"
#include "sandbox/sandbox.h"
#include "snapshot/snapshot.h"
#include "state/kept.h"
#include "vm/host-config.h"

enum {
	TERM_S = 10, /* for a warden after SIGTERM */
	KILL_S = 5,
	CLAIM_S = 10,
	NAP_MS = 5,
	LAST_LOOK_S = 10, /* time for a client to read why its sandbox ended */
};

static uint64_t in_seconds(unsigned int s)
{
	return clock_mono() + s * NSEC_PER_SEC;
}

static void nap(void)
{
	const struct timespec t = { .tv_nsec = NAP_MS * (long)NSEC_PER_MSEC };

	(void)nanosleep(&t, NULL);
}

/* ---- reclaiming ---- */

/* The kernel's counters are still in the groups. */
static void measure(const char *group, int dir, struct end *end)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct err ignored = ERR_INIT;
	struct cgroup_usage u = { 0 };
	struct life life = { 0 };

	cgroup_open(group, &g);
	cgroup_usage(&g, &u);
	end->oom_kills = u.oom_kills;
	end->pids_refused = u.pids_refused;
	end->throttled = u.throttled;
	end->memory_peak = u.memory_peak;
	end->cpu_us = u.cpu_us;
	if (life_read(dir, &life, &ignored) == 0)
		end_add_met(end, &life.met);
}

static bool has_end(int dir)
{
	return faccessat(dir, "end.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A directory without a readable spec was being made or removed, so there is nothing to keep. */
static bool is_kept(int dir)
{
	_cleanup_spec_ struct spec spec = { 0 };
	struct err ignored = ERR_INIT;

	return spec_read(dir, &spec, &ignored) == 0 && !spec.remove;
}

static int remove_dir(const struct state_root *root, const char *id, struct err *e)
{
	int r = state_remove(root, id);

	return r < 0 ? err_set(e, r, "cannot remove the state of '%s': %s", id, strerror(-r)) : 0;
}

/* ---- pending audit records ---- */

/* True if the sandbox ended without a seal; *ret_end: the end is recorded, only the seal is
 * missing. */
static bool is_owed(int dir, bool *ret_end)
{
	struct stat st;

	if (fstatat(dir, STATE_UNSEALED, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	*ret_end = st.st_size > 0;
	return true;
}

/* Ends the sandbox's audit chain, if its warden did not. */
static int seal(const char *id, int dir, struct err *e)
{
	_cleanup_spec_ struct spec spec = { 0 };
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	_cleanup_audit_log_ struct audit_log log = AUDIT_LOG_INIT;
	struct end end = { .reason = END_WARDEN };
	struct err ignored = ERR_INIT;
	bool recorded = has_end(dir);
	const char *chain = spec_read(dir, &spec, &ignored) == 0 ? spec_chain(&spec) : id;
	int r = audit_open(&log, e);

	(void)is_owed(dir, &recorded);
	(void)end_read(dir, &end, &ignored);
	audit_put_text(&p, "sandbox", id);
	audit_put_text(&p, "reason", end_reason_names[end.reason]);
	if (r == 0 && !recorded && audit_sandbox_open(&log, chain))
		r = audit_host(&log, AUDIT_END, &p, e);
	if (r == 0)
		r = FAULT_ERR("reclaim-recorded", e);
	return r < 0 ? r : audit_sandbox_seal(&log, chain, e);
}

/* Seals the chain. If the audit log cannot be written, reclaiming continues: the seal stays pending
 * (STATE_UNSEALED), and *owed says why. 1 if it was pending and is now done. */
static int settle(const char *id, int dir, struct err *owed, struct err *e)
{
	bool recorded, was = is_owed(dir, &recorded);

	if (seal(id, dir, owed) < 0)
		return was ? 0 : state_write(dir, STATE_UNSEALED, "", 0, e);
	if (was && unlinkat(dir, STATE_UNSEALED, 0) < 0)
		return err_errno(e, "cannot remove a file");
	return was;
}

/* Removes the snapshot of a suspended sandbox that will not be resumed. */
static int drop_snapshot(int dir, struct err *e)
{
	char name[SANDBOX_SNAPSHOT];
	int r;

	if (fd_read_line(dir, STATE_SUSPENDED, name, sizeof(name)) < 0)
		return 0;
	/* While the snapshot exists, the sandbox would come back. */
	r = snapshot_remove(name, e);
	if (r < 0 && r != -ENOENT)
		return r;
	(void)unlinkat(dir, STATE_SUSPENDED, 0);
	return 0;
}

/* True if the sandbox is to be removed (--rm), and is left only for its client to read why it
 * ended. */
static bool is_last_look(int dir)
{
	struct stat st;

	return fstatat(dir, STATE_REMOVE, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       (uint64_t)st.st_mtim.tv_sec + LAST_LOOK_S >= clock_wall() / NSEC_PER_SEC;
}

/* Keeps or removes the files of an ended sandbox. `now`: do not wait for a client to read them. */
static int conclude(const struct state_root *root, const char *id, int dir, bool now, struct err *e)
{
	if (is_kept(dir))
		return kept_move(root, id, dir, e);
	return !now && is_last_look(dir) ? 0 : remove_dir(root, id, e);
}

/* Reclaims a dead sandbox that the caller has claimed. */
static int reclaim_claimed(const struct state_root *root, const char *id, int dir, bool now,
			   struct err *owed, struct err *e)
{
	struct end end = { .reason = END_WARDEN, .time = clock_wall() };
	char group[STATE_GROUP_MAX];
	int r;

	measure(state_group(root, id, group), dir, &end);
	r = FAULT_ERR("reclaim-claimed", e);
	/* Also if the sandbox has ended: its warden may have failed to remove them. */
	if (r == 0)
		r = cgroup_remove(group, e);
	if (r == 0)
		r = FAULT_ERR("reclaim-groups", e);
	if (r == 0)
		r = settle(id, dir, owed, e);
	if (r == 0)
		r = FAULT_ERR("reclaim-sealed", e);
	if (r < 0 || drop_snapshot(dir, e) < 0)
		return err_wrap(e, "cannot reclaim sandbox %s", id);
	if (!has_end(dir) && (owed->num || is_kept(dir))) {
		r = end_write(dir, &end, e);
		if (r < 0)
			return r;
		(void)FAULT("reclaim-written");
	}
	/* A pending record keeps the directory here, where sweeps look. */
	return owed->num ? 0 : conclude(root, id, dir, now, e);
}

/* True if the warden was killed during suspend or resume: the directory names a snapshot that does
 * not exist. Certain only if the caller has claimed the directory. */
static bool is_lost(int dir)
{
	char name[SANDBOX_SNAPSHOT], path[SNAPSHOT_PATH_MAX];
	struct err ignored = ERR_INIT;

	return fd_read_line(dir, STATE_SUSPENDED, name, sizeof(name)) == 0 &&
	       snapshot_path(name, path, &ignored) == 0 && access(path, F_OK) < 0 &&
	       errno == ENOENT;
}

/* True for a suspended sandbox whose warden was killed before it had cleaned up: it removes its
 * socket last. */
static bool is_left(int dir)
{
	return state_is_suspended(dir) && faccessat(dir, "sock", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Reclaims everything but the snapshot of such a sandbox, which stays suspended. */
static int give_back(const struct state_root *root, const char *id, int dir, struct err *e)
{
	struct err owed = ERR_INIT;
	char group[STATE_GROUP_MAX];
	int r = cgroup_remove(state_group(root, id, group), e);

	if (r == 0)
		r = settle(id, dir, &owed, e);
	if (r < 0)
		return err_wrap(e, "cannot reclaim sandbox %s", id);
	if (owed.num)
		return err_set(e, owed.num,
			       "sandbox %s is suspended, which is not recorded yet: %s", id,
			       owed.msg);
	return unlinkat(dir, "sock", 0) < 0 ? err_errno(e, "cannot remove a socket") : 0;
}

/* `now`: also directories that a client may still read. *ret: the phase of a reclaimed sandbox. */
static int sweep_one(const struct state_root *root, const char *id, bool now, enum state_phase *ret,
		     struct err *e)
{
	_cleanup_close_ int dir = -EBADF, claim = -EBADF;
	struct err owed = ERR_INIT;
	enum state_phase phase;
	int r;

	dir = RETRY_EINTR(openat(root->dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (dir < 0)
		return errno == ENOENT ? 0 : err_errno(e, "cannot open the state of '%s'", id);
	phase = state_phase(dir);
	if (phase != STATE_DEAD && phase != STATE_ENDED && !is_lost(dir) && !is_left(dir))
		return 0;
	if (!now && phase == STATE_ENDED && is_last_look(dir))
		return 0;
	if (state_claim(dir, &claim) < 0)
		return 0; /* another process is doing it */
	if (phase != STATE_DEAD && phase != STATE_ENDED) {
		if (!is_lost(dir))
			return is_left(dir) ? give_back(root, id, dir, e) : 0;
		phase = STATE_DEAD;
	}
	r = reclaim_claimed(root, id, dir, now, &owed, e);
	if (r == 0 && owed.num)
		return err_set(e, owed.num, "sandbox %s has ended, which is not recorded yet: %s",
			       id, owed.msg);
	if (r == 0)
		*ret = phase;
	return r;
}

static int sweep(const struct state_root *root, const struct sandbox_gc *gc, struct err *e)
{
	_cleanup_free_ char(*ids)[SPEC_ID + 1] = NULL;
	size_t n = 0;
	int r = state_list(root, &ids, &n, e);

	/* A failure does not stop the sweep; the first one is reported. */
	for (size_t i = 0; i < n; i++) {
		enum state_phase was = STATE_RUNNING;
		struct err one = ERR_INIT;

		if (sweep_one(root, ids[i], gc != NULL, &was, &one) < 0 && r == 0) {
			*e = one;
			r = one.num;
		}
		/* An ended sandbox is only moved to ended/; its removal is reported later. */
		if (gc && was == STATE_DEAD)
			gc->took(gc->arg, LEFT_DEAD, ids[i]);
	}
	return r;
}

/* ---- ended sandboxes ---- */

static void took_ended(void *arg, const char *id)
{
	const struct sandbox_gc *gc = arg;

	if (gc)
		gc->took(gc->arg, LEFT_ENDED, id);
}

/* Deletes by the limits of host.yaml. If that is invalid, nothing is deleted: no sandbox starts
 * then, either. */
static int trim(const struct state_root *root, const struct sandbox_gc *gc, struct err *e)
{
	struct host_config config = HOST_CONFIG_INIT;
	struct kept_limits limits = { 0 };
	int r = gc && gc->ended ? 0 : host_config_load(&config, e);

	if (r < 0)
		return err_wrap(e, "cannot list the ended sandboxes");
	if (!gc || !gc->ended)
		limits = (struct kept_limits){ .time = config.keep_ended * NSEC_PER_MSEC,
					       .space = config.ended_space };
	return kept_trim(root, &limits, gc != NULL, took_ended, (void *)gc, e);
}

int sandbox_reclaim(const struct state_root *root, struct err *e)
{
	struct err more = ERR_INIT;
	int r = sweep(root, NULL, e);

	if (kept_is_due(root) && trim(root, NULL, &more) < 0 && r == 0)
		r = (*e = more).num;
	return r;
}

int sandbox_reclaim_all(const struct state_root *root, const struct sandbox_gc *gc, struct err *e)
{
	int first = sweep(root, gc, e);
	struct err more = ERR_INIT;

	/* A failure does not stop the rest. */
	if (trim(root, gc, &more) < 0 && first == 0)
		first = (*e = more).num;
	if (gc_groups(root, gc, &more) < 0 && first == 0)
		first = (*e = more).num;
	if (gc_ids(root, gc, &more) < 0 && first == 0)
		first = (*e = more).num;
	if (gc_images(gc, &more) < 0 && first == 0)
		first = (*e = more).num;
	if (gc_snapshots(gc, &more) < 0 && first == 0)
		first = (*e = more).num;
	if (gc_ledgers(root, gc, &more) < 0 && first == 0)
		first = (*e = more).num;
	return first;
}

/* ---- killing ---- */

/* 0 after the process has ended; -ETIME; or -errno. */
static int wait_pidfd(int pidfd, uint64_t deadline)
{
	for (;;) {
		struct pollfd p = { .fd = pidfd, .events = POLLIN };
		uint64_t now = clock_mono();
		int n = deadline <= now ? 0
					: poll(&p, 1, (int)((deadline - now) / NSEC_PER_MSEC) + 1);

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -ETIME;
	}
}

/* SIGTERM first. A process that has already ended is a success. */
static int end_warden(int pidfd)
{
	static const struct {
		int sig;
		unsigned int seconds;
	} steps[] = { { SIGTERM, TERM_S }, { SIGKILL, KILL_S } };
	int r = -ETIME;

	for (size_t i = 0; r == -ETIME && i < ARRAY_SIZE(steps); i++) {
		(void)FAULT("kill-held");
		if (syscall(SYS_pidfd_send_signal, pidfd, steps[i].sig, NULL, 0) < 0)
			return errno == ESRCH ? 0 : -errno;
		(void)FAULT("kill-asked");
		r = wait_pidfd(pidfd, in_seconds(steps[i].seconds));
	}
	return r;
}

/* -EAGAIN: the sandbox is between two states; try again. */
static int try_kill(const struct state_root *root, const struct sandbox *s, struct err *owed,
		    struct err *e)
{
	_cleanup_close_ int pidfd = -EBADF, claim = -EBADF;
	pid_t pid = 0;
	int r = state_warden(s->dir, &pidfd, &pid);

	if (r == 0)
		r = end_warden(pidfd);
	if (r < 0 && r != -ESRCH)
		return err_set(e, r, "cannot end sandbox %s: %s", s->id,
			       r == -EXDEV ? "its warden is in another pid namespace"
					   : strerror(-r));
	(void)FAULT("kill-ended");
	r = state_claim(s->dir, &claim);
	if (r == -ENOENT)
		return 0; /* the warden removed everything */
	if (r == -EBUSY)
		return -EAGAIN;
	if (r < 0)
		return err_set(e, r, "cannot lock sandbox %s: %s", s->id, strerror(-r));
	return reclaim_claimed(root, s->id, s->dir, false, owed, e);
}

/* Records who kills the sandbox, before the warden gets the signal: it copies that to end.json. Not
 * needed after the end. */
static void name_killer(const struct sandbox *s, const char *by)
{
	struct err ignored = ERR_INIT;

	if (by && by[0] && !has_end(s->dir))
		(void)state_write(s->dir, STATE_KILLER, by, strlen(by), &ignored);
}

int sandbox_kill(const struct state_root *root, const struct sandbox *s, const char *by,
		 struct err *owed, struct err *e)
{
	uint64_t deadline = in_seconds(TERM_S + KILL_S + CLAIM_S);
	int r;

	if (s->ended)
		return 0;
	name_killer(s, by);
	while ((r = try_kill(root, s, owed, e)) == -EAGAIN && clock_mono() < deadline)
		nap();
	return r == -EAGAIN ? err_set(e, -ETIME, "sandbox %s does not end", s->id) : r;
}
