/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the root directory that only a nested VM has. Docker's overlay2 and Podman's overlay
 * need a file system that is no overlay itself. So the directories in which they keep images and
 * containers come from the VM's disk directly, empty at first: files of the image there are hidden.
 */
#include "guest/vm.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/fd.h"
#include "base/path.h"

#define OWN "nested" /* on the disk */

enum {
	USER = 1000 /* hutch gives each image a user of this number, called "user" */
};

static const struct {
	const char *name, *at;
	uid_t owner;
	const char *home; /* made only below this directory of the owner, if set */
} stores[] = {
	{ "docker", "var/lib/docker", 0, NULL },
	{ "containerd", "var/lib/containerd", 0, NULL },
	{ "containers", "var/lib/containers", 0, NULL },
	{ "user", "home/user/.local/share/containers", USER, "home/user" },
};

/* Creates `path` below `root`; the directories below `home` belong to the owner. */
static int make_place(int root, const char *path, const char *home, uid_t owner)
{
	char part[128];
	int r = path_mkdirs(root, path, 0755);

	if (r < 0 || !home)
		return r;
	(void)snprintf(part, sizeof(part), "%s", path);
	while (strlen(part) > strlen(home)) {
		_cleanup_close_ int fd = path_open_nofollow(root, part, O_RDONLY | O_DIRECTORY, 0);

		if (fd < 0 || fchown(fd, owner, owner) < 0)
			return fd < 0 ? fd : -errno;
		*strrchr(part, '/') = '\0';
	}
	return 0;
}

static bool has_home(int root, const char *home, uid_t owner)
{
	_cleanup_close_ int fd = path_open_nofollow(root, home, O_RDONLY | O_DIRECTORY, 0);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == owner;
}

static int mount_store(int root, int disk, size_t i)
{
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	char source[32], target[32];
	int r = make_place(root, stores[i].at, stores[i].home, stores[i].owner);

	if (r < 0)
		return r;
	if (mkdirat(disk, stores[i].name, 0711) < 0 && errno != EEXIST)
		return -errno;
	from = openat(disk, stores[i].name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (from < 0 || fchown(from, stores[i].owner, stores[i].owner) < 0)
		return -errno;
	to = path_open_nofollow(root, stores[i].at, O_PATH | O_DIRECTORY, 0);
	if (to < 0)
		return to;
	(void)snprintf(source, sizeof(source), "/proc/self/fd/%d", from);
	(void)snprintf(target, sizeof(target), "/proc/self/fd/%d", to);
	return mount(source, target, NULL, MS_BIND, NULL) < 0 ? -errno : 0;
}

static int mount_stores(int root, const char *space, struct err *e)
{
	_cleanup_close_ int top = open(space, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_close_ int disk = -EBADF;
	int r = top < 0 ? -errno : path_mkdirs(top, OWN, 0711);

	if (r == 0)
		r = disk = path_open_nofollow(top, OWN, O_RDONLY | O_DIRECTORY, 0);
	for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(stores); i++) {
		if (stores[i].home && !has_home(root, stores[i].home, stores[i].owner))
			continue;
		r = mount_store(root, disk, i);
		if (r < 0)
			return err_set(e, r, "cannot mount /%s: %s", stores[i].at, strerror(-r));
	}
	return r < 0 ? err_set(e, r, "cannot make directories on the disk: %s", strerror(-r)) : 0;
}

static int add_devices(int root, struct err *e)
{
	static const struct {
		const char *path;
		unsigned int major, minor;
	} devices[] = { { "dev/fuse", 10, 229 }, { "dev/net/tun", 10, 200 } };
	int r = path_mkdirs(root, "dev/net", 0755);

	if (r < 0)
		return err_set(e, r, "cannot make /dev/net: %s", strerror(-r));
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
		if (mknodat(root, devices[i].path, S_IFCHR | 0666,
			    makedev(devices[i].major, devices[i].minor)) < 0)
			return err_errno(e, "cannot make /%s", devices[i].path);
	return 0;
}

/* An image has no set-user-id programs. Rootless Podman and sudo need theirs. */
static void restore_set_id(int root)
{
	static const char *const programs[] = { "usr/bin/newuidmap", "usr/bin/newgidmap",
						"usr/bin/sudo", "usr/bin/su",
						"usr/bin/fusermount3" };

	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		_cleanup_close_ int fd = path_open_nofollow(root, programs[i], O_RDONLY, 0);
		struct stat st;

		if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == 0)
			(void)fchmod(fd, (st.st_mode & 07777) | S_ISUID);
	}
}

int vm_nested_root(int root, const char *space, struct err *e)
{
	int r = add_devices(root, e);

	restore_set_id(root);
	return r < 0 ? r : mount_stores(root, space, e);
}
