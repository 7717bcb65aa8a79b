/* SPDX-License-Identifier: Apache-2.0 */
/* A packed tree is extracted unchanged; an invalid archive is refused and writes nothing. */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "fail.h"
#include "tar/extract.h"
#include "tar/pack.h"
#include "test-image.h"

static struct extract x;
static struct pack p;

static int unpack(const struct unit_dir *d, const char *top, const struct buf *b, size_t step,
		  struct err *e)
{
	struct memory m = { b->data, b->len, step };

	x = (struct extract){ .root = d->fd,
			      .top = top,
			      .read = memory_read,
			      .arg = &m,
			      .pipe = -EBADF,
			      .max_entries = 100,
			      .max_bytes = 1024 * 1024 };
	return extract_archive(&x, e);
}

static int put(void *arg, const void *data, size_t n)
{
	return buf_put(arg, data, n);
}

static int pack(const struct unit_dir *d, const char *path, const char *top, struct buf *b,
		struct err *e)
{
	p = (struct pack){ .write = put, .arg = b, .pipe = -EBADF };
	return pack_tree(&p, d->fd, path, top, e);
}

static struct stat look(const struct unit_dir *d, const char *name)
{
	struct stat st = { 0 };

	(void)fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW);
	return st;
}

static bool exists(const struct unit_dir *d, const char *name)
{
	return look(d, name).st_mode != 0;
}

static void expect_text(const struct unit_dir *d, const char *name, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1024);
	struct err e = ERR_INIT;

	assert_int_equal(fd_read_file(d->fd, name, &b, &e), 0);
	assert_string_equal(buf_text(&b), text);
}

static void make_tree(const struct unit_dir *d)
{
	char name[300] = "src/", deep[600] = "src";

	assert_int_equal(mkdirat(d->fd, "src", 0755), 0);
	for (int c = 1, n = 4; c < 256; c++)
		if (c != '/')
			name[n++] = (char)c;
	unit_dir_write(d, name, "all", 3);
	unit_dir_write(d, "src/f", "text", 4);
	assert_int_equal(fchmodat(d->fd, "src/f", 04751, 0), 0);
	assert_int_equal(symlinkat("../out of here", d->fd, "src/l"), 0);
	assert_int_equal(mkdirat(d->fd, "src/ro", 0755), 0);
	unit_dir_write(d, "src/ro/in", "", 0);
	assert_int_equal(fchmodat(d->fd, "src/ro", 0555, 0), 0);
	assert_int_equal(mkfifoat(d->fd, "src/p", 0644), 0);
	for (int i = 0; i < 4; i++) {
		size_t n = strlen(deep);

		memset(deep + n, 'd', 101);
		deep[n] = '/';
		deep[n + 100] = '\0';
		assert_int_equal(mkdirat(d->fd, deep, 0711), 0);
	}
}

TEST_IN_DIR(trees_come_out_as_they_were)
{
	const struct timespec t[2] = { { .tv_sec = 1500000000 }, { .tv_sec = 1500000000 } };
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024), again = BUF_INIT(1024 * 1024);
	struct err e = ERR_INIT;
	char target[32] = "";

	make_tree(d);
	assert_int_equal(utimensat(d->fd, "src/ro", t, 0), 0);
	assert_int_equal(pack(d, "src", "top", &b, &e), 0);
	assert_int_equal(p.special, 1);
	assert_int_equal(p.setids, 1);
	assert_int_equal(p.failed, 0);
	assert_int_equal(unpack(d, "copy", &b, 999, &e), 0);
	assert_int_equal(x.entries, p.entries);
	expect_text(d, "copy/f", "text");
	assert_int_equal(look(d, "copy/f").st_mode & 07777, 0751);
	assert_int_equal(look(d, "copy/ro").st_mode & 07777, 0555);
	assert_int_equal(look(d, "copy/ro").st_mtime, 1500000000);
	assert_true(exists(d, "copy/ro/in"));
	assert_false(exists(d, "copy/p"));
	assert_int_equal(readlinkat(d->fd, "copy/l", target, sizeof(target)), 14);
	assert_string_equal(target, "../out of here");
	/* Packed again, and extracted over itself, it is the same except for the order of
	 * directories. */
	assert_int_equal(unlinkat(d->fd, "src/p", 0), 0);
	assert_int_equal(pack(d, "copy", "top", &again, &e), 0);
	assert_int_equal(again.len, b.len);
	assert_int_equal(unpack(d, "copy", &again, SIZE_MAX, &e), 0);
	assert_int_equal(fchmodat(d->fd, "src/ro", 0755, 0), 0);
	assert_int_equal(fchmodat(d->fd, "copy/ro", 0755, 0), 0);
}

