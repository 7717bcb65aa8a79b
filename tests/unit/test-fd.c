/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/str.h"
#include "fail.h"

static mode_t mode_of(const struct unit_dir *d, const char *name)
{
	struct stat st;

	assert_int_equal(fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
	return st.st_mode;
}

static void assert_contents(const struct unit_dir *d, const char *name, const char *want)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct err e = ERR_INIT;

	assert_int_equal(fd_read_file(d->fd, name, &b, &e), 0);
	assert_string_equal(buf_text(&b), want);
}

TEST(close_keeps_errno)
{
	errno = EXDEV;
	assert_int_equal(fd_close(-EBADF), -EBADF);
	assert_int_equal(fd_close(1000000), -EBADF);
	assert_int_equal(errno, EXDEV);
}

TEST_IN_DIR(writes_and_reads_all)
{
	struct unit_dir *d = *state;
	_cleanup_close_ int fd = openat(d->fd, "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	_cleanup_buf_ struct buf b = BUF_INIT(300000);
	_cleanup_free_ char *data = malloc(200000);

	memset(data, 'q', 200000);
	assert_int_equal(fd_write_all(fd, data, 200000), 0);
	assert_int_equal(fd_write_all(fd, NULL, 0), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(buf_puts(&b, "before:"), 0);
	assert_int_equal(fd_read_all(fd, &b), 0);
	assert_int_equal(b.len, 200007);
	assert_memory_equal(b.data, "before:qqq", 10);
	assert_memory_equal(b.data + 7, data, 200000);
}

TEST(bad_descriptors)
{
	_cleanup_buf_ struct buf b = BUF_INIT(10);

	assert_int_equal(fd_write_all(-1, "x", 1), -EBADF);
	assert_int_equal(fd_read_all(-1, &b), -EBADF);
}

TEST_IN_DIR(the_maximum_is_exact)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf enough = BUF_INIT(5), little = BUF_INIT(4), none = BUF_INIT(0);
	struct err e = ERR_INIT;

	unit_dir_write(d, "five", "12345", 5);
	unit_dir_write(d, "empty", "", 0);
	assert_int_equal(fd_read_file(d->fd, "five", &enough, &e), 0);
	assert_string_equal(buf_text(&enough), "12345");
	assert_int_equal(fd_read_file(d->fd, "five", &little, &e), -EFBIG);
	assert_string_equal(e.msg, "cannot read 'five': larger than 4 bytes");
	assert_int_equal(fd_read_file(d->fd, "five", &none, &e), -EFBIG);
	assert_int_equal(fd_read_file(d->fd, "empty", &none, &e), 0);
}

TEST_IN_DIR(a_full_buffer_stays_in_error)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(5);
	struct err e = ERR_INIT;

	unit_dir_write(d, "f", "x", 1);
	assert_int_equal(buf_puts(&b, "too long"), -ENOBUFS);
	assert_int_equal(fd_read_file(d->fd, "f", &b, &e), -ENOBUFS);
}

TEST_IN_DIR(only_regular_files_are_read)
{
	struct unit_dir *d = *state;
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	_cleanup_close_ int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	_cleanup_buf_ struct buf b = BUF_INIT(100);
	struct err e = ERR_INIT;

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/sock", d->path);
	assert_int_equal(bind(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(mkfifoat(d->fd, "fifo", 0600), 0);
	assert_int_equal(fd_read_file(d->fd, "fifo", &b, &e), -EINVAL); /* and does not wait */
	assert_string_equal(e.msg, "cannot read 'fifo': not a regular file");
	assert_int_equal(fd_read_file(AT_FDCWD, "/dev/zero", &b, &e), -EINVAL);
	assert_int_equal(fd_read_file(d->fd, ".", &b, &e), -EISDIR);
	assert_int_equal(fd_read_file(d->fd, "sock", &b, &e), -ENXIO);
	assert_int_equal(fd_read_file(d->fd, "missing", &b, &e), -ENOENT);
	assert_string_equal(e.msg, "cannot read 'missing': No such file or directory");
	assert_int_equal(b.len, 0);
}

TEST(files_of_proc_are_read)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100000);
	struct err e = ERR_INIT;

	assert_int_equal(fd_read_file(AT_FDCWD, "/proc/self/status", &b, &e), 0);
	assert_true(str_has_prefix(buf_text(&b), "Name:"));
}

