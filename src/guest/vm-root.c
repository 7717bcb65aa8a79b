/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the root directory that users see: an overlay of the image and the VM's own disk, with the
 * same contents as a container's (src/engine/oci.c, scratch.c). The image is untrusted: no symbolic
 * link in it is followed. Everything is built below NEW, which then becomes the root directory. It
 * is the same for all sandboxes of an image, so it is part of the template; each VM's disk is a
 * copy of the template's.
 */
#include "guest/vm.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/proc-hidden.h"
#include "egress/sockets.h"

#define NEW   "/new"
#define SPACE "/space"
#define UPPER SPACE "/upper"
#define WORK  SPACE "/work"
#define MASK  "/mask"
#define BOOT  "/boot-id"

#define QUIET (MS_NOSUID | MS_NODEV | MS_NOEXEC)

/* ---- mounts ---- */

/* Flags of the root and its disk. In a nested VM sudo works, and containers have devices. */
static unsigned long harmless(void)
{
	return vm_is_nested() ? 0 : MS_NOSUID | MS_NODEV;
}

static int mount_overlay(const char *lower, const char *disk, struct err *e)
{
	char options[128];

	(void)mkdir(NEW, 0755);
	(void)mkdir(SPACE, 0755);
	if (mount(disk, SPACE, "ext4", harmless(), NULL) < 0)
		return err_errno(e, "cannot mount %s", disk);
	if ((mkdir(UPPER, 0755) < 0 && errno != EEXIST) ||
	    (mkdir(WORK, 0700) < 0 && errno != EEXIST))
		return err_errno(e, "cannot make directories on %s", disk);
	(void)snprintf(options, sizeof(options), "lowerdir=%s,upperdir=" UPPER ",workdir=" WORK,
		       lower);
	if (mount("hutch", NEW, "overlay", harmless(), options) < 0)
		return err_errno(e, "cannot mount the overlay");
	return 0;
}

/* Mounts on the directory `dir` of the new root, and creates it if it is missing. */
static int mount_in(int root, const char *dir, const char *type, unsigned long flags,
		    const char *options)
{
	_cleanup_close_ int fd = -EBADF;
	char path[32];
	int r = path_mkdirs(root, dir, 0755);

	if (r < 0)
		return r;
	fd = path_open_nofollow(root, dir, O_PATH | O_DIRECTORY, 0);
	if (fd < 0)
		return fd;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return mount(type, path, type, flags, options) < 0 ? -errno : 0;
}

static int mount_all(int root, struct err *e)
{
	static const struct {
		const char *dir, *type;
		unsigned long flags;
		const char *options;
		bool optional;
		enum {
			EVERY,
			CONFINED,
			NESTED,
		} where;
	} list[] = {
		{ "proc", "proc", QUIET, NULL, false },
		{ "dev", "tmpfs", MS_NOSUID | MS_NOEXEC | MS_STRICTATIME,
		  "mode=755,size=64k,nr_inodes=64", false },
		{ "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		  "newinstance,ptmxmode=0666,mode=0620,max=128", false },
		{ "dev/shm", "tmpfs", QUIET, "mode=1777,size=25%", false },
		{ "dev/mqueue", "mqueue", QUIET, NULL, true },
		{ "sys", "tmpfs", QUIET | MS_RDONLY, "mode=555,size=4k,nr_inodes=2", false,
		  CONFINED },
		{ "sys", "sysfs", QUIET, NULL, false, NESTED },
		{ "sys/fs/cgroup", "cgroup2", QUIET, NULL, false, NESTED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		int r;

		if (list[i].where == (vm_is_nested() ? CONFINED : NESTED))
			continue;
		r = mount_in(root, list[i].dir, list[i].type, list[i].flags, list[i].options);

		if (r == -ENODEV && list[i].optional)
			continue;
		if (r < 0)
			return err_set(e, r, "cannot mount /%s: %s", list[i].dir, strerror(-r));
	}
	return 0;
}

static int make_devices(struct err *e)
{
	static const struct {
		const char *path;
		unsigned int major, minor;
	} devices[] = { { NEW "/dev/null", 1, 3 },    { NEW "/dev/zero", 1, 5 },
			{ NEW "/dev/full", 1, 7 },    { NEW "/dev/random", 1, 8 },
			{ NEW "/dev/urandom", 1, 9 }, { NEW "/dev/tty", 5, 0 } };
	static const char *const links[][2] = { { "pts/ptmx", NEW "/dev/ptmx" },
						{ "/proc/self/fd", NEW "/dev/fd" },
						{ "/proc/self/fd/0", NEW "/dev/stdin" },
						{ "/proc/self/fd/1", NEW "/dev/stdout" },
						{ "/proc/self/fd/2", NEW "/dev/stderr" } };

	for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
		if (mknod(devices[i].path, S_IFCHR | 0600,
			  makedev(devices[i].major, devices[i].minor)) < 0 ||
		    chmod(devices[i].path, 0666) < 0)
			return err_errno(e, "cannot make %s", devices[i].path);
	for (size_t i = 0; i < ARRAY_SIZE(links); i++)
		if (symlink(links[i][0], links[i][1]) < 0)
			return err_errno(e, "cannot make %s", links[i][1]);
	return 0;
}

/* Shows the file at `from` read-only at `path`. */
static int show(const char *from, const char *path)
{
	if (mount(from, path, NULL, MS_BIND, NULL) < 0 ||
	    mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | QUIET, NULL) < 0)
		return -errno;
	return 0;
}

/* Hides a path by an empty read-only file; every user can write /dev/null. */
static int cover(const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return mount("tmpfs", path, "tmpfs", QUIET | MS_RDONLY, "size=4k,nr_inodes=2") < 0
			       ? -errno
			       : 0;
	return show(MASK, path);
}

static int make_readonly(const char *path)
{
	if (access(path, F_OK) < 0)
		return 0;
	if (mount(path, path, NULL, MS_BIND | MS_REC, NULL) < 0 ||
	    mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | QUIET, NULL) < 0)
		return -errno;
	return 0;
}

