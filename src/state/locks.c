/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks that show which processes are alive. The warden's lock is a POSIX record lock, not one of
 * an open file description: the keeper that the warden forks does not inherit it, the kernel
 * reports its owner (F_GETLK), and it disappears with the warden, however that ends.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/path.h"
#include "state/life.h"
#include "state/spare-pool.h"

static const char lock_file[] = "lock";

const char *const state_phase_names[] = {
	[STATE_STARTING] = "starting", [STATE_HELD] = "spare",	    [STATE_RUNNING] = "running",
	[STATE_PAUSED] = "paused",     [STATE_STOPPED] = "stopped", [STATE_ON_DISK] = "suspended",
	[STATE_ENDED] = "ended",       [STATE_DEAD] = "dead",
};

int state_lock(int dir, int *ret_fd, struct err *e)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	_cleanup_close_ int fd = RETRY_EINTR(
		openat(dir, lock_file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));

	if (fd < 0)
		return err_errno(e, "cannot open the sandbox's lock");
	if (fcntl(fd, F_SETLK, &lock) < 0) {
		if (errno == EAGAIN || errno == EACCES)
			return err_set(e, -EBUSY, "the sandbox has a warden already");
		return err_errno(e, "cannot lock the sandbox");
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* Returns 0 and the pid of the lock's owner, which is 0 or less in another pid namespace; -ESRCH if
 * the lock is free. */
static int lock_holder(int dir, pid_t *ret)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	/* O_NONBLOCK: must not block if the file is a FIFO. */
	_cleanup_close_ int fd =
		RETRY_EINTR(openat(dir, lock_file, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));

	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	if (fcntl(fd, F_GETLK, &lock) < 0)
		return -errno;
	if (lock.l_type == F_UNLCK)
		return -ESRCH;
	*ret = lock.l_pid;
	return 0;
}

int state_warden(int dir, int *ret_pidfd, pid_t *ret_pid)
{
	_cleanup_close_ int pidfd = -EBADF;
	pid_t pid = 0, again = 0;
	int r = lock_holder(dir, &pid);

	if (r < 0)
		return r;
	if (pid <= 0)
		return -EXDEV;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return -errno;
	/* It still has the lock after pidfd_open(), so the pid was not reused before. */
	r = lock_holder(dir, &again);
	if (r < 0 || again != pid)
		return r < 0 ? r : -ESRCH;
	*ret_pidfd = TAKE_FD(pidfd);
	*ret_pid = pid;
	return 0;
}

