/* SPDX-License-Identifier: Apache-2.0 */
/* User namespaces. Only a process with privileges in the namespace above can write the id maps, so
 * each function needs two processes and a socket between them.
 *
 * userns_make() and userns_idmap(): a child makes the namespace and waits; we write its maps, open
 * the namespace and release the child. The descriptor keeps the namespace alive.
 *
 * userns_enter(): the other way round. We make the namespace for ourselves; a child forked before,
 * and so still outside, runs newuidmap(1) and newgidmap(1) to write the maps. */
#include <fcntl.h>
#include <limits.h>
#include <linux/securebits.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "confine/become.h"
#include "engine/engine.h"
#include "engine/oci.h"
#include "engine/userns.h"

#define MAP_TIMEOUT (10 * NSEC_PER_SEC)

enum {
	MAP_OUTPUT_MAX = 4096,
};

static int sockets(int *ret_ours, int *ret_theirs)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	*ret_ours = fds[0];
	*ret_theirs = fds[1];
	return 0;
}

/* ---- namespaces for other processes ---- */

struct maps {
	uint32_t owner;	   /* owner of the namespace */
	uint64_t uid, gid; /* first ids inside */
	uint32_t ids;	   /* the host ids that they map to */
	uint64_t pids;	   /* limit of processes inside; 0: none of its own */
};

/* A namespace belongs to the effective user id of its maker. Capabilities survive the change of
 * ids, because some hosts let only root make user namespaces; the child runs no other code.
 * /proc/PID of a process that changed ids belongs to root until it is dumpable again. */
static int become_owner(uint32_t id)
{
	int r;

	if (id == 0)
		return 0;
	if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) < 0)
		return -errno;
	r = become(id);
	if (r < 0)
		return r;
	return prctl(PR_SET_DUMPABLE, 1) < 0 ? -errno : 0;
}

/* A user namespace keeps its maker's limit for all its processes together, whatever their ids
 * (set_userns_rlimit_max() in kernel/fork.c, since Linux 5.14). It counts differently than a
 * control group, and is used where that is unavailable. */
static int limit_processes(uint64_t pids)
{
	struct rlimit own;

	if (pids == 0)
		return 0;
	if (getrlimit(RLIMIT_NPROC, &own) < 0)
		return -errno;
	own.rlim_cur = own.rlim_max = MIN((rlim_t)pids, own.rlim_max);
	return setrlimit(RLIMIT_NPROC, &own) < 0 ? -errno : 0;
}

/* The child. It ends when `sock` closes, also if the parent is killed. */
static _noreturn_ void hold_namespace(const struct maps *m, int sock)
{
	int r = become_owner(m->owner);
	char c;

	if (r == 0)
		r = limit_processes(m->pids);
	if (r == 0 && unshare(CLONE_NEWUSER) < 0)
		r = -errno;
	if (send(sock, &r, sizeof(r), MSG_NOSIGNAL) == (ssize_t)sizeof(r))
		(void)!RETRY_EINTR(read(sock, &c, 1));
	_exit(0);
}

static int write_map(pid_t pid, const char *file, uint64_t inside, uint32_t outside)
{
	_cleanup_close_ int fd = -EBADF;
	char path[64], line[64];
	int n = snprintf(line, sizeof(line), "%llu %u %d\n", (unsigned long long)inside, outside,
			 OCI_IDS);

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	/* One write: the kernel accepts a map whole or not at all. */
	return fd < 0 || write(fd, line, (size_t)n) != n ? -errno : 0;
}

static int open_namespace(pid_t pid, const struct maps *m, int *ret_fd, struct err *e)
{
	char path[64];
	int fd, r = write_map(pid, "uid_map", m->uid, m->ids);

	if (r == 0)
		r = write_map(pid, "gid_map", m->gid, m->ids);
	if (r < 0)
		return err_set(e, r, "cannot map the sandbox's ids to %u: %s", m->ids,
			       strerror(-r));
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, "cannot open the sandbox's user namespace");
	*ret_fd = fd;
	return 0;
}

static int make(const struct maps *m, int *ret_fd, struct err *e)
{
	_cleanup_close_ int ours = -EBADF, theirs = -EBADF;
	_cleanup_proc_ struct proc child = PROC_INIT;
	int answer = -EPIPE, r = sockets(&ours, &theirs);

	if (r == 0)
		r = proc_fork(&child);
	if (r > 0) {
		(void)fd_close(ours);
		hold_namespace(m, theirs);
	}
	theirs = fd_close(theirs);
	if (r == 0)
		r = FAULT("userns-holder");
	if (r == 0 && RETRY_EINTR(recv(ours, &answer, sizeof(answer), 0)) < 0)
		r = -errno;
	if (r == 0)
		r = answer;
	if (r < 0)
		return err_set(e, r, "cannot make a user namespace: %s; see 'hutch doctor'",
			       strerror(-r));
	return open_namespace(child.pid, m, ret_fd, e);
}