/* Hides paths of /proc, and makes others read-only. */
static int cover_all(struct err *e)
{
	_cleanup_close_ int mask = open(MASK, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	char path[64];
	int r;

	if (mask < 0)
		return err_errno(e, "cannot make an empty file");
	for (size_t i = 0; proc_masked[i]; i++) {
		(void)snprintf(path, sizeof(path), NEW "%s", proc_masked[i]);
		r = cover(path);
		if (r < 0)
			return err_set(e, r, "cannot cover %s: %s", proc_masked[i], strerror(-r));
	}
	for (size_t i = 0; proc_readonly[i]; i++) {
		(void)snprintf(path, sizeof(path), NEW "%s", proc_readonly[i]);
		r = make_readonly(path);
		if (r < 0)
			return err_set(e, r, "cannot make %s read-only: %s", proc_readonly[i],
				       strerror(-r));
	}
	r = show(BOOT, NEW "/proc/sys/kernel/random/boot_id");
	return r < 0 ? err_set(e, r, "cannot cover the boot id: %s", strerror(-r)) : 0;
}

/* ---- moving in ---- */

/* Removes everything below `fd` on the same file system, to free its memory. Takes `fd`. */
static void empty(int fd, dev_t dev)
{
	DIR *d = fdopendir(fd);
	const struct dirent *de;
	struct stat st;

	if (!d) {
		(void)close(fd);
		return;
	}
	while ((de = readdir(d))) {
		const char *name = de->d_name;

		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
		    fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_dev != dev)
			continue;
		if (S_ISDIR(st.st_mode)) {
			int sub = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

			if (sub >= 0)
				empty(sub, dev);
		}
		(void)unlinkat(fd, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
	}
	(void)closedir(d);
}

static int move_in(struct err *e)
{
	int old = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (old < 0 || fstat(old, &st) < 0)
		return err_errno(e, "cannot open the initramfs");
	/* No process can reach a block device, a port or a kernel setting from here on. */
	if (umount2("/dev", MNT_DETACH) < 0 || umount2("/proc", MNT_DETACH) < 0)
		return err_errno(e, "cannot unmount /dev and /proc");
	if (chdir(NEW) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
	    chdir("/") < 0)
		return err_errno(e, "cannot move into the image");
	empty(old, st.st_dev);
	return 0;
}

int vm_root(const char *lower, const char *disk, struct err *e)
{
	_cleanup_close_ int root = -EBADF;
	mode_t mask = umask(0);
	int r = mount_overlay(lower, disk, e);

	if (r == 0) {
		root = open(NEW, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (root < 0)
			r = err_errno(e, "cannot open the new root");
	}
	if (r == 0)
		r = mount_all(root, e);
	if (r == 0)
		r = make_devices(e);
	if (r == 0)
		r = vm_boot_id_open(BOOT, e);
	/* A user namespace mounts no /proc while a part of this one is covered. */
	if (r == 0)
		r = vm_is_nested() ? vm_nested_root(root, SPACE, e) : cover_all(e);
	(void)umask(mask);
	if (r == 0)
		r = move_in(e);
	/* As systemd does: containers see mounts that are made later. */
	if (r == 0 && vm_is_nested() && mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL) < 0)
		r = err_errno(e, "cannot share the mounts");
	return r;
}

/* ---- HELLO ---- */

/* Creates the working directory of commands, writable by all users, if the image has none. */
static int make_workspace(int root, const struct fields *hello, struct err *e)
{
	_cleanup_close_ int there = -EBADF, dir = -EBADF;
	_cleanup_free_ char *cwd = NULL;
	bool oom = false;
	int r;

	cwd = fields_copy(hello, TAG_CWD, &oom);
	if (oom)
		return err_oom(e);
	if (!cwd || cwd[0] != '/' || !cwd[1])
		return 0;
	there = path_open_in_root(root, cwd + 1, O_PATH, 0);
	if (there >= 0)
		return 0;
	r = path_mkdirs(root, cwd + 1, 0755);
	dir = r < 0 ? r : path_open_nofollow(root, cwd + 1, O_RDONLY | O_DIRECTORY, 0);
	if (dir >= 0 && fchmod(dir, 0777) < 0)
		r = -errno;
	return r < 0 ? err_set(e, r, "cannot make the workspace '%s' in the image: %s", cwd,
			       strerror(-r))
		     : 0;
}

int vm_root_settle(const struct fields *hello, struct err *e)
{
	_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const char *text = vm_is_nested() ? CAPTURE_RESOLVER_SHARED : CAPTURE_RESOLVER;
	mode_t mask = umask(0);
	int r = root < 0 ? err_errno(e, "cannot open the root") : make_workspace(root, hello, e);

	if (r == 0 && fields_has(hello, TAG_EGRESS)) {
		r = path_replace(root, "etc", "resolv.conf", 0644, text, strlen(text));
		if (r < 0)
			err_set(e, r, "cannot write /etc/resolv.conf: %s", strerror(-r));
	}
	(void)umask(mask);
	return r;
}
