/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox's disk: an ext4 of the size that its policy allows, which is all the sandbox can write.
 * mkfs takes tens of milliseconds, so hutch keeps an empty one of each size and copies it. Most of
 * it is a hole, as is most of the copy.
 *
 * It has no journal: the disk is deleted with its sandbox, and a disk in a snapshot was stopped
 * together with its memory, not cut off. Its inode tables count as zeroed, since they are in a
 * hole, so the guest does not write them either.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "base/path.h"
#include "vm/home.h"
#include "vm/tool-run.h"

#define DISK_MIN (UINT64_C(1) << 20)
#define DISK_MAX (UINT64_C(16) << 40)

enum {
	BLOCK = 4096,
	INODE_BYTES = 4096, /* bytes per inode, as for a container */
	INODES_MIN = 4096,
	INODES_MAX = 1024 * 1024,
};

static int make_blank(const char *path, uint64_t size, const int *lock, struct err *e)
{
	char inodes[24];
	const char *const argv[] = {
		"mkfs.ext4",
		"-q",
		"-F",
		"-b",
		"4096",
		"-m",
		"0",
		"-O",
		"^has_journal,^resize_inode",
		"-N",
		inodes,
		"-U",
		"00000000-0000-4000-8000-000000000001",
		"-E",
		"root_owner=0:0,hash_seed=00000000-0000-4000-8000-000000000002",
		path,
		NULL
	};
	uint64_t n = MIN(MAX(size / INODE_BYTES, (uint64_t)INODES_MIN), (uint64_t)INODES_MAX);

	/* A small disk must have room for file contents, too. */
	(void)snprintf(inodes, sizeof(inodes), "%" PRIu64, MIN(n, size / (INODE_BYTES / 2)));
	return tool_run(&(struct tool){ .argv = argv,
					.package = "e2fsprogs",
					.in = -EBADF,
					.out = -EBADF,
					.hold = lock },
			e);
}

/* Creates it in `machine/tmp`, then moves it. The caller holds the lock. */
static int add_blank(int disks, const char *name, uint64_t size, const int *lock, struct err *e)
{
	_cleanup_close_ int tmp = -EBADF, fd = -EBADF;
	char home[IMAGE_HOME_MAX], path[IMAGE_HOME_MAX + 64];
	int r = machine_home_open("tmp", true, home, &tmp, e);

	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%s/%s", home, name);
	if (unlinkat(tmp, name, 0) < 0 && errno != ENOENT)
		return err_errno(e, "cannot remove '%s'", path);
	fd = openat(tmp, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		return err_errno(e, "cannot create '%s'", path);
	r = make_blank(path, size, lock, e);
	if (r < 0)
		return r;
	if (fsync(fd) < 0 || renameat(tmp, name, disks, name) < 0 || fsync(disks) < 0)
		return err_errno(e, "cannot store '%s'", path);
	return 0;
}

int machine_blank(uint64_t size, char ret[static 4096], struct err *e)
{
	_cleanup_close_ int disks = -EBADF, lock = -EBADF;
	char path[IMAGE_HOME_MAX], name[32];
	int r;

	if (size < DISK_MIN || size > DISK_MAX)
		return err_set(e, -EINVAL, "a sandbox's disk must have 1 MiB to 16 TiB");
	size -= size % BLOCK;
	r = machine_home_open("disks", true, path, &disks, e);
	if (r < 0)
		return r;
	(void)snprintf(name, sizeof(name), "%" PRIu64 ".ext4", size);
	if (faccessat(disks, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		r = machine_home_lock("disks", &lock, e);
		if (r == 0 && faccessat(disks, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			r = add_blank(disks, name, size, &lock, e);
	}
	if (r == 0)
		(void)snprintf(ret, 4096, "%s/%s", path, name);
	return r;
}