int userns_make(uint32_t ids, uint64_t pids, int *ret_fd, struct err *e)
{
	const struct maps m = { .owner = ids, .ids = ids, .pids = pids };

	return make(&m, ret_fd, e);
}

int userns_idmap(uint64_t uid, uint64_t gid, uint32_t ids, int *ret_fd, struct err *e)
{
	const struct maps m = { .uid = uid, .gid = gid, .ids = ids };

	return make(&m, ret_fd, e);
}

/* ---- our own namespace ---- */

static int run_helper(const char *name, pid_t pid, uint64_t own, uint64_t sub, struct err *e)
{
	_cleanup_buf_ struct buf out = BUF_INIT(MAP_OUTPUT_MAX);
	char path[PATH_MAX], target[16], first[24], rest[24], count[16];
	const char *const argv[] = { name, target, "0", first, "1", "1", rest, count, NULL };
	int status, r;

	if (proc_find(name, path, sizeof(path)) < 0)
		return err_set(e, -ENOENT, "%s is needed: apt-get install uidmap", name);
	(void)snprintf(target, sizeof(target), "%d", pid);
	(void)snprintf(first, sizeof(first), "%llu", (unsigned long long)own);
	(void)snprintf(rest, sizeof(rest), "%llu", (unsigned long long)sub);
	(void)snprintf(count, sizeof(count), "%d", OCI_IDS_RANGE); /* includes the keeper's id */
	r = proc_capture(path, argv, true, clock_mono() + MAP_TIMEOUT, &out, &status, e);
	if (r < 0)
		return r;
	if (status == 0)
		return 0;
	if (out.len == 0)
		return err_set(e, -EPERM, "%s failed with status %d and printed nothing", name,
			       status);
	/* The helper's message starts with its name. */
	return err_set(e, -EPERM, "%.*s", (int)strcspn(buf_text(&out), "\n"), buf_text(&out));
}

/* The child, outside the new namespace: waits until the namespace exists. */
static _noreturn_ void map_from_outside(int sock, pid_t pid, uint64_t sub_uid, uint64_t sub_gid)
{
	struct err e = ERR_INIT;
	char go;

	if (RETRY_EINTR(read(sock, &go, 1)) != 1)
		_exit(1);
	if (run_helper("newuidmap", pid, getuid(), sub_uid, &e) == 0)
		(void)!run_helper("newgidmap", pid, getgid(), sub_gid, &e);
	_exit(send(sock, &e, sizeof(e), MSG_NOSIGNAL) < 0);
}

static int await_maps(int sock, struct err *e)
{
	struct err answer = ERR_INIT;
	ssize_t n = -1;

	if (send(sock, "", 1, MSG_NOSIGNAL) == 1)
		n = RETRY_EINTR(recv(sock, &answer, sizeof(answer), 0));
	if (n != (ssize_t)sizeof(answer))
		return err_set(e, -EPIPE, "the process that runs newuidmap and newgidmap has died");
	if (answer.num == 0)
		return 0;
	*e = answer;
	return err_wrap(e, "cannot map subordinate ids");
}

static int become_root(struct err *e)
{
	int r = become(0);

	if (r < 0)
		return err_set(e, r, "cannot become root in a user namespace: %s", strerror(-r));
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_errno(e, "cannot make mounts private");
	return 0;
}

int userns_enter(uint64_t sub_uid, uint64_t sub_gid, struct err *e)
{
	_cleanup_close_ int ours = -EBADF, theirs = -EBADF;
	_cleanup_proc_ struct proc child = PROC_INIT;
	const pid_t self = getpid(); /* not the child's getppid(): we may have died by then */
	int r = sockets(&ours, &theirs);

	if (r == 0)
		r = proc_fork(&child);
	if (r > 0) {
		(void)fd_close(ours);
		map_from_outside(theirs, self, sub_uid, sub_gid);
	}
	if (r < 0)
		return err_set(e, r, "cannot start a process: %s", strerror(-r));
	theirs = fd_close(theirs);
	r = FAULT_ERR("userns-forked", e);
	if (r < 0)
		return r;
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return err_errno(e, "cannot make a user namespace (see 'hutch doctor')");
	r = await_maps(ours, e);
	if (r == 0)
		r = FAULT_ERR("userns-mapped", e);
	return r < 0 ? r : become_root(e);
}
