/* SPDX-License-Identifier: Apache-2.0 */
/* The rules, applied in this process below a directory; integration tests cover other ids. */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "fail.h"
#include "image/finish.h"
#include "image/ids.h"
#include "image/tree.h"
#include "image/unpack.h"
#include "test-image.h"

static int unpack(const struct unit_dir *d, enum unpack_pass pass, const struct buf *b,
		  struct image_counts *counts, struct err *e)
{
	struct memory m = { b->data, b->len, SIZE_MAX };
	struct unpack u = { .root = d->fd };
	int r = unpack_archive(&u, pass, memory_read, &m, e);

	if (counts)
		*counts = u.counts;
	return r;
}

static bool exists(const struct unit_dir *d, const char *name)
{
	struct stat st;

	return fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

TEST_IN_DIR(rules_are_kept)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct image_counts c;
	struct err e = ERR_INIT;
	struct stat st;

	if (geteuid() != 0)
		skip(); /* owners are set */
	(void)tar_put(&b, '0', "a/su", "", 04755, "x", 1);
	(void)tar_put(&b, '6', "p", "", 0644, "", 0);
	(void)tar_put(&b, '3', "n", "", 0644, "", 0);
	(void)tar_put(&b, '0', "proc/x", "", 0644, "x", 1);
	(void)tar_put(&b, '1', "h", "a/su", 0644, "", 0);
	(void)tar_put(&b, '2', "l", "/etc", 0777, "", 0);
	tar_end(&b);
	assert_int_equal(unpack(d, UNPACK_TAR, &b, &c, &e), 0);
	assert_int_equal(c.setids, 1);
	assert_int_equal(c.fifos, 1);
	assert_int_equal(c.devices, 1);
	assert_int_equal(c.covered, 1);
	assert_int_equal(c.entries, 6);
	assert_int_equal(fstatat(d->fd, "a/su", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0755);
	assert_int_equal(st.st_mtime, 1700000000);
	assert_int_equal(st.st_nlink, 2);
	assert_false(exists(d, "p") || exists(d, "n") || exists(d, "proc/x"));
	assert_int_equal(unpack_mount_points(d->fd, &e), 0);
	assert_true(exists(d, "proc"));
}

static void one_refused(const struct unit_dir *d, char type, const char *name, const char *link)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;

	(void)tar_put(&b, '2', "out", "/tmp", 0777, "", 0);
	(void)tar_put(&b, type, name, link, 0644, "", 0);
	tar_end(&b);
	assert_int_equal(unpack(d, UNPACK_TAR, &b, NULL, &e), -EINVAL);
}

TEST_IN_DIR(what_leads_out_is_refused)
{
	struct unit_dir *d = *state;

	if (geteuid() != 0)
		skip();
	one_refused(d, '0', "out/x", "");
	one_refused(d, '5', "out/x/y", "");
	one_refused(d, '2', "out/x", "y");
	one_refused(d, '1', "h", "out/x");
	one_refused(d, '1', "h", "nothing");
	one_refused(d, '1', "out", "out");
	one_refused(d, '2', "dev", "x");
	one_refused(d, '0', "run", "");
	one_refused(d, '2', ".", "x");
}

TEST_IN_DIR(whiteouts)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct image_counts c;
	struct err e = ERR_INIT;

	if (geteuid() != 0)
		skip();
	assert_int_equal(mkdirat(d->fd, "d", 0755), 0);
	unit_dir_write(d, "d/old", "x", 1);
	unit_dir_write(d, "gone", "x", 1);
	(void)tar_put(&b, '0', "d/new", "", 0644, "x", 1);
	(void)tar_put(&b, '0', "d/.wh..wh..opq", "", 0644, "", 0);
	(void)tar_put(&b, '0', ".wh.gone", "", 0644, "", 0);
	tar_end(&b);
	assert_int_equal(unpack(d, UNPACK_WHITEOUTS, &b, &c, &e), 0);
	assert_int_equal(c.whiteouts, 2);
	assert_false(exists(d, "d/old") || exists(d, "gone") || exists(d, "d/new"));
	assert_int_equal(unpack(d, UNPACK_LAYER, &b, &c, &e), 0);
	assert_true(exists(d, "d/new"));
	assert_false(exists(d, ".wh.gone"));
}

TEST_IN_DIR(faults_are_told)
{
	struct unit_dir *d = *state;
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;

	if (geteuid() != 0)
		skip();
	(void)tar_put(&b, '0', "a/b/f", "", 0644, "hello", 5);
	(void)tar_put(&b, '1', "h", "a/b/f", 0644, "", 0);
	(void)tar_put(&b, '2', "l", "x", 0777, "", 0);
	tar_end(&b);
	FAIL_SWEEP(unpack(d, UNPACK_TAR, &b, NULL, &e));
}