TEST_IN_DIR(first_lines)
{
	struct unit_dir *d = *state;
	char big[4097], out[8] = "old";

	memset(big, 'x', sizeof(big));
	unit_dir_write(d, "two", "seven77\nrest\n", 13);
	unit_dir_write(d, "open", "abc", 3);
	unit_dir_write(d, "empty", "", 0);
	unit_dir_write(d, "eight", "eight888\n", 9);
	unit_dir_write(d, "big", big, sizeof(big));
	assert_int_equal(fd_read_line(d->fd, "eight", out, sizeof(out)), -EFBIG);
	assert_int_equal(fd_read_line(d->fd, "big", out, sizeof(out)), -EFBIG);
	assert_int_equal(fd_read_line(d->fd, "missing", out, sizeof(out)), -ENOENT);
	assert_int_equal(fd_read_line(d->fd, ".", out, sizeof(out)), -EISDIR);
	assert_int_equal(fd_read_line(d->fd, "two", out, 0), -EFBIG);
	assert_string_equal(out, "old"); /* written only on success */
	assert_int_equal(fd_read_line(d->fd, "two", out, sizeof(out)), 0);
	assert_string_equal(out, "seven77");
	assert_int_equal(fd_read_line(d->fd, "open", out, sizeof(out)), 0);
	assert_string_equal(out, "abc");
	assert_int_equal(fd_read_line(d->fd, "empty", out, sizeof(out)), 0);
	assert_string_equal(out, "");
}

TEST_IN_DIR(replace_makes_and_replaces)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	assert_int_equal(fd_replace_file(d->fd, "f", 0640, "one", 3, &e), 0);
	assert_contents(d, "f", "one");
	assert_int_equal(fd_replace_file(d->fd, "f", 0640, "zwei", 4, &e), 0);
	assert_contents(d, "f", "zwei");
	assert_int_equal(fd_replace_file(d->fd, "f", 0640, NULL, 0, &e), 0);
	assert_contents(d, "f", "");
	assert_int_equal(unit_dir_entries(d), 1);
}

TEST_IN_DIR(the_mode_is_the_one_asked_for)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;
	mode_t was = umask(0777);
	int r = fd_replace_file(d->fd, "open", 0666, "x", 1, &e);

	(void)umask(0);
	if (r == 0)
		r = fd_replace_file(d->fd, "secret", 0600, "x", 1, &e);
	(void)umask(was);
	assert_int_equal(r, 0);
	assert_int_equal(mode_of(d, "open") & 07777, 0666);
	assert_int_equal(mode_of(d, "secret") & 07777, 0600);
}

TEST_IN_DIR(an_open_reader_keeps_the_old_file)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(100);
	_cleanup_close_ int fd = -EBADF;
	struct err e = ERR_INIT;

	unit_dir_write(d, "f", "old contents", 12);
	fd = openat(d->fd, "f", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fd_replace_file(d->fd, "f", 0600, "new", 3, &e), 0);
	assert_int_equal(fd_read_all(fd, &b), 0);
	assert_string_equal(buf_text(&b), "old contents");
	assert_contents(d, "f", "new");
}

TEST_IN_DIR(a_link_is_replaced_not_followed)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	unit_dir_write(d, "target", "safe", 4);
	assert_int_equal(symlinkat("target", d->fd, "link"), 0);
	assert_int_equal(fd_replace_file(d->fd, "link", 0600, "new", 3, &e), 0);
	assert_contents(d, "target", "safe");
	assert_contents(d, "link", "new");
	assert_true(S_ISREG(mode_of(d, "link")));
}

