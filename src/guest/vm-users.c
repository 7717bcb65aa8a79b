/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cgroup for all processes of users, to count and freeze them. It is mounted in the initramfs,
 * which no process can reach any more; the guest keeps only file descriptors.
 *
 * In a nested VM, users make cgroups themselves, below this one: they see it as the root of
 * /sys/fs/cgroup (vm-root.c), in the cgroup namespace that they inherit from PID 1. A cgroup with
 * controllers for its children must have no processes, so commands start in a child, MAIN. Freezing
 * and counting include all children; root can raise pids.max.
 */
#include "guest/vm.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"

#define CGROUPS "/cgroup"
#define USERS	CGROUPS "/users"
#define MAIN	USERS "/main"

enum {
	FREEZE_SEC = 10,
	FREEZE_STEP_MS = 50,
};

static int users = -EBADF, main_group = -EBADF;
static uint64_t users_max;

static int put(int dir, const char *name, const char *value)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd_write_all(fd, value, strlen(value));
}

/* Enables every controller of the kernel for the children of the cgroup `dir`. */
static int enable_all(const char *dir)
{
	_cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char line[256] = "", one[64];
	int r = fd < 0 ? -errno : fd_read_line(fd, "cgroup.controllers", line, sizeof(line));

	for (const char *at = line; r == 0 && *at; at += strspn(at, " ")) {
		size_t n = strcspn(at, " ");

		(void)snprintf(one, sizeof(one), "+%.*s", (int)MIN(n, sizeof(one) - 2), at);
		r = put(fd, "cgroup.subtree_control", one);
		at += n;
	}
	return r;
}

/* The namespace gets the caller's cgroup as its root. */
static int make_namespace(void)
{
	int r = enable_all(CGROUPS);

	if (r == 0)
		r = put(users, "cgroup.procs", "0");
	if (r == 0 && unshare(CLONE_NEWCGROUP) < 0)
		r = -errno;
	if (r == 0)
		r = put(AT_FDCWD, CGROUPS "/cgroup.procs", "0");
	if (r == 0)
		r = enable_all(USERS);
	if (r == 0 && mkdir(MAIN, 0755) < 0)
		r = -errno;
	if (r == 0)
		main_group = open(MAIN, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return r == 0 && main_group < 0 ? -errno : r;
}

int vm_users_make(struct err *e)
{
	int r;

	(void)mkdir(CGROUPS, 0755);
	if (mount("cgroup2", CGROUPS, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return err_errno(e, "cannot mount cgroups");
	r = put(AT_FDCWD, CGROUPS "/cgroup.subtree_control", "+pids");
	if (r == 0 && mkdir(USERS, 0755) < 0)
		r = -errno;
	if (r == 0)
		users = open(USERS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r == 0 && users < 0)
		r = -errno;
	if (r == 0 && vm_is_nested())
		r = make_namespace();
	if (r < 0)
		return err_set(e, r, "cannot make a cgroup for users: %s", strerror(-r));
	return met_open(users, e);
}

int vm_users_limit(uint64_t pids, struct err *e)
{
	char max[32];
	int r = 0;

	(void)snprintf(max, sizeof(max), "%llu", (unsigned long long)pids);
	if (pids > 0)
		r = put(users, "pids.max", max);
	users_max = pids;
	return r < 0 ? err_set(e, r, "cannot limit the processes of users: %s", strerror(-r)) : 0;
}

int vm_users_fd(unsigned int i)
{
	return i == 0 ? users : main_group;
}

int vm_users_join(void)
{
	char now[32];
	uint64_t n = 0;
	int r;

	if (users < 0)
		return 0;
	if (setpriority(PRIO_PROCESS, 0, 0) < 0) /* children do not keep PID 1's priority */
		return -errno;
	r = put(main_group >= 0 ? main_group : users, "cgroup.procs", "0");
	/* The kernel applies pids.max to fork(2) but not to joining the group, so check here. */
	if (r == 0 && users_max > 0)
		r = fd_read_line(users, "pids.current", now, sizeof(now));
	if (r == 0 && users_max > 0)
		r = str_to_u64(now, strlen(now), UINT64_MAX, &n);
	return r < 0 ? r : n > users_max ? -EAGAIN : 0;
}

static bool frozen(int events)
{
	char text[128];
	ssize_t n = pread(events, text, sizeof(text) - 1, 0);

	if (n < 0)
		return false;
	text[n] = '\0';
	return strstr(text, "frozen 1");
}

/*
 * A process that is still not frozen is blocked in the kernel, and freezes before it returns to
 * user space. So no user code runs either way.
 */
static void wait_frozen(int events)
{
	uint64_t end = clock_mono() + FREEZE_SEC * NSEC_PER_SEC;
	struct pollfd p = { .fd = events, .events = POLLPRI };

	while (!frozen(events)) {
		if (clock_mono() > end) {
			log_warning("a process takes long to stop");
			return;
		}
		(void)poll(&p, 1, FREEZE_STEP_MS);
	}
}

int vm_users_freeze(struct err *e)
{
	_cleanup_close_ int events = -EBADF;
	int r;

	if (users < 0)
		return 0;
	events = openat(users, "cgroup.events", O_RDONLY | O_CLOEXEC);
	r = events < 0 ? -errno : put(users, "cgroup.freeze", "1");
	if (r < 0)
		return err_set(e, r, "cannot stop the users' processes: %s", strerror(-r));
	wait_frozen(events);
	return 0;
}

int vm_users_thaw(struct err *e)
{
	int r = users < 0 ? 0 : put(users, "cgroup.freeze", "0");

	return r < 0 ? err_set(e, r, "cannot thaw the users' processes: %s", strerror(-r)) : 0;
}