TEST_IN_DIR(a_file_can_be_packed_empty)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
	struct err e = ERR_INIT;

	assert_int_equal(mkdirat(d->fd, "src", 0755), 0);
	unit_dir_write(d, "src/id", "mine", 4);
	unit_dir_write(d, "src/f", "text", 4);
	p = (struct pack){ .write = put, .arg = &b, .pipe = -EBADF, .blank = "id" };
	assert_int_equal(pack_tree(&p, d->fd, "src", ".", &e), 0);
	assert_int_equal(unpack(d, "copy", &b, 999, &e), 0);
	expect_text(d, "copy/id", "");
	expect_text(d, "copy/f", "text");
}

/* Lists an archive in memory, one line for each entry. */
static void list(const struct buf *b, struct buf *out)
{
	static struct tar_entry en;
	struct memory m = { b->data, b->len, SIZE_MAX };
	struct tar t = { .read = memory_read, .arg = &m };
	struct err e = ERR_INIT;
	char skipped[512];

	while (tar_next(&t, &en, &e) > 0) {
		(void)buf_printf(out, "%s %d %04o %u:%u\n", en.name, (int)en.type, en.mode, en.uid,
				 en.gid);
		while (tar_read(&t, skipped, sizeof(skipped), &e) > 0)
			;
	}
	assert_int_equal(e.num, 0);
}

static int pack_root(const struct unit_dir *d, struct buf *b, struct err *e)
{
	p = (struct pack){ .write = put, .arg = b, .pipe = -EBADF, .owners = true };
	return pack_tree(&p, d->fd, "root", ".", e);
}

static bool has_line(const struct buf *b, const char *line)
{
	return strstr(buf_text(b), line) != NULL;
}

/* Owners, and files that exist only while a sandbox runs. */
TEST_IN_DIR(roots_are_packed_for_images)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(65536), lines = BUF_INIT(65536);
	struct err e = ERR_INIT;
	char own[64];

	for (size_t i = 0; i < 7; i++) {
		static const char *const dirs[] = { "root",	    "root/tmp",	     "root/dev",
						    "root/home",    "root/home/tmp", "root/run",
						    "root/run/lock" };

		assert_int_equal(mkdirat(d->fd, dirs[i], 0755), 0);
	}
	assert_int_equal(fchmodat(d->fd, "root/tmp", 01777, 0), 0);
	unit_dir_write(d, "root/tmp/gone", "x", 1);
	unit_dir_write(d, "root/dev/null", "x", 1);
	unit_dir_write(d, "root/run/gone.pid", "x", 1);
	unit_dir_write(d, "root/home/tmp/kept", "x", 1);
	assert_int_equal(fchmodat(d->fd, "root/home/tmp/kept", 04640, 0), 0);
	if (geteuid() == 0)
		assert_int_equal(fchownat(d->fd, "root/home/tmp/kept", 1000, 65534, 0), 0);
	assert_int_equal(pack_root(d, &b, &e), 0);
	list(&b, &lines);
	(void)snprintf(own, sizeof(own), "home/tmp/kept 0 0640 %u:%u\n",
		       geteuid() == 0 ? 1000 : geteuid(), geteuid() == 0 ? 65534 : getegid());
	assert_true(has_line(&lines, own));
	assert_true(has_line(&lines, "tmp 3 1777 "));
	assert_true(has_line(&lines, "dev 3 0755 "));
	assert_true(has_line(&lines, "run/lock 3 0755 "));
	assert_false(has_line(&lines, "gone"));
	assert_false(has_line(&lines, "null"));
	assert_int_equal(p.failed, 0);
	/* pack() writes 0:0 as the owner and leaves nothing out. */
	buf_reset(&b);
	buf_reset(&lines);
	assert_int_equal(pack(d, "root", ".", &b, &e), 0);
	list(&b, &lines);
	assert_true(has_line(&lines, "tmp/gone 0 0644 0:0\n"));
	assert_true(has_line(&lines, "home/tmp/kept 0 0640 0:0\n"));
	/* An image has no such owner. */
	if (geteuid() == 0) {
		assert_int_equal(fchownat(d->fd, "root/home/tmp/kept", 65536, 0, 0), 0);
		buf_reset(&b);
		assert_int_equal(pack_root(d, &b, &e), 0);
		assert_int_equal(p.failed, 1);
		assert_string_equal(p.first, "'home/tmp/kept': an image has no such owner");
	}
}

