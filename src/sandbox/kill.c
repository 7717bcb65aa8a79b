/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ending a sandbox, and taking back what a warden left that was killed itself. A warden that is
 * asked (SIGTERM) cleans up and writes down how it ended. If it does not, or cannot, whoever comes
 * next does it: every start sweeps, and a sweep that finds nothing costs a look at each directory.
 *
 * A directory that is taken back is claimed first (state_claim): of two who sweep, one does it.
 */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "clock.h"
#include "sandbox.h"

enum {
	TERM_S = 10, /* for a warden that was asked */
	KILL_S = 5,
	CLAIM_S = 10,
	NAP_MS = 5,
	KEPT_HOURS = 24,  /* what has ended is shown by hutch ps -a for so long */
	LAST_LOOK_S = 10, /* for a client to read why its sandbox ended */
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

/* ---- taking back ---- */

/* What the kernel counted is still in the groups. */
static void measure(const char *id, struct end *end)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct cgroup_usage u = { 0 };

	cgroup_open(id, &g);
	cgroup_usage(&g, &u);
	end->oom_kills = u.oom_kills;
	end->pids_refused = u.pids_refused;
	end->throttled = u.throttled;
	end->memory_peak = u.memory_peak;
	end->cpu_us = u.cpu_us;
}

static bool has_end(int dir)
{
	return faccessat(dir, "end.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Of a directory whose spec cannot be read nothing can be told: it was being made, or removed. */
static bool is_kept(int dir)
{
	_cleanup_spec_ struct spec spec = { 0 };
	struct err ignored = ERR_INIT;

	return spec_read(dir, &spec, &ignored) == 0 && !spec.remove && !spec.once;
}

static int remove_dir(const struct state_root *root, const char *id, struct err *e)
{
	int r = state_remove(root, id);

	return r < 0 ? err_set(e, r, "cannot remove the state of '%s': %s", id, strerror(-r)) : 0;
}

/* Of one that is claimed, and dead. */
static int take_back(const struct state_root *root, const char *id, int dir, struct err *e)
{
	struct end end = { .reason = END_WARDEN, .time = clock_wall() };
	int r;

	if (has_end(dir))
		return 0;
	measure(id, &end);
	r = cgroup_remove(id, e);
	if (r < 0)
		return err_wrap(e, "taking back sandbox %s", id);
	return is_kept(dir) ? end_write(dir, &end, e) : remove_dir(root, id, e);
}

static bool is_younger(const struct state_root *root, const char *id, const char *file,
		       uint64_t seconds, bool *ret_there)
{
	char path[SPEC_ID + 16];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%s/%s", id, file);
	*ret_there = fstatat(root->dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
	return *ret_there && (uint64_t)st.st_mtim.tv_sec + seconds >= clock_wall() / NSEC_PER_SEC;
}

/*
 * What has ended and is to be kept: the most there is, and a call or two each. One that was to be
 * removed (--rm) is there only for its client to read why it ended.
 */
static bool is_recent(const struct state_root *root, const char *id)
{
	bool there, young = is_younger(root, id, "end.json", KEPT_HOURS * UINT64_C(3600), &there);
	bool last = young && is_younger(root, id, STATE_REMOVE, LAST_LOOK_S, &there);

	return young && (last || !there);
}

static int sweep_one(const struct state_root *root, const char *id, struct err *e)
{
	_cleanup_close_ int dir = -EBADF, claim = -EBADF;
	enum state_phase phase;

	if (is_recent(root, id))
		return 0;
	dir = RETRY_EINTR(openat(root->dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (dir < 0)
		return errno == ENOENT ? 0 : err_errno(e, "cannot open the state of '%s'", id);
	phase = state_phase(dir);
	if (phase != STATE_DEAD && phase != STATE_ENDED)
		return 0;
	if (state_claim(dir, &claim) < 0)
		return 0; /* somebody else does it */
	/* It may have ended since we first looked. */
	if (phase == STATE_ENDED && is_recent(root, id))
		return 0;
	return phase == STATE_DEAD ? take_back(root, id, dir, e) : remove_dir(root, id, e);
}

int sandbox_reclaim(const struct state_root *root, struct err *e)
{
	_cleanup_free_ char(*ids)[SPEC_ID + 1] = NULL;
	size_t n = 0;
	int r = state_list(root, &ids, &n, e);

	/* One that cannot be taken back hides none of the others; the first is told. */
	for (size_t i = 0; i < n; i++) {
		struct err one = ERR_INIT;

		if (sweep_one(root, ids[i], &one) < 0 && r == 0) {
			*e = one;
			r = one.num;
		}
	}
	return r;
}

/* ---- killing ---- */

/* 0 once the process has ended, -ETIME, or -errno. */
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

/* Asks first; a process that has ended in between is what was wanted. */
static int end_warden(int pidfd)
{
	static const struct {
		int sig;
		unsigned int seconds;
	} steps[] = { { SIGTERM, TERM_S }, { SIGKILL, KILL_S } };
	int r = -ETIME;

	for (size_t i = 0; r == -ETIME && i < ARRAY_SIZE(steps); i++) {
		if (syscall(SYS_pidfd_send_signal, pidfd, steps[i].sig, NULL, 0) < 0)
			return errno == ESRCH ? 0 : -errno;
		r = wait_pidfd(pidfd, in_seconds(steps[i].seconds));
	}
	return r;
}

/* -EAGAIN: it is in between two states; ask again. */
static int try_kill(const struct state_root *root, const struct sandbox *s, struct err *e)
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
	r = state_claim(s->dir, &claim);
	if (r == -ENOENT)
		return 0; /* removed with all there was */
	if (r == -EBUSY)
		return -EAGAIN;
	if (r < 0)
		return err_set(e, r, "cannot lock sandbox %s: %s", s->id, strerror(-r));
	return take_back(root, s->id, s->dir, e);
}

int sandbox_kill(const struct state_root *root, const struct sandbox *s, struct err *e)
{
	uint64_t deadline = in_seconds(TERM_S + KILL_S + CLAIM_S);
	int r;

	while ((r = try_kill(root, s, e)) == -EAGAIN && clock_mono() < deadline)
		nap();
	return r == -EAGAIN ? err_set(e, -ETIME, "sandbox %s does not end", s->id) : r;
}
