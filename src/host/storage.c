/* SPDX-License-Identifier: Apache-2.0 */
/* Storage: space and file system for images and sandboxes, and the tools for images. */
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/path.h"
#include "base/str.h"
#include "host/probe.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

enum {
	INODES_LOW = 100000
};

static const struct {
	long long magic;
	const char *name;
	bool foreign; /* cannot hold the upper layer of an overlay */
} types[] = {
	{ 0xef53, "ext4", false },	   { 0x58465342, "xfs", false },
	{ 0x9123683e, "btrfs", false },	   { 0x01021994, "tmpfs", false },
	{ 0xf2f52010, "f2fs", false },	   { 0x2fc12fc1, "zfs", false },
	{ 0xca451a4e, "bcachefs", false }, { 0x794c7630, "overlay", true },
	{ 0x6969, "nfs", true },	   { 0xff534d42, "cifs", true },
	{ 0xfe534d42, "smb", true },	   { 0x65735546, "fuse", true },
	{ 0x01021997, "9p", true },
};

static const char *type_name(long long magic, bool *ret_foreign)
{
	*ret_foreign = false;
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		if (types[i].magic == magic) {
			*ret_foreign = types[i].foreign;
			return types[i].name;
		}
	return "another file system";
}

/* Opens `dir` or its nearest existing parent; its name goes to `found`. */
static int open_nearest(int root_fd, const char *dir, char *found, size_t n)
{
	char parent[HOST_PATH_MAX];

	(void)snprintf(found, n, "%s", dir);
	for (;;) {
		int fd = openat(root_fd, str_eq(found, "/") ? "." : found + 1,
				O_PATH | O_DIRECTORY | O_CLOEXEC);

		if (fd >= 0 || str_eq(found, "/"))
			return fd < 0 ? -errno : fd;
		if (path_parent(found, parent, sizeof(parent)) < 0)
			return -ENAMETOOLONG;
		(void)snprintf(found, n, "%s", parent);
	}
}

static void show_size(uint64_t bytes, char *out, size_t n)
{
	if (bytes >= GIB)
		(void)snprintf(out, n, "%.1f GiB", (double)bytes / (double)GIB);
	else
		(void)snprintf(out, n, "%llu MiB", (unsigned long long)(bytes / MIB));
}

static void judge_room(struct host_check *c, const struct statfs *st, uint64_t least)
{
	uint64_t room = (uint64_t)st->f_bavail * (uint64_t)st->f_bsize;
	char want[32];

	if (room < least) {
		show_size(least, want, sizeof(want));
		c->state = HOST_WARN;
		check_detail(c, "less than %s", want);
		check_advice(c, "make room there, or mount a larger file system");
	}
	/* File systems without a fixed number of inodes report 0 of 0. */
	if (st->f_files > 0 && st->f_ffree < INODES_LOW) {
		c->state = HOST_WARN;
		check_detail(c, "only %llu inodes are free, and an image takes 20,000",
			     (unsigned long long)st->f_ffree);
		check_advice(c, "delete files there, or mount a file system with more inodes");
	}
}

static bool judge_dir(const struct probe_ctx *x, struct host_check *c, const char *dir,
		      const char *why_none, uint64_t least)
{
	_cleanup_close_ int fd = -EBADF;
	char found[HOST_PATH_MAX], room[32];
	const char *type;
	struct statfs st;
	bool foreign;

	if (!dir) {
		check_value(c, HOST_FAIL, "no directory");
		check_detail(c, "%s", why_none ? why_none : "unknown");
		return true;
	}
	fd = open_nearest(x->root_fd, dir, found, sizeof(found));
	if (fd < 0 || fstatfs(fd, &st) < 0) {
		check_value(c, HOST_FAIL, "%s cannot be read", found);
		check_advice(c, "check the permissions of %s", found);
		return true;
	}
	show_size((uint64_t)st.f_bavail * (uint64_t)st.f_bsize, room, sizeof(room));
	type = type_name((long long)(unsigned long)st.f_type, &foreign);
	check_value(c, HOST_OK, "%s: %s free, %s", dir, room, type);
	/* Tested as the caller with its capabilities: the result counts, not the mode. */
	if (faccessat(x->root_fd, str_eq(found, "/") ? "." : found + 1, W_OK, AT_EACCESS) < 0) {
		c->state = HOST_FAIL;
		check_detail(c, "%s: %s", found, strerror(errno));
		check_advice(c, "make %s writable for this user, or set another directory", found);
		return true;
	}
	if (foreign) {
		c->state = HOST_WARN;
		check_detail(c, "%s cannot hold the writable layer of an overlay", type);
		check_advice(c, "mount ext4, xfs or btrfs at %s", dir);
	}
	judge_room(c, &st, least);
	return true;
}

