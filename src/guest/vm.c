/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/vm.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/nested.h"
#include "base/str.h"
#include "confine/calls-filter.h"
#include "guest/guest-confine.h"

#define MODULES	   "/lib/modules-list"
#define PORTS	   "/sys/class/virtio-ports"
#define PORT_NAME  "hutch"
#define IMAGE	   "/lower"
#define IMAGE_DISK "/dev/vda"
#define OWN_DISK   "/dev/vdb"

enum {
	DEVICE_SEC = 20, /* how long to wait for a device */
	DEVICE_STEP_US = 2000,
	MODULES_MAX = 16 * 1024, /* size of the list */
	NOFILE = 16384,		 /* as in containers */
	NOFILE_NESTED = 1 << 20, /* the kernel's default limit for any process */
};

/* To set the identity, at HELLO and after a sleep, and to power off the VM. */
#define VM_CAPABILITIES \
	(UINT64_C(1) << CAP_SYS_ADMIN | UINT64_C(1) << CAP_SYS_TIME | UINT64_C(1) << CAP_SYS_BOOT)

static bool running;
static int port = -EBADF; /* O_PATH; opened for use when all else is done */

/* ---- boot ---- */

static int mount_basics(struct err *e)
{
	static const struct {
		const char *path, *type;
	} list[] = { { "/dev", "devtmpfs" }, { "/proc", "proc" }, { "/sys", "sysfs" } };

	for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
		(void)mkdir(list[i].path, 0755);
		if (mount(list[i].type, list[i].path, list[i].type, MS_NOSUID | MS_NOEXEC, NULL) <
		    0)
			return err_errno(e, "cannot mount %s", list[i].path);
	}
	return 0;
}

/* A kernel without a console leaves 0, 1 and 2 closed. */
static int fill_stdio(struct err *e)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= 2);
	if (fd < 0)
		return err_errno(e, "cannot open /dev/null");
	(void)fd_close(fd);
	return 0;
}

static void load_module(const char *path)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);

	/* If it is needed, waiting for its port or disk fails later, with its name. */
	if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST))
		log_warning("cannot load %s: %s", path, strerror(errno));
}

/* Loads modules in the order of the list; Hutch's own kernel needs none. */
static int load_modules(const char *list, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(MODULES_MAX);
	char *line, *rest;

	if (access(list, F_OK) < 0)
		return 0;
	if (fd_read_file(AT_FDCWD, list, &b, e) < 0)
		return e->num;
	for (rest = b.data; rest && *rest;) {
		line = rest;
		rest = strchr(rest, '\n');
		if (rest)
			*rest++ = '\0';
		if (line[0] == '/')
			load_module(line);
	}
	return 0;
}

/* Whether an entry of PORTS is ours; then `ret` is its device. */
static bool is_port(const char *entry, char *ret, size_t size)
{
	char path[sizeof(PORTS) + NAME_MAX + 8], name[64];

	(void)snprintf(path, sizeof(path), PORTS "/%s/name", entry);
	if (fd_read_line(AT_FDCWD, path, name, sizeof(name)) < 0 || !str_eq(name, PORT_NAME))
		return false;
	return snprintf(ret, size, "/dev/%s", entry) < (int)size;
}

static bool find_port(char *ret, size_t size)
{
	DIR *d = opendir(PORTS);
	const struct dirent *de;
	bool found = false;

	while (d && !found && (de = readdir(d)))
		found = de->d_name[0] != '.' && is_port(de->d_name, ret, size) &&
			access(ret, F_OK) == 0;
	if (d)
		(void)closedir(d);
	return found;
}

static bool find_disks(char *ret, size_t size)
{
	return access(IMAGE_DISK, F_OK) == 0 && access(OWN_DISK, F_OK) == 0;
}

/* Waits for a device, which appears some time after its driver was loaded. */
static int wait_for(bool (*there)(char *ret, size_t size), char *ret, size_t size)
{
	const struct timespec step = { .tv_nsec = DEVICE_STEP_US * 1000 };
	uint64_t end = clock_mono() + DEVICE_SEC * NSEC_PER_SEC;

	while (!there(ret, size)) {
		if (clock_mono() > end)
			return -ETIMEDOUT;
		(void)nanosleep(&step, NULL);
	}
	return 0;
}