TEST_IN_DIR(contents_go_into_the_root)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;

	(void)tar_put(&b, '5', "./", "", 0700, "", 0);
	(void)tar_put(&b, '0', "./a/f", "", 0600, "x", 1);
	tar_end(&b);
	assert_int_equal(unpack(d, ".", &b, SIZE_MAX, &e), 0);
	expect_text(d, "a/f", "x");
	assert_int_equal(look(d, "a").st_mode & 07777, 0755);
	assert_int_equal(unpack(d, NULL, &b, SIZE_MAX, &e), 0);
	assert_int_equal(unpack(d, "new", &b, SIZE_MAX, &e), 0);
	expect_text(d, "new/a/f", "x");
}

static const struct {
	char type;
	const char *name, *link;
	unsigned int mode;
	const char *says;
} wrong[] = {
	{ '0', "../x", "", 0644, "'..'" },
	{ '0', "a/../../x", "", 0644, "'..'" },
	{ '0', "/x", "", 0644, "absolute" },
	{ '0', "out/x", "", 0644, "behind a symbolic link" },
	{ '0', "out/y/x", "", 0644, "behind a symbolic link" },
	{ '5', "out", "", 0755, "behind a symbolic link" },
	{ '2', "out/l", "x", 0777, "behind a symbolic link" },
	{ '1', "h", "out/canary", 0644, "missing file" },
	{ '1', "h", "../canary", 0644, "'..'" },
	{ '1', "h", "/canary", 0644, "absolute" },
	{ '1', "h", "out", 0644, "not a file" },
	{ '1', "h", "h", 0644, "itself" },
	{ '3', "n", "", 0644, "devices" },
	{ '4', "n", "", 0644, "devices" },
	{ '6', "n", "", 0644, "FIFOs" },
	{ '0', "s", "", 04755, "set-ID" },
	{ '0', "s", "", 02755, "set-ID" },
	{ '5', "s", "", 02755, "set-ID" },
	{ '0', "dir", "", 0644, "a directory of that name" },
	{ '2', "dir", "x", 0777, "a directory of that name" },
	{ '5', "file", "", 0755, "not a directory" },
	{ '0', "file/x", "", 0644, "not a directory" },
};

TEST_IN_DIR(what_may_not_be_is_refused)
{
	struct unit_dir *d = *state;

	assert_int_equal(mkdirat(d->fd, "in", 0755), 0);
	unit_dir_write(d, "canary", "safe", 4);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(65536);
		struct unit_dir in = { .fd = openat(d->fd, "in", O_RDONLY | O_DIRECTORY) };
		struct err e = ERR_INIT;

		(void)snprintf(in.path, sizeof(in.path), "%.50s/in", d->path);
		(void)tar_put(&b, '2', "out", "..", 0777, "", 0);
		(void)tar_put(&b, '5', "dir", "", 0755, "", 0);
		(void)tar_put(&b, '0', "file", "", 0644, "", 0);
		(void)tar_put(&b, wrong[i].type, wrong[i].name, wrong[i].link, wrong[i].mode, "",
			      0);
		tar_end(&b);
		assert_int_equal(unpack(&in, NULL, &b, SIZE_MAX, &e), -EINVAL);
		if (!strstr(e.msg, wrong[i].says))
			fail_msg("'%s' is not in: %s", wrong[i].says, e.msg);
		assert_int_equal(unit_dir_entries(d), 2);
		assert_int_equal(unit_dir_entries(&in), 3);
		expect_text(d, "canary", "safe");
		(void)fd_close(in.fd);
	}
}

