/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for a change of a sandbox's phase: for a file that appears or disappears in its directory,
 * or for the end of its warden. A record lock that is taken makes no event, but the warden writes
 * files after it. */
#include <poll.h>
#include <sys/inotify.h>

#include "base/clock.h"
#include "base/fd.h"
#include "state/state.h"

/* Not the events of opening and closing files: state_phase() causes them itself. */
#define EVENTS (IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF)

enum {
	ALONE_MS = 1000, /* without a watch, or between the checks for a new warden */
};

static int watch(int dir)
{
	_cleanup_close_ int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", dir);
	return fd < 0 || inotify_add_watch(fd, path, EVENTS) < 0 ? -errno : TAKE_FD(fd);
}

static void wait_once(int events, int dir, uint64_t until)
{
	_cleanup_close_ int warden = -EBADF;
	const uint64_t now = clock_mono(), left = until > now ? (until - now) / NSEC_PER_MSEC : 0;
	pid_t pid;
	bool lives = state_warden(dir, &warden, &pid) == 0;
	struct pollfd p[] = { { .fd = events, .events = POLLIN },
			      { .fd = lives ? warden : -1, .events = POLLIN } };
	const uint64_t most = events >= 0 && lives ? left : MIN(left, (uint64_t)ALONE_MS);
	char buf[4096];

	(void)poll(p, ARRAY_SIZE(p), (int)MIN(most, (uint64_t)INT32_MAX) + 1);
	while (events >= 0 && read(events, buf, sizeof(buf)) > 0)
		;
}

enum state_phase state_wait(int dir, enum state_phase phase, uint64_t until)
{
	/* Before the first look, so that no change is missed. */
	_cleanup_close_ int events = watch(dir);
	enum state_phase now;

	while ((now = state_phase(dir)) == phase && clock_mono() < until)
		wait_once(events, dir, until);
	return now;
}