static bool probe_state(const struct probe_ctx *x, struct host_check *c)
{
	return judge_dir(x, c, x->state_dir, x->state_why, 5 * GIB);
}

static bool probe_run(const struct probe_ctx *x, struct host_check *c)
{
	return judge_dir(x, c, x->run_dir, x->run_why, 64 * MIB);
}

static bool is_memory(const struct probe_ctx *x, const char *dir)
{
	char found[HOST_PATH_MAX];
	_cleanup_close_ int fd = open_nearest(x->root_fd, dir, found, sizeof(found));
	struct statfs st;

	return fd >= 0 && fstatfs(fd, &st) == 0 && st.f_type == TMPFS_MAGIC;
}

/* A container's disk: scratch-disk.c of the engine has the requirements. */
static bool probe_disk(const struct probe_ctx *x, struct host_check *c)
{
	enum host_state state = HOST_FAIL;
	const char *need = NULL, *get = NULL;

	if (x->uid != 0) {
		check_value(c, HOST_INFO, "containers write to memory");
		check_detail(c,
			     "only root can mount a disk for a container; a microVM has its own");
		check_advice(c, "run hutch as root, or use --level microvm, if sandboxes write "
				"more than three quarters of --memory");
		return true;
	}
	if (faccessat(x->root_fd, "dev/loop-control", R_OK | W_OK, AT_EACCESS) < 0) {
		need = "/dev/loop-control is missing";
		get = "modprobe loop";
	} else if (x->facts->program[HOST_MKFS_EXT4].found < 0) {
		need = "mkfs.ext4 is missing";
		get = "apt-get install e2fsprogs";
	} else if (x->state_dir && is_memory(x, x->state_dir)) {
		need = "the directory of images is in memory, on a tmpfs";
		get = "set HUTCH_STATE_DIR to a directory on a disk";
		state = HOST_WARN;
	}
	if (need) {
		check_value(c, state, "no disk for containers");
		check_detail(c, "%s; only --scratch memory starts one", need);
		check_advice(c, "%s", get);
	} else {
		check_value(c, HOST_OK, "ext4 on loop devices; space is %s",
			    x->overcommit ? "allocated on write (disk_overcommit)"
					  : "reserved at the start");
	}
	return true;
}

static bool probe_tools(const struct probe_ctx *x, struct host_check *c)
{
	static const struct {
		enum host_program_id id;
		const char *package;
		enum host_state missing;
	} tools[] = {
		{ HOST_MMDEBSTRAP, "mmdebstrap", HOST_WARN },
		{ HOST_TAR, "tar", HOST_WARN },
		{ HOST_GZIP, "gzip", HOST_WARN },
		{ HOST_ZSTD, "zstd", HOST_INFO }, /* for imports only */
	};
	_cleanup_buf_ struct buf good = BUF_INIT(128), bad = BUF_INIT(128), get = BUF_INIT(128);
	enum host_state worst = HOST_OK;

	for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
		bool has = x->facts->program[tools[i].id].found == 0;

		(void)buf_printf(has ? &good : &bad, " %s", host_program_name(tools[i].id));
		if (has)
			continue;
		(void)buf_printf(&get, " %s", tools[i].package);
		worst = MAX(worst, tools[i].missing);
	}
	if (worst == HOST_OK) {
		check_value(c, HOST_OK, "%s", buf_text(&good) + 1);
		return true;
	}
	check_value(c, worst, "missing:%s", buf_text(&bad));
	check_detail(c, "there:%s", good.len ? buf_text(&good) : " none");
	check_advice(c, "apt-get install%s", buf_text(&get));
	return true;
}

const struct probe probe_storage[] = {
	{ "storage.state", "images", probe_state },
	{ "storage.run", "sandboxes", probe_run },
	{ "storage.disk", "disks", probe_disk },
	{ "storage.tools", "image tools", probe_tools },
	{ NULL, NULL, NULL },
};