static int mount_image(struct err *e)
{
	int r = wait_for(find_disks, NULL, 0);

	if (r < 0)
		return err_set(e, r, "there is no " IMAGE_DISK " or no " OWN_DISK);
	(void)mkdir(IMAGE, 0755);
	if (mount(IMAGE_DISK, IMAGE, "erofs", MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
		return err_errno(e, "cannot mount the image");
	return 0;
}

/* Finds the port without opening it: an open port signals that the guest is ready. */
static int find_channel(struct err *e)
{
	char path[NAME_MAX + 8];
	int r = wait_for(find_port, path, sizeof(path));

	if (r < 0)
		return err_set(e, r, "there is no port called " PORT_NAME);
	vm_pit_stop();
	if (umount2("/sys", 0) < 0)
		return err_errno(e, "cannot unmount /sys");
	port = open(path, O_PATH | O_CLOEXEC);
	return port < 0 ? err_errno(e, "cannot find %s", path) : 0;
}

static int loopback_up(struct err *e)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };

	if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
		return err_errno(e, "cannot bring up the loopback");
	return 0;
}

int vm_begin(struct err *e)
{
	const struct rlimit core = { 0, 0 };

	/* Kernel threads share PID 1's root directory so far, and start programs in it (modprobe,
	 * request-key). They must stay in the initramfs, which has no such programs. */
	if (unshare(CLONE_FS) < 0)
		return err_errno(e, "cannot have a root directory of my own");
	(void)setrlimit(RLIMIT_CORE, &core);
	(void)prctl(PR_SET_NAME, "hutch-guest"); /* as in a container, not "init" */
	/* PID 1 answers for the VM and must not queue behind hundreds of user processes, which run
	 * at normal priority: vm_users_join(). */
	(void)setpriority(PRIO_PROCESS, 0, PRIO_MIN);
	return mount_basics(e) < 0 ? e->num : fill_stdio(e);
}

static void limit_files(void)
{
	const struct rlimit files = { NOFILE, vm_is_nested() ? NOFILE_NESTED : NOFILE };

	(void)setrlimit(RLIMIT_NOFILE, &files);
}

int vm_boot(struct err *e)
{
	if (vm_read_mode(e) < 0 || load_modules(MODULES, e) < 0 ||
	    (vm_is_nested() && load_modules("/" NESTED_MODULES, e) < 0) || mount_image(e) < 0 ||
	    find_channel(e) < 0 || vm_random_open(e) < 0 || vm_users_make(e) < 0 ||
	    loopback_up(e) < 0 || calls_filter_make(e) < 0 || vm_lock(e) < 0 ||
	    vm_root(IMAGE, OWN_DISK, e) < 0)
		return e->num;
	limit_files();
	confine_keep(VM_CAPABILITIES);
	running = true;
	return 0;
}

int vm_open_channel(int number, struct err *e)
{
	char path[32];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", port);
	fd = open(path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	port = fd_close(port);
	if (fd < 0 || dup3(fd, number, O_CLOEXEC) < 0)
		return err_errno(e, "cannot open the port");
	(void)fd_close(fd);
	return 0;
}

/* ---- HELLO ---- */

/* At the first HELLO: applies the settings that differ between sandboxes of an image. */
static int settle_first(const struct fields *hello, struct err *e)
{
	int r = vm_users_limit(fields_number(hello, TAG_PIDS, 0), e);

	return r < 0 ? r : vm_root_settle(hello, e);
}

int vm_settle(const struct fields *hello, struct err *e)
{
	static bool settled;
	int r;

	if (!running)
		return 0;
	if (settled)
		confine_raise(true);
	r = vm_refresh(hello, e);
	if (r == 0 && !settled)
		r = settle_first(hello, e);
	if (r == 0)
		r = vm_name(hello, e);
	if (settled)
		confine_raise(false);
	met_begin();
	settled = true; /* another HELLO means another sandbox; its processes continue at WAKE */
	return r;
}

int vm_wake(const struct fields *f, struct err *e)
{
	int r;

	if (!running)
		return 0;
	confine_raise(true);
	r = vm_refresh(f, e);
	confine_raise(false);
	return r < 0 ? r : vm_users_thaw(e);
}

bool vm_is_running(void)
{
	return running;
}

void vm_end(void)
{
	if (!running)
		return;
	confine_raise(true);
	(void)reboot(RB_AUTOBOOT);
}
