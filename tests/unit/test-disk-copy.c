/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "snapshot/disk-copy.h"
#include "unit.h"

enum {
	SIZE = 4 << 20,
	AT = 1 << 20,
	DATA = 4096,
};

/* Free bytes of the file system, as the next calls of fstatvfs() see them; 0: ask the kernel. */
static uint64_t rooms[2];

int fstatvfs(int fd, struct statvfs *ret)
{
	char path[32];
	int r;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = statvfs(path, ret);
	if (rooms[0] > 0) {
		ret->f_frsize = ret->f_bsize = 4096;
		ret->f_blocks = (UINT64_C(10) << 30) / 4096;
		ret->f_bavail = rooms[0] / 4096;
		rooms[0] = rooms[1];
	}
	return r;
}

static int make(const struct unit_dir *d, off_t size)
{
	char data[DATA];
	int fd = openat(d->fd, "disk", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	memset(data, 'x', sizeof(data));
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	assert_int_equal(pwrite(fd, data, sizeof(data), AT), DATA);
	return fd;
}

TEST_IN_DIR(a_reserved_disk_has_its_blocks)
{
	struct unit_dir *d = *state;
	_cleanup_close_ int from = make(d, SIZE), to = -EBADF;
	struct err e = ERR_INIT;
	char data[DATA];
	struct stat st;

	assert_int_equal(disk_new(d->fd, from, &to, &e), 0);
	assert_int_equal(fstat(to, &st), 0);
	assert_true(st.st_blocks * 512 < SIZE / 2);
	assert_int_equal(disk_reserve(to, "here", &e), 0);
	assert_int_equal(fstat(to, &st), 0);
	assert_int_equal(st.st_size, SIZE);
	assert_true(st.st_blocks * 512 >= SIZE);
	assert_int_equal(pread(to, data, DATA, AT), DATA);
	assert_true(data[0] == 'x' && memcmp(data, data + 1, DATA - 1) == 0);
	assert_int_equal(pread(to, data, 1, 0), 1);
	assert_int_equal(data[0], 0);
	assert_int_equal(disk_reserve(to, "here", &e), 0);
}

TEST_IN_DIR(without_room_it_is_refused)
{
	struct unit_dir *d = *state;
	_cleanup_close_ int disk = make(d, INT64_C(8) << 40);
	struct err e = ERR_INIT;
	struct stat st;

	assert_int_equal(disk_reserve(disk, "/var/lib/hutch", &e), -ENOSPC);
	assert_non_null(strstr(e.msg, "no room for a disk of 8388608 MiB in /var/lib/hutch: "));
	assert_non_null(strstr(e.msg, " MiB must stay free; free "));
	assert_non_null(strstr(e.msg, "disk_overcommit: true in host.yaml"));
	assert_int_equal(fstat(disk, &st), 0);
	assert_true(st.st_blocks * 512 < SIZE);
}

static int reserve(const struct unit_dir *d, uint64_t before, uint64_t after)
{
	_cleanup_close_ int disk = make(d, SIZE);
	struct err e = ERR_INIT;
	int r;

	rooms[0] = before;
	rooms[1] = after;
	r = disk_reserve(disk, "here", &e);
	rooms[0] = rooms[1] = 0;
	return r;
}

TEST_IN_DIR(some_room_is_left)
{
	const uint64_t need = SIZE - DATA, metadata = 8192;
	struct unit_dir *d = *state;

	assert_int_equal(reserve(d, DISK_HEADROOM + need, DISK_HEADROOM - metadata), 0);
	assert_int_equal(reserve(d, DISK_HEADROOM + need - 4096, DISK_HEADROOM), -ENOSPC);
	/* Another process reserves a disk at the same time. */
	assert_int_equal(reserve(d, DISK_HEADROOM + 2 * need - 4096, DISK_HEADROOM), 0);
	assert_int_equal(reserve(d, DISK_HEADROOM + 2 * need - 4096, DISK_HEADROOM - need),
			 -ENOSPC);
}

TEST(a_file_that_cannot_be_reserved_is_refused)
{
	_cleanup_close_ int disk = open("/dev/null", O_RDWR | O_CLOEXEC);
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(disk_reserve(disk, "/dev", &e), -EINVAL);
	assert_non_null(strstr(e.msg, "cannot reserve room for a disk in /dev: "));
}