static void digest_hex(int fd, uint8_t out[static IMAGE_DIGEST])
{
	struct tree_info info = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(tree_digest(fd, NULL, NULL, &info, &e), 0);
	memcpy(out, info.digest, IMAGE_DIGEST);
}

TEST_IN_DIR(digests_see_every_change)
{
	struct unit_dir *d = *state;
	uint8_t first[IMAGE_DIGEST], now[IMAGE_DIGEST];

	assert_int_equal(mkdirat(d->fd, "d", 0755), 0);
	unit_dir_write(d, "d/f", "one", 3);
	assert_int_equal(symlinkat("f", d->fd, "d/l"), 0);
	digest_hex(d->fd, first);
	digest_hex(d->fd, now);
	assert_memory_equal(first, now, IMAGE_DIGEST);
	unit_dir_write(d, "d/f", "two", 3);
	digest_hex(d->fd, now);
	assert_memory_not_equal(first, now, IMAGE_DIGEST);
	unit_dir_write(d, "d/f", "one", 3);
	digest_hex(d->fd, now);
	assert_memory_equal(first, now, IMAGE_DIGEST);
	assert_int_equal(fchmodat(d->fd, "d/f", 0700, 0), 0);
	digest_hex(d->fd, now);
	assert_memory_not_equal(first, now, IMAGE_DIGEST);
	assert_int_equal(unlinkat(d->fd, "d/l", 0), 0);
	assert_int_equal(symlinkat("g", d->fd, "d/l"), 0);
	digest_hex(d->fd, first);
	assert_memory_not_equal(first, now, IMAGE_DIGEST);
}

TEST_IN_DIR(what_has_no_digest)
{
	struct unit_dir *d = *state;
	struct tree_info info;
	struct err e = ERR_INIT;

	assert_int_equal(mkfifoat(d->fd, "p", 0600), 0);
	assert_int_equal(tree_digest(d->fd, NULL, NULL, &info, &e), -EINVAL);
	assert_int_equal(tree_remove(d->fd, "p"), 0);
	unit_dir_write(d, "f", "x", 1);
	assert_int_equal(fchmodat(d->fd, "f", 04755, 0), 0);
	assert_int_equal(tree_digest(d->fd, NULL, NULL, &info, &e), -EINVAL);
	assert_int_equal(tree_empty(d->fd), 0);
	assert_int_equal(unit_dir_entries(d), 0);
	FAIL_SWEEP(tree_digest(d->fd, NULL, NULL, &info, &e));
}

TEST_IN_DIR(removing_follows_no_link)
{
	struct unit_dir *d = *state;

	assert_int_equal(mkdirat(d->fd, "keep", 0755), 0);
	unit_dir_write(d, "keep/f", "x", 1);
	assert_int_equal(mkdirat(d->fd, "tree", 0755), 0);
	assert_int_equal(symlinkat("../keep", d->fd, "tree/l"), 0);
	assert_int_equal(tree_remove(d->fd, "tree"), 0);
	assert_int_equal(tree_remove(d->fd, "tree"), 0);
	assert_true(exists(d, "keep/f"));
	assert_false(exists(d, "tree"));
}

TEST(accounts)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	assert_int_equal(finish_add_account(&b, "root", 0, "root:x:0:0::/root:/bin/sh\n"), 0);
	assert_int_equal(finish_add_account(&b, "user", 1000, "user:x:1000:1000::/:/bin/sh\n"), 0);
	assert_int_equal(finish_add_account(&b, "user", 1001, "user:x:1001:1::/:/bin/sh\n"), 0);
	assert_int_equal(finish_add_account(&b, "other", 1000, "other:x:1000:1::/:/bin/sh\n"), 0);
	assert_string_equal(buf_text(&b),
			    "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n");
	buf_reset(&b);
	(void)buf_puts(&b, "a:x:1:1"); /* no newline at the end */
	assert_int_equal(finish_add_account(&b, "u", 1000, "u:x:1000:\n"), 0);
	assert_string_equal(buf_text(&b), "a:x:1:1\nu:x:1000:\n");
}

TEST(ranges)
{
	static const char *const names[] = { "joe", "1000", NULL };
	uint32_t start = 0;

	assert_int_equal(ids_parse("", names, &start), -ENOENT);
	assert_int_equal(ids_parse("jo:1:65536\njoey:2:65536\n", names, &start), -ENOENT);
	assert_int_equal(
		ids_parse("joe:100:65535\njoe:0:65536\njoe:x:65536\njoe:1\njoe\n", names, &start),
		-ENOENT);
	assert_int_equal(ids_parse("joe:4294901760:65536\n", names, &start), -ENOENT);
	assert_int_equal(ids_parse("ann:1:65536\njoe:100000:65536", names, &start), 0);
	assert_int_equal(start, 100000);
	assert_int_equal(ids_parse("1000:5:70000\njoe:100000:65536", names, &start), 0);
	assert_int_equal(start, 5);
}