static bool has_file(int dir, const char *name)
{
	return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Does a warden hold the lock? Errors count as yes: an unreadable file must not cause a running
 * sandbox to be reclaimed. */
static bool is_alive(int dir)
{
	pid_t pid;

	return lock_holder(dir, &pid) != -ESRCH;
}

int state_claim(int dir, int *ret_fd)
{
	/* A new open file description: a flock does not conflict with itself. */
	_cleanup_close_ int fd = RETRY_EINTR(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	struct stat st;

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? -EBUSY : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink == 0)
		return -ENOENT;
	/* LOCK_EX shows that no process is creating it, so no new warden can appear. */
	if (is_alive(dir))
		return -EBUSY;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* Phase of a sandbox that has a warden. */
static enum state_phase living_phase(int dir)
{
	struct err ignored = ERR_INIT;
	struct life life = { 0 };

	if (!has_file(dir, "receipt.json"))
		return has_file(dir, STATE_SPARE) ? STATE_HELD : STATE_STARTING;
	if (life_read(dir, &life, &ignored) < 0)
		return STATE_RUNNING;
	if (life.paused)
		return STATE_PAUSED;
	return life.stopped != LIFE_RUNS ? STATE_STOPPED : STATE_RUNNING;
}

bool state_phase_lives(enum state_phase phase)
{
	return phase == STATE_RUNNING || phase == STATE_PAUSED || phase == STATE_STOPPED ||
	       phase == STATE_ON_DISK;
}

bool state_is_suspended(int dir)
{
	return has_file(dir, STATE_SUSPENDED);
}

enum state_phase state_phase(int dir)
{
	_cleanup_close_ int claim = -EBADF;

	if (is_alive(dir))
		return living_phase(dir);
	if (has_file(dir, "end.json"))
		return STATE_ENDED;
	if (state_is_suspended(dir))
		return STATE_ON_DISK;
	if (state_claim(dir, &claim) == 0)
		return has_file(dir, "end.json") ? STATE_ENDED : STATE_DEAD;
	/* A warden may have started since the first check. */
	return is_alive(dir) ? living_phase(dir) : STATE_STARTING;
}

static bool is_linked(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_nlink > 0;
}

int state_take_ids(const struct state_root *r, uint32_t *ret, int *ret_fd, struct err *e)
{
	uint32_t first = 0;

	/* Start at a random range: concurrent starts rarely collide, and ranges are not reused at
	 * once, in case a sandbox left files behind by mistake. */
	if (RETRY_EINTR(getrandom(&first, sizeof(first), 0)) != (ssize_t)sizeof(first))
		return err_errno(e, "no random numbers");
	for (uint32_t i = 0; i < STATE_IDS_MAX; i++) {
		uint32_t n = (first % STATE_IDS_MAX + i) % STATE_IDS_MAX;
		_cleanup_close_ int fd = -EBADF;
		char name[16];

		(void)snprintf(name, sizeof(name), "%u", n);
		fd = RETRY_EINTR(
			openat(r->ids, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
		if (fd < 0)
			return err_errno(e, "cannot open '%s/ids/%s'", r->path, name);
		if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
			/* Removed between open and lock: another file may represent the range. */
			if (!is_linked(fd))
				continue;
			*ret = STATE_IDS_FIRST + n * STATE_IDS_SIZE;
			*ret_fd = TAKE_FD(fd);
			return 0;
		}
		if (errno != EWOULDBLOCK)
			return err_errno(e, "cannot lock '%s/ids/%s'", r->path, name);
	}
	return err_set(e, -EUSERS, "all %d ranges of user ids are in use: end some sandboxes",
		       STATE_IDS_MAX);
}

/* Returns 1 if the file was removed, 0 if the range is in use. */
static int clean_range(int ids, const char *name)
{
	_cleanup_close_ int fd =
		RETRY_EINTR(openat(ids, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? 0 : -errno;
	/* Removed already: a newer file of this name may be in use. */
	if (!is_linked(fd))
		return 0;
	return unlinkat(ids, name, 0) < 0 ? -errno : 1;
}

int state_clean_ids(const struct state_root *r, size_t *ret_n, struct err *e)
{
	size_t n = 0;

	for (unsigned int i = 0; i < STATE_IDS_MAX; i++) {
		char name[16];
		int k;

		(void)snprintf(name, sizeof(name), "%u", i);
		k = clean_range(r->ids, name);
		if (k < 0)
			return err_set(e, k, "cannot remove '%s/ids/%s': %s", r->path, name,
				       strerror(-k));
		n += (size_t)k;
	}
	*ret_n = n;
	return 0;
}

/* Does `path` still name the locked directory? */
static bool is_same(int fd, const char *path)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && fstatat(AT_FDCWD, path, &b, AT_SYMLINK_NOFOLLOW) == 0 &&
	       a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

int state_lock_tree(const char *root, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	char tree[4096];
	int r = path_parent(root, tree, sizeof(tree));

	if (r < 0)
		return err_set(e, r, "'%.80s' is not the tree of an image", root);
	fd = RETRY_EINTR(openat(AT_FDCWD, tree, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	r = fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0 ? -errno : 0;
	/* An exclusive lock or a rename means that another process removes the tree. */
	if (r == -EWOULDBLOCK || (r == 0 && !is_same(fd, tree)))
		r = -ENOENT;
	if (r == -ENOENT)
		return err_set(e, r, "the image has been removed: build it again");
	if (r < 0)
		return err_set(e, r, "cannot lock the image's tree '%s': %s", tree, strerror(-r));
	*ret_fd = TAKE_FD(fd);
	return 0;
}
