/* SPDX-License-Identifier: Apache-2.0 */
/* A container's scratch on disk: an ext4 file system in an unnamed file, through a loop device. The
 * file's size is the hard cap of what the sandbox can write.
 *
 * The loop device holds the file, the mount holds the loop device, and the warden's mount namespace
 * holds the mount. With LO_FLAGS_AUTOCLEAR the kernel detaches the device when the mount ends, so
 * kill -9 of any process leaks no mount, device or file.
 *
 * The file system ends with its sandbox, so it is not prepared for a crash: no journal (vm/disk.c),
 * no barriers. Blocks freed inside stay allocated, so that the sandbox keeps its reserved room;
 * without a reservation they are punched out of the file at once. */
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <linux/magic.h>
#include <linux/major.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/scratch.h"

#define LOOP_CONTROL "/dev/loop-control"
#define IN_MEMORY    "or keep what it writes in memory: --scratch memory"

enum {
	TRIES_MAX = 64,	     /* other processes take loop devices, too */
	LOOP_BLOCK = 4096,   /* a block size that direct I/O supports on any disk */
	SHUTDOWN_NO_LOG = 2, /* EXT4_GOING_FLAGS_NOLOGFLUSH */
};

#define EXT4_SHUTDOWN _IOR('X', 125, uint32_t)

/* Direct I/O keeps pages from being cached twice; the kernel does without where unsupported. */
static int configure(int device, int file)
{
	struct loop_config config = {
		.fd = (uint32_t)file,
		.block_size = LOOP_BLOCK,
		.info = { .lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO },
	};

	return ioctl(device, LOOP_CONFIGURE, &config) < 0 ? -errno : 0;
}

/* -EBUSY, -ENXIO, -ENOENT: another process took the device, or it is being removed. */
static int try_device(int number, int file, char path[static 32], int *ret_fd)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	(void)snprintf(path, 32, "/dev/loop%d", number);
	fd = RETRY_EINTR(open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
	r = fd < 0 ? -errno : configure(fd, file);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

static int attach_loop(int file, char path[static 32], int *ret_fd, struct err *e)
{
	_cleanup_close_ int control = RETRY_EINTR(open(LOOP_CONTROL, O_RDWR | O_CLOEXEC));
	int number, r = -EBUSY;

	if (control < 0)
		return err_errno(e,
				 "cannot open " LOOP_CONTROL
				 " for the sandbox's disk (as root: modprobe loop; " IN_MEMORY ")");
	for (int i = 0; i < TRIES_MAX && (r == -EBUSY || r == -ENXIO || r == -ENOENT); i++) {
		number = ioctl(control, LOOP_CTL_GET_FREE);
		if (number < 0)
			return err_errno(e, "there is no free loop device for the sandbox's disk "
					    "(see max_loop of the kernel; " IN_MEMORY ")");
		r = try_device(number, file, path, ret_fd);
	}
	return r < 0 ? err_set(e, r, "cannot attach the sandbox's disk to %s: %s (" IN_MEMORY ")",
			       path, strerror(-r))
		     : 0;
}

/* A tmpfs would use host memory that no sandbox is charged for. */
static int check_file(int file, struct err *e)
{
	struct statfs fs;

	if (fstatfs(file, &fs) < 0)
		return err_errno(e, "cannot stat the sandbox's disk");
	if (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC)
		return err_set(e, -EOPNOTSUPP,
			       "the sandbox's disk would be in memory: hutch keeps its files on a "
			       "tmpfs; keep them on a disk (HUTCH_STATE_DIR), " IN_MEMORY);
	return 0;
}

int scratch_disk_mount(int file, bool reserved, struct err *e)
{
	char options[128];
	_cleanup_close_ int device = -EBADF;
	char path[32] = "";
	int r = check_file(file, e);

	if (r == 0)
		r = attach_loop(file, path, &device, e);
	if (r == 0)
		r = FAULT_ERR("scratch-loop", e);
	if (r < 0)
		return r;
	(void)snprintf(options, sizeof(options),
		       "minixdf,%s,nobarrier,noinit_itable,noauto_da_alloc,errors=remount-ro",
		       reserved ? "nodiscard" : "discard");
	if (mount(path, SCRATCH_SPACE, "ext4", MS_NOSUID | MS_NODEV | MS_NOATIME, options) < 0)
		return err_errno(e,
				 "cannot mount the sandbox's disk %s as ext4 (as root: modprobe "
				 "ext4; " IN_MEMORY ")",
				 path);
	return 0;
}

int scratch_disk_stats(void)
{
	char path[64], target[PATH_MAX], *name;
	struct stat st;
	ssize_t n;
	int fd;

	if (stat(SCRATCH_SPACE, &st) < 0)
		return -errno;
	if (major(st.st_dev) != LOOP_MAJOR)
		return -ENODEV;
	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(st.st_dev),
		       minor(st.st_dev));
	n = readlink(path, target, sizeof(target) - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	name = strrchr(target, '/');
	(void)snprintf(path, sizeof(path), "/sys/fs/ext4/%.32s", name ? name + 1 : target);
	fd = RETRY_EINTR(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	return fd < 0 ? -errno : fd;
}

/* ext4 warns of each write of file contents that failed; all else that fails is an error. */
uint64_t scratch_disk_errors(int stats)
{
	static const char *const files[] = { "errors_count", "warning_count" };
	uint64_t sum = 0, n;
	char line[32];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		if (fd_read_line(stats, files[i], line, sizeof(line)) == 0 &&
		    str_to_u64(line, strlen(line), UINT32_MAX, &n) == 0)
			sum += n;
	return sum;
}

void scratch_disk_drop(void)
{
	_cleanup_close_ int fd = open(SCRATCH_SPACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint32_t how = SHUTDOWN_NO_LOG;
	struct statfs fs;
	struct stat st;

	/* Never shut down a file system of the host, even if the caller is wrong. */
	if (fd >= 0 && fstat(fd, &st) == 0 && major(st.st_dev) == LOOP_MAJOR &&
	    fstatfs(fd, &fs) == 0 && fs.f_type == EXT4_SUPER_MAGIC)
		(void)ioctl(fd, EXT4_SHUTDOWN, &how);
}
