/* SPDX-License-Identifier: Apache-2.0 */
/* Receipt rows about the mounts of PID 1. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <linux/major.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "base/path.h"
#include "base/proc-hidden.h"
#include "base/str.h"
#include "engine/oci.h"
#include "engine/scratch.h"
#include "engine/verify.h"

enum {
	DEV_NAMES_MAX = 64
};

/* The only device nodes allowed in /dev. */
static const struct {
	const char *name, *path;
	unsigned int major, minor;
} devices[] = {
	{ "null", "/dev/null", 1, 3 },	     { "zero", "/dev/zero", 1, 5 },
	{ "full", "/dev/full", 1, 7 },	     { "random", "/dev/random", 1, 8 },
	{ "urandom", "/dev/urandom", 1, 9 }, { "tty", "/dev/tty", 5, 0 },
};

/* The image is the lower layer of an overlay, where the kernel never writes. Writes go to the upper
 * layer, the scratch. */
int verify_root(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	const struct text_mount *m = text_mount_at(&v->mounts, "/");
	struct span lower, upper;

	if (!m || !span_is(m->type, "overlay"))
		return err_set(e, -EPERM, "the root of PID 1 is not an overlay");
	/* The option's name depends on the call: mount(2) or fsconfig(2). */
	if (!(span_option(m->super, "lowerdir", &lower) ||
	      span_option(m->super, "lowerdir+", &lower)) ||
	    !span_is(lower, SCRATCH_LOWER) || !span_option(m->super, "upperdir", &upper) ||
	    !span_begins(upper, SCRATCH_SPACE "/"))
		return err_set(e, -EPERM, "the root of PID 1 is not the image below the scratch");
	if (!span_lists(m->options, "nosuid") || !span_lists(m->options, "nodev"))
		return err_set(e, -EPERM, "the root of PID 1 is not mounted nosuid,nodev");
	return sight_set(ret, "overlay, nosuid,nodev; the image is its lower layer %.*s",
			 (int)lower.n, lower.s);
}

/* Finds a writable tmpfs without a size limit: its default is half of the memory, and size 0 means
 * unlimited. */
static const struct text_mount *without_size(const struct text_mounts *all)
{
	for (size_t i = 0; i < all->n; i++) {
		const struct text_mount *m = &all->m[i];
		struct span size;

		if (!span_is(m->type, "tmpfs") || span_lists(m->options, "ro"))
			continue;
		if (!span_option(m->super, "size", &size) || span_is(size, "0k"))
			return m;
	}
	return NULL;
}

/* Checks the file system of the root's upper layer, the scratch, in this mount namespace. */
static int check_kind(const struct verify *v, const char **ret, struct err *e)
{
	struct statfs fs;
	struct stat st;

	if (statfs(SCRATCH_SPACE, &fs) < 0 || stat(SCRATCH_SPACE, &st) < 0)
		return err_errno(e, "cannot stat the scratch");
	if (fs.f_type == EXT4_SUPER_MAGIC && major(st.st_dev) == LOOP_MAJOR) {
		*ret = "on a disk: an ext4 of its own";
		return 0;
	}
	if (fs.f_type != TMPFS_MAGIC || !(v->s->spec->in_memory || v->s->rootless))
		return err_set(e, -EPERM, "the scratch is not the disk that was asked for");
	*ret = "in memory: a tmpfs, which counts as memory";
	return 0;
}

int verify_disk(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	_cleanup_close_ int root = verify_open_root(v, e);
	const struct text_mount *m = without_size(&v->mounts);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), asked, size;
	const char *kind = NULL;
	struct statfs fs;
	char io[96];

	if (root < 0 || check_kind(v, &kind, e) < 0)
		return e->num;
	if (fstatfs(root, &fs) < 0)
		return err_errno(e, "cannot ask for the size of the root of PID 1");
	/* A tmpfs without a limit reports 0. */
	if (fs.f_blocks == 0 || fs.f_files == 0)
		return err_set(e, -EPERM, "the root of PID 1 has no limit of %s",
			       fs.f_blocks == 0 ? "blocks" : "inodes");
	asked = (MIN(v->b->disk, v->s->spec->limits.disk) + page - 1) / page * page;
	if (__builtin_mul_overflow((uint64_t)fs.f_blocks, (uint64_t)fs.f_bsize, &size) ||
	    size > asked)
		return err_set(e, -EPERM,
			       "the root of PID 1 has more than the %" PRIu64
			       " bytes that were asked for",
			       asked);
	if (m)
		return err_set(e, -EPERM, "a tmpfs of PID 1 has no size: %.*s",
			       (int)MIN(m->point.n, 64U), m->point.s);
	if (verify_io(v, io, sizeof(io), e) < 0)
		return e->num;
	return sight_set(ret, "%" PRIu64 " bytes, %" PRIu64 " inodes, %s%s", size,
			 (uint64_t)fs.f_files, kind, io);
}

static bool is_device(const struct stat *st, size_t i)
{
	return S_ISCHR(st->st_mode) && major(st->st_rdev) == devices[i].major &&
	       minor(st->st_rdev) == devices[i].minor;
}

/* Looks at a path of PID 1 without following links. 0, -ENOENT, or an error. */
static int stat_inside(int root, const char *path, struct stat *ret, struct err *e)
{
	_cleanup_close_ int fd = path_open_nofollow(root, path + 1, O_PATH | O_NOFOLLOW, 0);

	if (fd == -ENOENT)
		return fd;
	if (fd < 0)
		return err_set(e, fd, "cannot stat %s of PID 1: %s", path, strerror(-fd));
	return fstat(fd, ret) < 0 ? err_errno(e, "cannot stat %s of PID 1", path) : 0;
}