TEST_IN_DIR(replace_in_a_subdirectory)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	assert_int_equal(mkdirat(d->fd, "sub", 0700), 0);
	assert_int_equal(fd_replace_file(d->fd, "sub/f", 0600, "x", 1, &e), 0);
	assert_contents(d, "sub/f", "x");
	assert_int_equal(fd_replace_file(d->fd, "none/f", 0600, "x", 1, &e), -ENOENT);
	assert_string_equal(e.msg, "cannot write 'none/f': No such file or directory");
}

TEST_IN_DIR(replace_leaves_nothing_behind)
{
	struct unit_dir *d = *state;
	char name[5000];
	struct err e = ERR_INIT;

	assert_int_equal(mkdirat(d->fd, "dir", 0700), 0);
	assert_int_equal(fd_replace_file(d->fd, "dir", 0600, "x", 1, &e), -EISDIR);
	memset(name, 'n', sizeof(name));
	name[250] = '\0';
	assert_int_equal(fd_replace_file(d->fd, name, 0600, "x", 1, &e), -ENAMETOOLONG);
	name[250] = 'n';
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(fd_replace_file(d->fd, name, 0600, "x", 1, &e), -ENAMETOOLONG);
	assert_int_equal(unit_dir_entries(d), 1);
}

/* The complete old or new file, and never a temporary file. */
TEST_IN_DIR(faults_leave_the_old_file_or_the_new)
{
	struct unit_dir *d = *state;
	bool more = true;

	for (unsigned int n = 1; more; n++) {
		_cleanup_buf_ struct buf b = BUF_INIT(100);
		struct err e = ERR_INIT;
		int r;

		unit_dir_write(d, "f", "old", 3);
		fail_arm(n, ENOSPC);
		r = fd_replace_file(d->fd, "f", 0600, "new", 3, &e);
		more = fail_reached();
		fail_off();
		assert_int_equal(r, more ? -ENOSPC : 0);
		assert_int_equal(fd_read_file(d->fd, "f", &b, &e), 0);
		assert_true(str_eq(buf_text(&b), "new") || (r < 0 && str_eq(buf_text(&b), "old")));
		assert_int_equal(unit_dir_entries(d), 1);
	}
}

static int read_once(const struct unit_dir *d)
{
	_cleanup_buf_ struct buf b = BUF_INIT(100000);
	struct err e = ERR_INIT;
	char line[16];
	int r = fd_read_file(d->fd, "f", &b, &e);

	return r < 0 ? r : fd_read_line(d->fd, "f", line, sizeof(line));
}

static int replace_once(const struct unit_dir *d)
{
	struct err e = ERR_INIT;
	int r = fd_replace_file(d->fd, "f", 0600, "new", 3, &e);

	assert_int_equal(r, e.num);
	assert_true((r < 0) == (e.msg[0] != '\0'));
	return r;
}

TEST_IN_DIR(sweeps)
{
	struct unit_dir *d = *state;

	unit_dir_write(d, "f", "text", 4);
	FAIL_SWEEP(read_once(d));
	FAIL_SWEEP(replace_once(d));
}

static bool is_open(int fd)
{
	return fcntl(fd, F_GETFD) >= 0;
}

/* In a child, because it also closes cmocka's files. */
static int closes_others(void)
{
	int fds[6], kept[4];

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = fcntl(STDERR_FILENO, F_DUPFD, 100 + 10 * (int)i);
	kept[0] = fds[4];
	kept[1] = -EBADF;
	kept[2] = fds[1]; /* not in order, and one below the first */
	kept[3] = STDERR_FILENO;
	if (fd_close_others(fds[0], kept, ARRAY_SIZE(kept)) < 0)
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		if (is_open(fds[i]) != (i == 1 || i == 4))
			return 2;
	return is_open(STDERR_FILENO) && !is_open(fds[4] + 1) ? 0 : 3;
}

TEST(others_are_closed)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(closes_others());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}
