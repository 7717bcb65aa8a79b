/* SPDX-License-Identifier: Apache-2.0 */
/* The real hutch-hold: one shared memory for all clients, races, and its end. */
#include "unit.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "snapshot/hold.h"

enum {
	SIZE = 4 * 1024 * 1024,
	ASKERS = 24,
	PATIENCE_S = 30,
};

struct fixture {
	struct unit_dir *d;
	struct state_root run;
	int dir; /* the template's directory */
	char digest[PAGES_HEX];
};

static struct fixture f;

static int setup(void **state)
{
	const char *programs = getenv("HUTCH_HOLD_DIR");
	struct err e = ERR_INIT;
	int fd;

	if (unit_dir_setup(state) < 0)
		return -1;
	f = (struct fixture){ .d = *state, .run = STATE_ROOT_INIT };
	assert_int_equal(setenv("HUTCH_RUN_DIR", f.d->path, 1), 0);
	assert_int_equal(setenv("HUTCH_HOLD_SECONDS", "60", 1), 0);
	assert_int_equal(setenv("HUTCH_LIBEXEC_DIR", programs ? programs : "", 1), 0);
	assert_int_equal(state_root_open(&f.run, &e), 0);
	assert_int_equal(mkdirat(f.d->fd, "snapshot", 0700), 0);
	f.dir = openat(f.d->fd, "snapshot", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd = openat(f.dir, "memory", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && ftruncate(fd, SIZE) == 0);
	assert_int_equal(pwrite(fd, f.d->path, strlen(f.d->path), SIZE / 2), strlen(f.d->path));
	assert_int_equal(pages_digest(fd, SIZE, -EBADF, f.digest), 0);
	(void)close(fd);
	return 0;
}

static void count(const char *name, void *arg)
{
	++*(int *)arg;
}

/* Ends all holders; returns how many there were. */
static int end_all(void)
{
	struct err e = ERR_INIT;
	int n = 0;

	if (hold_end_all(&f.run, count, &n, &e) < 0)
		fail_msg("%s", e.msg);
	return n;
}

static int teardown(void **state)
{
	(void)end_all();
	state_root_close(&f.run);
	(void)close(f.dir);
	return unit_dir_teardown(state);
}

static ino_t inode(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

/* Inode of the memory; 0 if there is none. */
static ino_t get(int *ret_r)
{
	struct err e = ERR_INIT;
	_cleanup_close_ int fd = -EBADF;
	int r = hold_get(&f.run, f.dir, SIZE, f.digest, &fd, &e);

	if (ret_r)
		*ret_r = r;
	else if (r < 0)
		fail_msg("%s", e.msg);
	return r < 0 ? 0 : inode(fd);
}

static size_t sockets(void)
{
	_cleanup_close_ int dir = openat(f.d->fd, "templates", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd_list(dir);
	const struct dirent *entry;
	size_t n = 0;

	assert_non_null(d);
	while ((entry = readdir(d)))
		n += str_has_suffix(entry->d_name, ".sock");
	(void)closedir(d);
	return n;
}

static struct sockaddr_un address(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "%s/templates/%.32s.sock", f.d->path,
		       f.digest);
	return a;
}

static int reach(void)
{
	const struct sockaddr_un a = address();
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(s >= 0);
	if (connect(s, (const struct sockaddr *)&a, sizeof(a)) == 0)
		return s;
	(void)close(s);
	return -ECONNREFUSED;
}

/* The process whose command line has our digest. */
static pid_t holder(void)
{
	DIR *d = opendir("/proc");
	struct dirent *entry;
	pid_t pid = 0;

	assert_non_null(d);
	while (!pid && (entry = readdir(d))) {
		_cleanup_buf_ struct buf b = BUF_INIT(4096);
		struct err e = ERR_INIT;
		char path[300];

		if (!ascii_is_digit(entry->d_name[0]))
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
		if (fd_read_file(AT_FDCWD, path, &b, &e) == 0 && b.len > 0 &&
		    str_eq(b.data, "hutch-hold") && memmem(b.data, b.len, f.digest, PAGES_HEX - 1))
			pid = (pid_t)strtol(entry->d_name, NULL, 10);
	}
	(void)closedir(d);
	return pid;
}

static bool eventually_gone(void)
{
	uint64_t end = clock_mono() + PATIENCE_S * NSEC_PER_SEC;

	while (holder() && clock_mono() < end)
		(void)poll(NULL, 0, 20);
	return !holder();
}

/* ---- tests ---- */

TEST_WITH(test_shared, setup, teardown)
{
	struct err e = ERR_INIT;
	_cleanup_close_ int a = -EBADF, b = -EBADF;
	const char *p;

	assert_int_equal(hold_get(&f.run, f.dir, SIZE, f.digest, &a, &e), 0);
	assert_int_equal(hold_get(&f.run, f.dir, SIZE, f.digest, &b, &e), 0);
	assert_int_equal(inode(a), inode(b));
	assert_true(hold_is_sealed(a, SIZE));
	p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, a, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(end_all(), 1);
	assert_true(eventually_gone());
	assert_int_equal(sockets(), 0);
	/* Existing mappings are unaffected. */
	assert_string_equal(p + SIZE / 2, f.d->path);
	(void)munmap((void *)p, SIZE);
	assert_true(get(NULL) != inode(a));
}

/* Exactly one of the clients starts it. */
TEST_WITH(test_at_once, setup, teardown)
{
	int pipes[2];
	ino_t first = 0;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	for (int i = 0; i < ASKERS; i++)
		if (fork() == 0) {
			ino_t mine = get(NULL);

			_exit(write(pipes[1], &mine, sizeof(mine)) != sizeof(mine));
		}
	for (int i = 0; i < ASKERS; i++) {
		ino_t one = 0;
		int status;

		assert_true(wait(&status) > 0 && status == 0);
		assert_int_equal(read(pipes[0], &one, sizeof(one)), sizeof(one));
		first = first ? first : one;
		assert_int_equal(one, first);
	}
	(void)close(pipes[0]);
	(void)close(pipes[1]);
	assert_int_equal(end_all(), 1);
}

/* The next caller makes a new holder; a socket without a process does no harm. */
TEST_WITH(test_killed, setup, teardown)
{
	ino_t before = get(NULL), after;
	pid_t pid = holder();

	assert_true(pid > 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_true(eventually_gone());
	assert_int_equal(sockets(), 1);
	after = get(NULL);
	assert_int_not_equal(before, after);
	pid = holder();
	assert_true(pid > 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_true(eventually_gone());
	(void)end_all();
	assert_int_equal(sockets(), 0);
}

/* Killed at any moment: a caller gets the memory in the end or an error, and never hangs. */
TEST_WITH(test_killed_at_random, setup, teardown)
{
	srandom(3);
	for (int i = 0; i < 20; i++) {
		pid_t asker = fork(), pid;
		int status;

		if (asker == 0) {
			int r;

			/* -EIO: killed before it had begun. */
			_exit(get(&r) == 0 && r != -EPIPE && r != -ECONNRESET && r != -EIO);
		}
		(void)poll(NULL, 0, (int)(random() % 12));
		pid = holder();
		if (pid > 0)
			(void)kill(pid, SIGKILL);
		assert_int_equal(waitpid(asker, &status, 0), asker);
		assert_int_equal(status, 0);
	}
	assert_true(get(NULL) != 0);
}

TEST_WITH(test_damaged, setup, teardown)
{
	_cleanup_close_ int fd = openat(f.dir, "memory", O_RDWR | O_CLOEXEC);
	int r;

	assert_int_equal(pwrite(fd, "x", 1, 100), 1);
	assert_int_equal(get(&r), 0);
	assert_int_equal(r, -EBADMSG);
	assert_true(eventually_gone());
	assert_int_equal(pwrite(fd, "\0", 1, 100), 1);
	assert_true(get(NULL) != 0);
}

TEST_WITH(test_ends_by_itself, setup, teardown)
{
	assert_int_equal(setenv("HUTCH_HOLD_SECONDS", "1", 1), 0);
	assert_true(get(NULL) != 0);
	assert_true(holder() != 0);
	assert_true(eventually_gone());
	assert_int_equal(sockets(), 0);
}

TEST_WITH(test_ends_with_its_snapshot, setup, teardown)
{
	assert_true(get(NULL) != 0);
	assert_int_equal(renameat(f.d->fd, "snapshot", f.d->fd, "tmp-away"), 0);
	assert_true(eventually_gone());
	assert_true(get(NULL) != 0);
	assert_int_equal(unlinkat(f.dir, "memory", 0), 0);
	assert_true(holder() != 0);
	f.dir = fd_close(f.dir);
	assert_int_equal(unlinkat(f.d->fd, "tmp-away", AT_REMOVEDIR), 0);
	assert_true(eventually_gone());
}

/* Clients that send nothing, or something else, delay no other client. */
TEST_WITH(test_odd_clients, setup, teardown)
{
	ino_t one = get(NULL);
	int silent = reach(), odd = reach(), large = reach(), gone = reach();
	static const char much[1000];

	assert_int_equal(send(odd, "x", 1, 0), 1);
	assert_int_equal(send(large, much, sizeof(much), 0), sizeof(much));
	(void)close(gone);
	assert_int_equal(get(NULL), one);
	(void)close(silent);
	(void)close(odd);
	(void)close(large);
	assert_int_equal(get(NULL), one);
}

/* Checks its confinement in /proc. */
TEST_WITH(test_locked_down, setup, teardown)
{
	static const char *const wanted[] = { "\nSeccomp:\t2\n", "\nNoNewPrivs:\t1\n",
					      "\nCapPrm:\t0000000000000000\n",
					      "\nCapEff:\t0000000000000000\n" };
	_cleanup_buf_ struct buf b = BUF_INIT(16384);
	struct err e = ERR_INIT;
	char path[64];

	assert_true(get(NULL) != 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/status", (int)holder());
	assert_int_equal(fd_read_file(AT_FDCWD, path, &b, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		assert_non_null(strstr(buf_text(&b), wanted[i]));
}

TEST_WITH(test_not_installed, setup, teardown)
{
	int r;

	assert_int_equal(setenv("HUTCH_LIBEXEC_DIR", "/nowhere", 1), 0);
	assert_int_equal(get(&r), 0);
	assert_int_equal(r, -ENOENT);
	assert_int_equal(sockets(), 0);
}
