/* SPDX-License-Identifier: Apache-2.0 */
/* The root directory of a container. All mounts made here end with the warden's mount namespace;
 * the host never sees them.
 *
 * The image and the guest may themselves be below /run, so they are cloned as detached mounts
 * before a tmpfs covers /run, and attached afterwards. All later paths are our own: none can
 * contain a character that mount options treat as a separator. */
#include <fcntl.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "egress/sockets.h"
#include "engine/engine.h"
#include "engine/scratch.h"
#include "engine/userns.h"

#define SCRATCH_UPPER SCRATCH_SPACE "/upper"
#define SCRATCH_WORK  SCRATCH_SPACE "/work"

#define CONTROLLERS "/sys/fs/cgroup/unified/cgroup.controllers"

enum {
	INODE_BYTES = 4096, /* one inode for this much space */
	INODES_MIN = 4096,
	FULL_BELOW = 64 * 1024,
	INODES_MAX = 1024 * 1024, /* each takes about a KiB of kernel memory */
};

static const char *const directories[] = { SCRATCH_ROOT,  SCRATCH_BUNDLE, SCRATCH_STATE,
					   SCRATCH_LOWER, SCRATCH_SPACE,  SCRATCH_DEV };

/* Clones a mount, detached and read-only. Without mounts below: an image has none. */
static int clone_mount(const char *path, int *ret_fd, struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
					       MOUNT_ATTR_NODEV };
	_cleanup_close_ int fd = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (fd < 0 || mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
		return err_errno(e, "cannot mount '%s'", path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* Maps the image's ids on disk to the sandbox's ids in this mount. */
static int shift_ids(const struct engine_start *s, int tree, struct err *e)
{
	struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP };
	_cleanup_close_ int ns = -EBADF;
	int r = userns_idmap(s->spec->image_uid, s->spec->image_gid, s->ids, &ns, e);

	if (r < 0)
		return r;
	attr.userns_fd = (uint64_t)ns;
	if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) == 0)
		return 0;
	if (errno == EINVAL || errno == EOPNOTSUPP)
		return err_set(e, -EOPNOTSUPP,
			       "the file system of '%s' has no idmapped mounts on this kernel: "
			       "keep images on ext4, xfs or btrfs",
			       s->spec->root);
	return err_errno(e, "cannot mount '%s' with shifted ids", s->spec->root);
}

