/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "fail.h"

typedef int open_fn(int dirfd, const char *path, int flags, mode_t mode);

/* Opens and closes again: 0 or -errno. */
static int try(open_fn *f, const struct unit_dir *d, const char *path)
{
	_cleanup_close_ int fd = f(d->fd, path, O_RDONLY, 0);

	return fd < 0 ? fd : 0;
}

/* A file, and symbolic links to it, to its directory, out of the directory in two ways, and to
 * itself. */
static void furnish(const struct unit_dir *d)
{
	assert_int_equal(mkdirat(d->fd, "in", 0755), 0);
	unit_dir_write(d, "in/f", "x", 1);
	assert_int_equal(symlinkat("f", d->fd, "in/link"), 0);
	assert_int_equal(symlinkat("in", d->fd, "dirlink"), 0);
	assert_int_equal(symlinkat("/etc", d->fd, "out"), 0);
	assert_int_equal(symlinkat("in/../../..", d->fd, "up"), 0);
	assert_int_equal(symlinkat("loop", d->fd, "loop"), 0);
}

TEST_IN_DIR(inside_is_opened)
{
	struct unit_dir *d = *state;
	open_fn *const both[] = { path_open_beneath, path_open_nofollow };

	furnish(d);
	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		assert_int_equal(try(both[i], d, "in/f"), 0);
		assert_int_equal(try(both[i], d, "in//./f"), 0);
		assert_int_equal(try(both[i], d, "in/../in/f"), 0);
		assert_int_equal(try(both[i], d, "in/none"), -ENOENT);
		assert_int_equal(try(both[i], d, "in/f/x"), -ENOTDIR);
		assert_int_equal(try(both[i], d, ""), -ENOENT);
	}
}

TEST_IN_DIR(outside_is_inside_of_a_root)
{
	struct unit_dir *d = *state;

	furnish(d);
	assert_int_equal(symlinkat("/in/f", d->fd, "absolute"), 0);
	assert_int_equal(symlinkat("/../../in/f", d->fd, "above"), 0);
	assert_int_equal(try(path_open_in_root, d, "absolute"), 0);
	assert_int_equal(try(path_open_in_root, d, "above"), 0);
	assert_int_equal(try(path_open_in_root, d, "/in/f"), 0);
	assert_int_equal(try(path_open_in_root, d, "up/in/f"), 0);
	assert_int_equal(try(path_open_in_root, d, "out"), -ENOENT); /* /etc exists outside */
	assert_int_equal(try(path_open_in_root, d, "out/passwd"), -ENOENT);
	assert_int_equal(try(path_open_in_root, d, "loop"), -ELOOP);
}

TEST_IN_DIR(other_mounts_are_refused)
{
	_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct unit_dir top = { .fd = root };
	struct unit_dir *d = *state;

	furnish(d);
	assert_int_equal(symlinkat("/in/f", d->fd, "absolute"), 0);
	assert_int_equal(try(path_open_in_mount, d, "absolute"), 0);
	assert_int_equal(try(path_open_in_mount, d, "up/in/f"), 0);
	assert_int_equal(try(path_open_in_mount, d, "out"), -ENOENT);
	assert_int_equal(try(path_open_in_mount, &top, "proc/self/status"), -EXDEV);
	assert_int_equal(try(path_open_in_root, &top, "proc/version"), 0);
}

TEST_IN_DIR(outside_is_refused)
{
	struct unit_dir *d = *state;
	open_fn *const both[] = { path_open_beneath, path_open_nofollow };

	furnish(d);
	for (size_t i = 0; i < ARRAY_SIZE(both); i++) {
		assert_int_equal(try(both[i], d, ".."), -EXDEV);
		assert_int_equal(try(both[i], d, "in/../.."), -EXDEV);
		assert_int_equal(try(both[i], d, "/etc/passwd"), -EXDEV);
		assert_int_equal(try(both[i], d, "/"), -EXDEV);
	}
}