/* Covered by /dev/null or by an empty, read-only directory. */
static int check_masked(const struct verify *v, int root, const char *path, struct err *e)
{
	const struct text_mount *m = text_mount_at(&v->mounts, path);
	struct stat st;
	int r = stat_inside(root, path, &st, e);

	if (r == -ENOENT)
		return 0; /* missing on this kernel */
	if (r < 0)
		return r;
	if (m && is_device(&st, 0))
		return 0;
	if (m && S_ISDIR(st.st_mode) && span_is(m->type, "tmpfs") && span_lists(m->options, "ro"))
		return 0;
	return err_set(e, -EPERM, "%s of PID 1 is not covered", path);
}

static int check_readonly(const struct verify *v, int root, const char *path, struct err *e)
{
	const struct text_mount *m = text_mount_at(&v->mounts, path);
	struct stat st;
	int r = stat_inside(root, path, &st, e);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	return m && span_lists(m->options, "ro")
		       ? 0
		       : err_set(e, -EPERM, "%s of PID 1 can be written", path);
}

int verify_masked_proc(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	_cleanup_close_ int root = verify_open_root(v, e);
	const struct text_mount *m = text_mount_at(&v->mounts, "/proc");
	size_t covered = 0, readonly = 0;

	if (root < 0)
		return e->num;
	if (!m || !span_is(m->type, "proc") || !span_is(m->root, "/"))
		return err_set(e, -EPERM, "PID 1 has no /proc of its own");
	for (size_t i = 0; proc_masked[i]; i++) {
		if (check_masked(v, root, proc_masked[i], e) < 0)
			return e->num;
		covered += text_mount_at(&v->mounts, proc_masked[i]) ? 1 : 0;
	}
	for (size_t i = 0; proc_readonly[i]; i++) {
		if (check_readonly(v, root, proc_readonly[i], e) < 0)
			return e->num;
		readonly += text_mount_at(&v->mounts, proc_readonly[i]) ? 1 : 0;
	}
	return sight_set(ret, "%zu paths of /proc covered, %zu read-only", covered, readonly);
}

static bool in_list(struct span s, const char *const *list)
{
	while (*list && !span_is(s, *list))
		list++;
	return *list;
}

/* Whether a mount belongs in a container. Bind mounts from the host are recognized by their mount
 * point. */
static bool mount_allowed(const struct text_mount *m)
{
	static const char *const own[] = { "tmpfs", "devpts", "mqueue", NULL };

	if (span_is(m->point, "/"))
		return span_is(m->type, "overlay");
	if (span_is(m->point, OCI_GUEST_PATH))
		return span_lists(m->options, "ro") && span_lists(m->options, "nosuid") &&
		       span_lists(m->options, "nodev");
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
		if (span_is(m->point, devices[i].path))
			return span_ends(m->root, devices[i].path + STRLEN("/dev"));
	if (span_is(m->type, "proc"))
		return span_is(m->point, "/proc") || in_list(m->point, proc_readonly);
	if (in_list(m->point, proc_masked) && span_ends(m->root, "/null"))
		return true;
	return in_list(m->type, own) && span_is(m->root, "/");
}

int verify_mounts(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	for (size_t i = 0; i < v->mounts.n; i++) {
		const struct text_mount *m = &v->mounts.m[i];

		if (!mount_allowed(m))
			return err_set(e, -EPERM, "PID 1 has a %.*s mounted on %.*s",
				       (int)MIN(m->type.n, 32U), m->type.s,
				       (int)MIN(m->point.n, 64U), m->point.s);
	}
	return sight_set(ret, "%zu mounts, all of them known; none of sysfs, cgroup, debugfs",
			 v->mounts.n);
}

/* Checks one name in /dev. Directories are mounts, which verify_mounts() checks. */
static int check_name(int dir, const char *name, struct err *e)
{
	static const char *const directories[] = { ".", "..", "mqueue", "pts", "shm", NULL };
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(e, "cannot stat a name of /dev of PID 1");
	if (S_ISLNK(st.st_mode) || S_ISREG(st.st_mode))
		return 0;
	if (S_ISDIR(st.st_mode) && in_list(span_of(name), directories))
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
		if (str_eq(name, devices[i].name) && is_device(&st, i))
			return 0;
	return err_set(e, -EPERM, "/dev of PID 1 has more than the harmless devices: mode %o %u:%u",
		       st.st_mode, major(st.st_rdev), minor(st.st_rdev));
}

static void close_dir(DIR *const *d)
{
	if (*d)
		(void)closedir(*d);
}

static int check_names(int fd, size_t *ret_n, struct err *e)
{
	_cleanup_(close_dir) DIR *d = fdopendir(fd);
	const struct dirent *entry;
	size_t n = 0;

	if (!d) {
		(void)fd_close(fd);
		return err_oom(e);
	}
	for (errno = 0; (entry = readdir(d)); errno = 0, n++) {
		if (n == DEV_NAMES_MAX)
			return err_set(e, -E2BIG, "/dev of PID 1 has more than %d names",
				       DEV_NAMES_MAX);
		if (check_name(fd, entry->d_name, e) < 0)
			return e->num;
	}
	if (errno)
		return err_errno(e, "cannot list /dev of PID 1");
	*ret_n = n;
	return 0;
}

int verify_devices(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	_cleanup_close_ int root = verify_open_root(v, e);
	size_t n;
	int dev;

	if (root < 0)
		return e->num;
	dev = path_open_nofollow(root, "dev", O_RDONLY | O_DIRECTORY, 0);
	if (dev < 0)
		return err_set(e, dev, "cannot open /dev of PID 1: %s", strerror(-dev));
	if (check_names(dev, &n, e) < 0)
		return e->num;
	return sight_set(ret, "/dev has null, zero, full, random, urandom and tty at most");
}
