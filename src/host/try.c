/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries namespaces and mounts in child processes, which are killed at a deadline. Their namespaces
 * and mounts vanish with them, so nothing is left behind.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "confine/become.h"
#include "confine/self.h"
#include "host/probe.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif

enum {
	TRY_TIMEOUT_MS = 2000,
	REAP_TIMEOUT_MS = 1000,
	UID_NOBODY = 65534,
};

static void wait_or_leave(pid_t pid)
{
	const struct timespec pause = { .tv_nsec = 500 * 1000 };
	uint64_t deadline = clock_mono() + REAP_TIMEOUT_MS * NSEC_PER_MSEC;

	/* A child that sleeps in the kernel survives SIGKILL; do not wait for it. */
	while (waitpid(pid, NULL, WNOHANG) == 0 && clock_mono() < deadline)
		(void)nanosleep(&pause, NULL);
}

static int read_result(int fd, uint64_t deadline)
{
	for (;;) {
		uint64_t now = clock_mono();
		int left = now < deadline ? (int)((deadline - now) / NSEC_PER_MSEC) + 1 : 0;
		struct pollfd p = { .fd = fd, .events = POLLIN };
		int r = poll(&p, 1, left);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			return -ETIME;
		if (read(fd, &r, sizeof(r)) != (ssize_t)sizeof(r))
			return -EIO;
		return r;
	}
}

int try_in_child(int (*fn)(long arg), long arg)
{
	_cleanup_close_ int in = -EBADF, out = -EBADF;
	int r = fd_pipe(0, &in, &out);
	pid_t pid;

	if (r < 0)
		return r;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		(void)self_die_with_parent();
		r = fn(arg);
		_exit(fd_write_all(out, &r, sizeof(r)) < 0);
	}
	out = fd_close(out);
	r = read_result(in, clock_mono() + TRY_TIMEOUT_MS * NSEC_PER_MSEC);
	/* Our own child, not yet waited for: its pid cannot have been reused. */
	(void)kill(pid, SIGKILL);
	wait_or_leave(pid);
	return r;
}

/* In a child only: becomes uid 65534 for good. */
static int drop_privileges(void)
{
	int r = become(UID_NOBODY);

	if (r < 0)
		return r;
	/* Changing ids made /proc/self belong to root; uid_map is written through it. */
	return prctl(PR_SET_DUMPABLE, 1) < 0 ? -errno : 0;
}

static int write_file(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

/* In a child only: new namespaces `flags` with a user namespace that maps the caller to root. */
static int enter_userns(int flags)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	char map[64];
	int r;

	if (unshare(CLONE_NEWUSER | flags) < 0)
		return -errno;
	/*
	 * A successful unshare() proves little: Ubuntu 24.04 permits it and removes the
	 * capabilities, so that writing the map fails.
	 */
	r = write_file("/proc/self/setgroups", "deny");
	if (r < 0)
		return r;
	(void)snprintf(map, sizeof(map), "0 %u 1", uid);
	r = write_file("/proc/self/uid_map", map);
	if (r < 0)
		return r;
	(void)snprintf(map, sizeof(map), "0 %u 1", gid);
	return write_file("/proc/self/gid_map", map);
}

static int child_userns(long drop)
{
	int r = drop ? drop_privileges() : 0;

	return r < 0 ? r : enter_userns(0);
}

static int child_namespace(long flag)
{
	if (geteuid() == 0)
		return unshare((int)flag) < 0 ? -errno : 0;
	return enter_userns((int)flag);
}

void try_namespaces(struct host_facts *f)
{
	static const int flags[] = {
		[HOST_NS_MNT] = CLONE_NEWNS,	[HOST_NS_PID] = CLONE_NEWPID,
		[HOST_NS_NET] = CLONE_NEWNET,	[HOST_NS_IPC] = CLONE_NEWIPC,
		[HOST_NS_UTS] = CLONE_NEWUTS,	[HOST_NS_CGROUP] = CLONE_NEWCGROUP,
		[HOST_NS_TIME] = CLONE_NEWTIME,
	};
	static_assert(ARRAY_SIZE(flags) == HOST_NS_MAX, "a namespace without a flag");

	f->userns = try_in_child(child_userns, false);
	if (geteuid() == 0)
		f->userns_plain = try_in_child(child_userns, true);
	for (size_t i = 0; i < HOST_NS_MAX; i++)
		f->ns[i] = try_in_child(child_namespace, flags[i]);
}

/* Mounts a tmpfs over some directory and an overlay on it, in our own mount namespace. */
static int mount_overlay(const char *options)
{
	static const char *const dirs[] = { "lower", "upper", "work", "merged" };
	const char *on = "/tmp";
	char data[256];

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	/* Any directory will do: no other process sees this mount. */
	if (access(on, F_OK) < 0)
		on = "/dev";
	if (mount("tmpfs", on, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") < 0 || chdir(on) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (mkdir(dirs[i], 0700) < 0)
			return -errno;
	(void)snprintf(data, sizeof(data), "%slowerdir=lower,upperdir=upper,workdir=work", options);
	if (mount("overlay", "merged", "overlay", MS_NOSUID | MS_NODEV, data) < 0)
		return -errno;
	/* A mounted overlay may still not be writable, so create a directory. */
	return mkdir("merged/probe", 0700) < 0 ? -errno : 0;
}

static int child_overlay_user(long drop)
{
	int r = drop ? drop_privileges() : 0;

	if (r == 0)
		r = enter_userns(CLONE_NEWNS);
	return r < 0 ? r : mount_overlay("userxattr,");
}

static int child_overlay_root(long unused)
{
	(void)unused;
	if (unshare(CLONE_NEWNS) < 0)
		return -errno;
	return mount_overlay("");
}

void try_mounts(struct host_facts *f)
{
	bool root = geteuid() == 0;

	f->overlay_user = try_in_child(child_overlay_user, root);
	if (root)
		f->overlay_root = try_in_child(child_overlay_root, 0);
	/* The call fails with EINVAL for these arguments, and with ENOSYS if missing (< 5.12). */
	f->idmap =
		syscall(SYS_mount_setattr, -1, "", 0, NULL, 0) < 0 && errno == ENOSYS ? -ENOSYS : 0;
}