TEST_IN_DIR(links)
{
	struct unit_dir *d = *state;

	furnish(d);
	assert_int_equal(try(path_open_beneath, d, "in/link"), 0);
	assert_int_equal(try(path_open_beneath, d, "dirlink/f"), 0);
	assert_int_equal(try(path_open_beneath, d, "out/passwd"), -EXDEV);
	assert_int_equal(try(path_open_beneath, d, "up/etc"), -EXDEV);
	assert_int_equal(try(path_open_beneath, d, "loop"), -ELOOP);
	assert_int_equal(try(path_open_nofollow, d, "in/link"), -ELOOP);
	assert_int_equal(try(path_open_nofollow, d, "dirlink/f"), -ELOOP);
	assert_int_equal(try(path_open_nofollow, d, "out/passwd"), -ELOOP);
}

TEST(magic_links_are_refused)
{
	struct unit_dir proc = { .fd = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC) };

	assert_true(proc.fd >= 0);
	assert_int_equal(try(path_open_beneath, &proc, "status"), 0); /* the positive control */
	assert_int_equal(try(path_open_beneath, &proc, "fd/0"), -ELOOP);
	assert_int_equal(try(path_open_beneath, &proc, "cwd"), -ELOOP);
	assert_int_equal(try(path_open_beneath, &proc, "root/etc/passwd"), -ELOOP);
	assert_int_equal(try(path_open_nofollow, &proc, "exe"), -ELOOP);
	(void)fd_close(proc.fd);
}