static int attach(int tree, const char *path, struct err *e)
{
	if (move_mount(tree, "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return err_errno(e, "cannot mount %s", path);
	return 0;
}

static int cover_run(struct err *e)
{
	_cleanup_close_ int guest = -EBADF;

	if (mount("hutch", "/run", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "mode=755,size=16m,nr_inodes=1024") < 0)
		return err_errno(e, "cannot mount a tmpfs over /run");
	for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
		if (mkdir(directories[i], 0755) < 0)
			return err_errno(e, "cannot make %s", directories[i]);
	guest = open(SCRATCH_GUEST, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return guest < 0 ? err_errno(e, "cannot make " SCRATCH_GUEST) : 0;
}

uint64_t scratch_in_memory(uint64_t disk, uint64_t memory)
{
	return MIN(disk, memory / 4 * 3);
}

bool scratch_is_full(uint64_t left)
{
	return left < FULL_BELOW;
}

static int mount_memory(const struct engine_start *s, struct err *e)
{
	uint64_t size = scratch_in_memory(s->spec->limits.disk, s->spec->limits.memory);
	uint64_t inodes = MIN(MAX(size / INODE_BYTES, (uint64_t)INODES_MIN), (uint64_t)INODES_MAX);
	char options[96];

	(void)snprintf(options, sizeof(options), "mode=700,size=%llu,nr_inodes=%llu",
		       (unsigned long long)size, (unsigned long long)inodes);
	if (mount("hutch", SCRATCH_SPACE, "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
		return err_errno(e, "cannot mount a tmpfs of %llu bytes", (unsigned long long)size);
	return 0;
}

static int mount_space(const struct engine_start *s, struct engine_sandbox *ret, struct err *e)
{
	struct statfs fs;
	struct stat st;
	int r = s->disk >= 0 ? scratch_disk_mount(s->disk, !s->spec->overcommit, e)
			     : mount_memory(s, e);

	if (r < 0)
		return r;
	/* The sandbox sees the upper directory as "/". */
	if (mkdir(SCRATCH_UPPER, 0755) < 0 || mkdir(SCRATCH_WORK, 0700) < 0 ||
	    chmod(SCRATCH_UPPER, 0755) < 0 || chown(SCRATCH_UPPER, s->ids, s->ids) < 0 ||
	    chown(SCRATCH_WORK, s->ids, s->ids) < 0 || statfs(SCRATCH_SPACE, &fs) < 0 ||
	    stat(SCRATCH_SPACE, &st) < 0)
		return err_errno(e, "cannot make the scratch's directories");
	ret->disk = (uint64_t)fs.f_blocks * (uint64_t)fs.f_bsize;
	ret->disk_dev = s->disk >= 0 ? st.st_dev : 0;
	return 0;
}

static int mount_root(const struct engine_start *s, struct err *e)
{
#define OVERLAY "lowerdir=" SCRATCH_LOWER ",upperdir=" SCRATCH_UPPER ",workdir=" SCRATCH_WORK
	/* Only the initial user namespace may write overlayfs's default attributes. */
	const char *options = s->rootless ? OVERLAY ",userxattr" : OVERLAY;

	if (mount("hutch", SCRATCH_ROOT, "overlay", MS_NOSUID | MS_NODEV, options) < 0)
		return err_errno(e, "cannot mount the overlay over '%s'", s->spec->root);
	return 0;
#undef OVERLAY
}

/* Resolves links as the sandbox would: inside the image, never on the host. */
static bool is_there(int root, const char *path)
{
	_cleanup_close_ int fd = path_open_in_root(root, path, O_PATH, 0);

	return fd >= 0;
}

/* Makes the directory in which commands start, owned by id 0 of the sandbox. Never follows a
 * symbolic link, since the image is untrusted. Leaves a directory of the image as it is. */
static int make_workspace(const struct engine_start *s, struct err *e)
{
	const char *path = s->spec->workspace + 1;
	_cleanup_close_ int root = open(SCRATCH_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC),
			    dir = -EBADF;
	mode_t mask;
	int r;

	if (root < 0)
		return err_errno(e, "cannot open '%s'", SCRATCH_ROOT);
	if (s->spec->workspace[0] != '/' || !path[0] || is_there(root, path))
		return 0;
	mask = umask(0);
	(void)setfsgid(s->ids);
	(void)setfsuid(s->ids);
	r = path_mkdirs(root, path, 0755);
	dir = r < 0 ? r : path_open_nofollow(root, path, O_RDONLY | O_DIRECTORY, 0);
	if (dir >= 0 && fchmod(dir, 0777) < 0)
		r = -errno;
	(void)setfsuid(geteuid());
	(void)setfsgid(getegid());
	(void)umask(mask);
	return r < 0 ? err_set(e, r, "cannot make the workspace '%s' in the image: %s",
			       s->spec->workspace, strerror(-r))
		     : 0;
}

static int replace_resolver(int root)
{
	return path_replace(root, "etc", "resolv.conf", 0644, CAPTURE_RESOLVER,
			    STRLEN(CAPTURE_RESOLVER));
}

/* Points the resolver to the capture on loopback. Replaces the image's file, which may be a
 * dangling link, in the scratch. The sandbox may change it and then harms only itself. */
static int write_resolver(const struct engine_start *s, struct err *e)
{
	_cleanup_close_ int root = open(SCRATCH_ROOT, O_PATH | O_DIRECTORY | O_CLOEXEC);
	mode_t mask;
	int r;

	if (root < 0)
		return err_errno(e, "cannot open '%s'", SCRATCH_ROOT);
	mask = umask(0);
	(void)setfsgid(s->ids);
	(void)setfsuid(s->ids);
	r = replace_resolver(root);
	(void)setfsuid(geteuid());
	(void)setfsgid(getegid());
	(void)umask(mask);
	return r < 0 ? err_set(e, r, "cannot write /etc/resolv.conf over the image's: %s",
			       strerror(-r))
		     : 0;
}

int scratch_mount(const struct engine_start *s, struct engine_sandbox *ret, struct err *e)
{
	_cleanup_close_ int image = -EBADF, guest = -EBADF;
	int r = clone_mount(s->spec->root, &image, e);

	if (r == 0 && !s->rootless)
		r = shift_ids(s, image, e);
	if (r == 0)
		r = clone_mount(s->guest, &guest, e);
	if (r == 0)
		r = FAULT_ERR("scratch-cloned", e);
	if (r == 0)
		r = cover_run(e);
	if (r == 0)
		r = FAULT_ERR("scratch-run", e);
	if (r == 0)
		r = attach(image, SCRATCH_LOWER, e);
	if (r == 0)
		r = attach(guest, SCRATCH_GUEST, e);
	if (r == 0)
		r = FAULT_ERR("scratch-attached", e);
	if (r == 0)
		r = mount_space(s, ret, e);
	if (r == 0)
		r = FAULT_ERR("scratch-space", e);
	if (r == 0)
		r = mount_root(s, e);
	if (r == 0)
		r = FAULT_ERR("scratch-root", e);
	if (r == 0)
		r = make_workspace(s, e);
	return r < 0 || !s->egress ? r : write_resolver(s, e);
}

int scratch_hide_controllers(struct err *e)
{
	char line[256];

	/* The only place where crun looks. */
	if (fd_read_line(AT_FDCWD, CONTROLLERS, line, sizeof(line)) < 0 || line[0] == '\0')
		return 0;
	if (mount("/dev/null", CONTROLLERS, NULL, MS_BIND, NULL) < 0)
		return err_errno(e, "cannot cover " CONTROLLERS);
	return 0;
}

static int own_device(const char *name, unsigned int major, unsigned int minor)
{
	char own[32], path[32];

	(void)snprintf(own, sizeof(own), SCRATCH_DEV "/%s", name);
	(void)snprintf(path, sizeof(path), "/dev/%s", name);
	/* chmod() because of the umask. */
	if (mknod(own, S_IFCHR | 0600, makedev(major, minor)) < 0 || chmod(own, 0666) < 0 ||
	    mount(own, path, NULL, MS_BIND, NULL) < 0)
		return -errno;
	return 0;
}

int scratch_own_devices(struct err *e)
{
	static const struct {
		const char *name;
		unsigned int major, minor;
	} devices[] = { { "null", 1, 3 },   { "zero", 1, 5 },	 { "full", 1, 7 },
			{ "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 } };
	int r = 0;

	if (mount("hutch", SCRATCH_DEV, "tmpfs", MS_NOSUID | MS_NOEXEC,
		  "mode=755,size=4k,nr_inodes=16") < 0)
		return err_errno(e, "cannot mount a tmpfs for devices");
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(devices); i++) {
		r = own_device(devices[i].name, devices[i].major, devices[i].minor);
		if (r < 0)
			err_set(e, r, "cannot create /dev/%s for the sandbox: %s", devices[i].name,
				strerror(-r));
	}
	return r;
}