TEST_IN_DIR(limits_hold)
{
	static char data[2000];
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024), large = BUF_INIT(4 * 1024 * 1024);
	struct err e = ERR_INIT;
	size_t at;

	for (int i = 0; i < 101; i++) {
		char name[16];

		(void)snprintf(name, sizeof(name), "t/%d", i);
		(void)tar_put(&b, '0', name, "", 0644, data, i);
	}
	tar_end(&b);
	assert_int_equal(unpack(d, NULL, &b, SIZE_MAX, &e), -EFBIG);
	assert_int_equal(x.entries, 100);
	/* The size is checked before the bytes arrive. */
	at = tar_put(&large, '0', "huge", "", 0644, "", 0);
	(void)snprintf(large.data + at + 124, 12, "%011o", 1024 * 1024);
	tar_sum(large.data + at);
	assert_int_equal(unpack(d, NULL, &large, SIZE_MAX, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "larger than allowed"));
	assert_false(exists(d, "huge"));
	/* Headers count too. */
	buf_reset(&large);
	for (int i = 0; i < 2000; i++)
		(void)tar_put(&large, 'g', "x", "", 0, "13 comment=a\n", 13);
	assert_int_equal(unpack(d, NULL, &large, SIZE_MAX, &e), -EFBIG);
}

TEST_IN_DIR(one_top_is_one_top)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;

	(void)tar_put(&b, '5', "a", "", 0755, "", 0);
	(void)tar_put(&b, '0', "b", "", 0644, "x", 1);
	tar_end(&b);
	assert_int_equal(unpack(d, "new", &b, SIZE_MAX, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "outside of the requested path"));
	assert_true(exists(d, "new"));
	assert_false(exists(d, "b"));
}

TEST_IN_DIR(files_are_replaced_whole)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;

	unit_dir_write(d, "f", "old", 3);
	unit_dir_write(d, "other", "other", 5);
	assert_int_equal(symlinkat("other", d->fd, "l"), 0);
	(void)tar_put(&b, '0', "f", "", 0644, "new", 3);
	for (size_t n = 0; n < b.len; n++) {
		struct buf cut = { .data = b.data, .len = n };

		assert_int_equal(unpack(d, NULL, &cut, SIZE_MAX, &e), -EINVAL);
		if (n < b.len - TAR_BLOCK + 3)
			expect_text(d, "f", "old");
		assert_int_equal(unit_dir_entries(d), 3);
	}
	(void)tar_put(&b, '0', "l", "", 0644, "link", 4);
	tar_end(&b);
	assert_int_equal(unpack(d, NULL, &b, SIZE_MAX, &e), 0);
	expect_text(d, "f", "new");
	expect_text(d, "l", "link");
	expect_text(d, "other", "other");
	assert_true(S_ISREG(look(d, "l").st_mode));
}

struct pipe {
	int fds[2];
};

static int put_pipe(void *arg, const void *data, size_t n)
{
	const struct pipe *pp = arg;

	return fd_write_all(pp->fds[1], data, n);
}

static int64_t get_pipe(void *arg, void *buf, size_t n, struct err *e)
{
	const struct pipe *pp = arg;

	return read(pp->fds[0], buf, MIN(n, (size_t)TAR_BLOCK));
}

/* As in the guest: the archive is in a pipe, and large files are spliced. */
TEST_IN_DIR(large_files_go_by_pipe)
{
	enum {
		SIZE = 700 * 1024 + 1
	};
	static char data[SIZE];
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(2 * SIZE);
	struct err e = ERR_INIT;
	struct pipe pp;

	for (size_t i = 0; i < SIZE; i++)
		data[i] = (char)(i * 31 >> 3);
	unit_dir_write(d, "f", data, SIZE);
	assert_int_equal(pipe2(pp.fds, O_CLOEXEC), 0);
	assert_true(fcntl(pp.fds[0], F_SETPIPE_SZ, 1024 * 1024) > 0);
	p = (struct pack){ .write = put_pipe, .arg = &pp, .pipe = pp.fds[1] };
	assert_int_equal(pack_tree(&p, d->fd, "f", "f", &e), 0);
	assert_int_equal(p.bytes, SIZE);
	(void)close(pp.fds[1]);
	x = (struct extract){ .root = d->fd,
			      .top = "g",
			      .read = get_pipe,
			      .arg = &pp,
			      .pipe = pp.fds[0],
			      .max_entries = 1,
			      .max_bytes = 1024 * 1024 };
	assert_int_equal(extract_archive(&x, &e), 0);
	assert_int_equal(x.bytes, SIZE);
	(void)close(pp.fds[0]);
	assert_int_equal(fd_read_file(d->fd, "g", &b, &e), 0);
	assert_int_equal(b.len, SIZE);
	assert_memory_equal(b.data, data, SIZE);
}