TEST_IN_DIR(flags_and_modes)
{
	struct unit_dir *d = *state;
	_cleanup_close_ int made = -EBADF, tmp = -EBADF;
	mode_t was = umask(022);
	struct stat st;

	made = path_open_beneath(d->fd, "new", O_WRONLY | O_CREAT | O_EXCL, 0666);
	tmp = path_open_beneath(d->fd, ".", O_WRONLY | O_TMPFILE, 0600);
	(void)umask(was);
	assert_true(made >= 0);
	assert_int_equal(fcntl(made, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fstat(made, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_true(tmp >= 0 || tmp == -EOPNOTSUPP);
	assert_int_equal(path_open_beneath(d->fd, "new", O_WRONLY | O_CREAT | O_EXCL, 0666),
			 -EEXIST);
	/* A mode without O_CREAT is no error, as for open(2). */
	assert_int_equal(fd_close(path_open_beneath(d->fd, "new", O_RDONLY, 0600)), -EBADF);
}

TEST_IN_DIR(a_lost_race_is_tried_again)
{
	struct unit_dir *d = *state;

	furnish(d);
	fail_arm(1, EAGAIN);
	assert_int_equal(try(path_open_beneath, d, "in/f"), 0);
	assert_true(fail_reached());
	fail_off();
}

TEST_IN_DIR(a_lease_does_not_hold_us_for_ever)
{
	struct unit_dir *d = *state;
	_cleanup_close_ int holder = -EBADF;

	furnish(d);
	holder = openat(d->fd, "in/f", O_RDONLY | O_CLOEXEC);
	(void)signal(SIGIO, SIG_IGN); /* sent to the holder of a broken lease */
	if (fcntl(holder, F_SETLEASE, F_RDLCK) < 0)
		skip();
	assert_int_equal(path_open_beneath(d->fd, "in/f", O_WRONLY | O_NONBLOCK, 0), -EAGAIN);
	(void)signal(SIGIO, SIG_DFL);
}

TEST_IN_DIR(directories_are_made)
{
	struct unit_dir *d = *state;
	struct stat st;

	assert_int_equal(path_mkdirs(d->fd, "a/b//c/", 0700), 0);
	assert_int_equal(fstatat(d->fd, "a/b/c", &st, 0), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(path_mkdirs(d->fd, "a/b/c", 0755), 0); /* already there, and left as is */
	assert_int_equal(fstatat(d->fd, "a/b/c", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(path_mkdirs(d->fd, "", 0700), 0);
	assert_int_equal(path_mkdirs(d->fd, ".", 0700), 0);
	assert_int_equal(path_mkdirs(d->fd, "./a/./d", 0700), 0);
	assert_int_equal(fstatat(d->fd, "a/d", &st, 0), 0);
}

TEST_IN_DIR(directories_that_cannot_be)
{
	struct unit_dir *d = *state;
	char name[NAME_MAX + 2];

	furnish(d);
	memset(name, 'n', sizeof(name));
	name[NAME_MAX + 1] = '\0';
	assert_int_equal(path_mkdirs(d->fd, "/etc/x", 0700), -EINVAL);
	assert_int_equal(path_mkdirs(d->fd, "../x", 0700), -EXDEV);
	assert_int_equal(path_mkdirs(d->fd, "in/../../x", 0700), -EXDEV);
	assert_int_equal(path_mkdirs(d->fd, "out/x", 0700), -ELOOP);
	assert_int_equal(path_mkdirs(d->fd, "dirlink/x", 0700), -ELOOP);
	assert_int_equal(path_mkdirs(d->fd, "in/f/x", 0700), -ENOTDIR);
	assert_int_equal(path_mkdirs(d->fd, "in/f", 0700), -ENOTDIR);
	assert_int_equal(path_mkdirs(d->fd, name, 0700), -ENAMETOOLONG);
	assert_int_equal(path_mkdirs(-1, "x", 0700), -EBADF);
	assert_int_equal(faccessat(d->fd, "in/x", F_OK, 0), -1);
}

static int make_and_open(const struct unit_dir *d)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	/* rmdir(2) directly, so that every run starts without them. */
	(void)rmdir("sweep/a/b");
	(void)rmdir("sweep/a");
	(void)rmdir("sweep");
	r = path_mkdirs(d->fd, "sweep/a/b", 0700);
	if (r < 0)
		return r;
	fd = path_open_nofollow(d->fd, "sweep/a", O_PATH, 0);
	return fd < 0 ? fd : 0;
}

TEST_IN_DIR(sweeps)
{
	struct unit_dir *d = *state;

	assert_int_equal(fchdir(d->fd), 0);
	FAIL_SWEEP(make_and_open(d));
	assert_int_equal(chdir("/"), 0);
}

TEST(canonical)
{
	static const char *const good[][2] = {
		{ "/", "/" },	    { "///", "/" },	     { "/a", "/a" },
		{ "/a/", "/a" },    { "//a///b//", "/a/b" }, { "/.a/..b/...", "/.a/..b/..." },
		{ "/a b", "/a b" },
	};
	static const char *const bad[] = { "",	  "a",	  "a/b",  ".",	   "..",     "/.",
					   "/..", "/a/.", "/./a", "/a/..", "/a/../b" };
	char out[64];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(path_canonical(good[i][0], out, sizeof(out)), 0);
		assert_string_equal(out, good[i][1]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(path_canonical(bad[i], out, sizeof(out)), -EINVAL);
}

TEST(canonical_sizes)
{
	char name[NAME_MAX + 3] = "/", out[NAME_MAX + 10];

	assert_int_equal(path_canonical("/abc", out, 5), 0);
	assert_string_equal(out, "/abc");
	assert_int_equal(path_canonical("/abc", out, 4), -ENAMETOOLONG);
	assert_int_equal(path_canonical("/abc///", out, 5), 0);
	assert_int_equal(path_canonical("/", out, 2), 0);
	assert_int_equal(path_canonical("/", out, 1), -ENAMETOOLONG);
	assert_int_equal(path_canonical("/", out, 0), -ENAMETOOLONG);
	memset(name + 1, 'n', NAME_MAX);
	assert_int_equal(path_canonical(name, out, sizeof(out)), 0);
	name[NAME_MAX + 1] = 'n';
	assert_int_equal(path_canonical(name, out, sizeof(out)), -ENAMETOOLONG);
}

TEST(parents)
{
	static const char *const want[][2] = {
		{ "a/b", "a" }, { "a", "." },	      { "/a", "/" }, { "/", "/" },
		{ "a/", "a" },	{ "/a/b/c", "/a/b" }, { "..", "." }, { "", "." },
	};
	char out[8];

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		assert_int_equal(path_parent(want[i][0], out, sizeof(out)), 0);
		assert_string_equal(out, want[i][1]);
	}
	assert_int_equal(path_parent("abc/d", out, 4), 0);
	assert_int_equal(path_parent("abc/d", out, 3), -ENAMETOOLONG);
	assert_int_equal(path_parent("a", out, 1), -ENAMETOOLONG);
}
