/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The container engine with the real crun, in an image of directories and one file. Each test is a
 * warden: a child in its own mount namespace, which exits at a failed check.
 *
 * HUTCH_GUEST is hutch-guest, or empty if it is not static. With a number as argument the program
 * starts that many sandboxes and prints the time that each took to its HELLO.
 */
#include "unit.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/magic.h>
#include <linux/major.h>
#include <linux/nsfs.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "egress/pool.h"
#include "engine/engine.h"
#include "engine/netns.h"
#include "engine/oci.h"
#include "engine/scratch.h"
#include "engine/userns.h"
#include "fail.h"
#include "wire/link.h"

enum {
	IDS = 1600000000, /* the sandbox's first id */
	IMAGE = 1500000000,
	MIB = 1024 * 1024,
	DEADLINE = 20,
};

/* The odd name shows that no part of it is parsed as a mount option. */
#define IMAGE_DIR "a,b:c\\d"

static const char *guest;

#define CHECK(expr)                                                                         \
	do {                                                                                \
		if (!(expr)) {                                                              \
			(void)fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expr, \
				      last.msg);                                            \
			_exit(1);                                                           \
		}                                                                           \
	} while (0)

static struct err last;

/* ---- a warden ---- */

static void check_in_child(const struct unit_dir *d, void (*fn)(const struct unit_dir *d))
{
	int status;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	pid = fork();
	if (pid == 0) {
		(void)alarm(DEADLINE);
		CHECK(unshare(CLONE_NEWNS) == 0);
		CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
		CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
		fn(d);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void make_image(const struct unit_dir *d, char path[static 128])
{
	static const char *const dirs[] = { "", "/proc", "/dev", "/sys", "/tmp" };
	char name[128];

	(void)snprintf(path, 128, "%s/" IMAGE_DIR, d->path);
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++) {
		(void)snprintf(name, sizeof(name), "%s%s", path, dirs[i]);
		CHECK(mkdir(name, 0755) == 0 && chown(name, IMAGE, IMAGE + 7) == 0);
	}
	unit_dir_write(d, IMAGE_DIR "/file", "image", 5);
	CHECK(fchownat(d->fd, IMAGE_DIR "/file", IMAGE + 1000, IMAGE + 1007, 0) == 0);
}

/* Shared by the tests; the paths are valid until the next call. */
static struct engine_start plan(const struct unit_dir *d, struct spec *spec)
{
	static struct cgroup group = CGROUP_INIT;
	static char path[128];

	make_image(d, path);
	*spec = (struct spec){ .id = "test000000000000",
			       .root = path,
			       .workspace = "/work/space",
			       .image_uid = IMAGE,
			       .image_gid = IMAGE + 7,
			       .limits = { .memory = 64 * MIB, .disk = 8 * MIB } };
	return (struct engine_start){ .engine = engine_find("crun"),
				      .spec = spec,
				      .group = &group,
				      .guest = guest,
				      .channel = -EBADF,
				      .ids = IDS,
				      .disk = -EBADF };
}

/* ---- user namespaces ---- */

static void in_user_namespace(const struct unit_dir *d)
{
	char line[64];
	uid_t owner;
	int ns = -EBADF;

	CHECK(userns_make(IDS, 0, &ns, &last) == 0);
	CHECK(ioctl(ns, NS_GET_OWNER_UID, &owner) == 0 && owner == IDS);
	CHECK(setgroups(0, NULL) == 0 && setns(ns, CLONE_NEWUSER) == 0);
	CHECK(fd_read_line(AT_FDCWD, "/proc/self/uid_map", line, sizeof(line)) == 0);
	CHECK(str_eq(line, "         0 1600000000      65535"));
	CHECK(fd_read_line(AT_FDCWD, "/proc/self/gid_map", line, sizeof(line)) == 0);
	CHECK(str_eq(line, "         0 1600000000      65535"));
	CHECK(waitpid(-1, NULL, 0) < 0 && errno == ECHILD);
}

TEST_IN_DIR(namespace_belongs_to_the_ids)
{
	check_in_child(*state, in_user_namespace);
}

static void in_foreign_ids(const struct unit_dir *d)
{
	CHECK(userns_enter(5, 5, &last) == -EPERM); /* no subordinate ids begin there */
	CHECK(str_has_prefix(last.msg, "cannot map subordinate ids: newuidmap: "));
}

TEST_IN_DIR(ids_of_others_are_not_to_be_had)
{
	char path[256];

	if (proc_find("newuidmap", path, sizeof(path)) < 0)
		skip();
	check_in_child(*state, in_foreign_ids);
}

/* ---- the root ---- */

static bool owned(const char *path, uid_t uid, gid_t gid)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_uid == uid && st.st_gid == gid;
}

static void in_scratch(const struct unit_dir *d)
{
	static char mebibyte[MIB];
	_cleanup_close_ int fd = -EBADF;
	struct spec spec;
	struct engine_start s = plan(d, &spec);
	struct statvfs fs;
	struct stat st;
	struct engine_sandbox b = ENGINE_SANDBOX_INIT;
	ssize_t k, n = 0;

	s.guest = "/bin/sh";
	CHECK(scratch_mount(&s, &b, &last) == 0);
	CHECK(b.disk == 8 * MIB);
	CHECK(statvfs("/run/s", &fs) == 0 && fs.f_files == 4096);
	CHECK(owned("/run/r", IDS, IDS) && owned("/run/r/tmp", IDS, IDS));
	CHECK(owned("/run/r/file", IDS + 1000, IDS + 1000));
	CHECK(owned("/run/r/work", IDS, IDS) && owned("/run/r/work/space", IDS, IDS));
	CHECK(stat("/run/r/work/space", &st) == 0 && (st.st_mode & 07777) == 0777);
	CHECK(open("/run/l/new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0 && errno == EROFS);
	fd = open("/run/r/file", O_WRONLY | O_APPEND | O_CLOEXEC);
	CHECK(fd >= 0);
	while ((k = write(fd, mebibyte, sizeof(mebibyte))) > 0)
		n += k;
	CHECK(errno == ENOSPC && n > 7 * MIB && n < 8 * MIB);
	CHECK(owned("/run/r/file", IDS + 1000, IDS + 1000));
	CHECK(statvfs("/run/r", &fs) == 0 && (fs.f_flag & ST_NOSUID) && (fs.f_flag & ST_NODEV));
}

TEST_IN_DIR(root_is_the_image_and_a_bounded_scratch)
{
	const struct unit_dir *d = *state;
	struct stat st;

	check_in_child(d, in_scratch);
	assert_int_equal(fstatat(d->fd, IMAGE_DIR "/file", &st, 0), 0);
	assert_int_equal(st.st_size, 5);
	assert_int_equal(st.st_uid, IMAGE + 1000);
}

/* An empty ext4, as vm/disk.c makes it. */
static int make_disk(const struct unit_dir *d)
{
	char path[160];
	int fd = openat(d->fd, "disk", O_RDWR | O_CREAT | O_CLOEXEC, 0600), status;
	pid_t pid;

	CHECK(fd >= 0 && ftruncate(fd, 8 * MIB) == 0);
	(void)snprintf(path, sizeof(path), "%s/disk", d->path);
	pid = fork();
	if (pid == 0) {
		(void)execlp("mkfs.ext4", "mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-O",
			     "^has_journal,^resize_inode", path, NULL);
		_exit(1);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	return fd;
}

static void in_scratch_on_disk(const struct unit_dir *d)
{
	static char mebibyte[MIB];
	struct spec spec;
	struct engine_start s = plan(d, &spec);
	struct statvfs fs;
	struct engine_sandbox b = ENGINE_SANDBOX_INIT;
	ssize_t k, n = 0;
	int fd;

	s.guest = "/bin/sh";
	s.disk = make_disk(d);
	CHECK(scratch_mount(&s, &b, &last) == 0);
	s.disk = fd_close(s.disk); /* the device has it */
	CHECK(major(b.disk_dev) == LOOP_MAJOR);
	CHECK(b.disk == 8 * MIB);
	CHECK(owned("/run/r", IDS, IDS) && owned("/run/r/tmp", IDS, IDS));
	fd = open("/run/r/file", O_WRONLY | O_APPEND | O_CLOEXEC);
	while ((k = write(fd, mebibyte, sizeof(mebibyte))) > 0)
		n += k;
	CHECK(errno == ENOSPC && n > 6 * MIB && n < 8 * MIB);
	CHECK(statvfs("/run/s", &fs) == 0 && (fs.f_flag & ST_NOSUID) && (fs.f_flag & ST_NODEV));
	CHECK(scratch_is_full((uint64_t)fs.f_bavail * fs.f_frsize));
	scratch_disk_drop();
	CHECK(open("/run/s/new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0 && errno == EIO);
}

TEST_IN_DIR(scratch_is_a_disk)
{
	const struct unit_dir *d = *state;
	struct statfs fs;

	/* A tmpfs is not a disk. */
	if (fstatfs(d->fd, &fs) < 0 || fs.f_type == TMPFS_MAGIC)
		skip();
	check_in_child(d, in_scratch_on_disk);
}

static void in_no_disk(const struct unit_dir *d)
{
	_cleanup_close_ int memory = memfd_create("disk", MFD_CLOEXEC);
	_cleanup_close_ int empty = openat(d->fd, "empty", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	CHECK(memory >= 0 && scratch_disk_mount(memory, false, &last) == -EOPNOTSUPP);
	CHECK(strstr(last.msg, "--scratch memory"));
	/* Mounts of the host are not ours and stay. */
	scratch_disk_drop();
	CHECK(mount("none", "/run", "tmpfs", 0, "size=64k") == 0 && mkdir("/run/s", 0700) == 0);
	CHECK(ftruncate(empty, MIB) == 0);
	CHECK(scratch_disk_mount(empty, true, &last) < 0);
}

TEST_IN_DIR(what_is_no_disk_is_refused)
{
	check_in_child(*state, in_no_disk);
}

/* The memory limit bounds the scratch too; image and guest may be below /run, which is covered. */
static void in_scratch_below_run(const struct unit_dir *d)
{
	struct unit_dir run = { .path = "/run" };
	struct spec spec;
	struct engine_start s;
	struct engine_sandbox b = ENGINE_SANDBOX_INIT;

	CHECK(mount("test", "/run", "tmpfs", 0, NULL) == 0);
	run.fd = open("/run", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	s = plan(&run, &spec);
	unit_dir_write(&run, "guest", "guest", 5);
	(void)fd_close(run.fd);
	s.guest = "/run/guest";
	spec.limits.memory = 4 * MIB;
	CHECK(scratch_mount(&s, &b, &last) == 0);
	CHECK(b.disk == 3 * MIB);
	CHECK(access("/run/r/file", F_OK) == 0 && access("/run/guest", F_OK) < 0);
	CHECK(access("/run/g", R_OK) == 0 && access("/run/g", W_OK) < 0 && errno == EROFS);
}

TEST_IN_DIR(image_and_guest_may_lie_below_run)
{
	check_in_child(*state, in_scratch_below_run);
}

static void in_controllers(const struct unit_dir *d)
{
	char line[64];

	CHECK(scratch_hide_controllers(&last) == 0);
	CHECK(scratch_hide_controllers(&last) == 0);
	CHECK(fd_read_line(AT_FDCWD, "/sys/fs/cgroup/unified/cgroup.controllers", line,
			   sizeof(line)) < 0);
}

/* The image is untrusted: obstacles in it are replaced in the scratch, and links are never
 * followed. */
static void in_resolver(const struct unit_dir *d)
{
	char canary[128], path[192], line[64];
	struct spec spec;
	struct engine_start s = plan(d, &spec);
	struct engine_sandbox b = ENGINE_SANDBOX_INIT;

	s.guest = "/bin/sh";
	s.egress = true;
	unit_dir_write(d, "canary", "canary", 6);
	(void)snprintf(canary, sizeof(canary), "%s/canary", d->path);
	(void)snprintf(path, sizeof(path), "%s/etc", spec.root);
	CHECK(mkdir(path, 0755) == 0 && chown(path, IMAGE, IMAGE + 7) == 0);
	(void)snprintf(path, sizeof(path), "%s/etc/resolv.conf", spec.root);
	CHECK(symlink(canary, path) == 0 && lchown(path, IMAGE, IMAGE + 7) == 0);
	CHECK(scratch_mount(&s, &b, &last) == 0);
	CHECK(owned("/run/r/etc/resolv.conf", IDS, IDS));
	CHECK(fd_read_line(AT_FDCWD, "/run/r/etc/resolv.conf", line, sizeof(line)) == 0);
	CHECK(str_eq(line, "nameserver 127.0.0.1"));
	CHECK(readlink(path, line, sizeof(line)) > 0);
	CHECK(fd_read_line(AT_FDCWD, canary, line, sizeof(line)) == 0 && str_eq(line, "canary"));
}

TEST_IN_DIR(resolver_is_put_over_the_images)
{
	check_in_child(*state, in_resolver);
}

static void in_resolver_elsewhere(const struct unit_dir *d)
{
	char path[192];
	struct spec spec;
	struct engine_start s = plan(d, &spec);
	struct engine_sandbox b = ENGINE_SANDBOX_INIT;

	s.guest = "/bin/sh";
	s.egress = true;
	(void)snprintf(path, sizeof(path), "%s/etc", spec.root);
	CHECK(symlink("/tmp", path) == 0 && lchown(path, IMAGE, IMAGE + 7) == 0);
	CHECK(scratch_mount(&s, &b, &last) < 0);
	CHECK(strstr(last.msg, "/etc/resolv.conf"));
	CHECK(access("/tmp/resolv.conf", F_OK) < 0 && access("/run/r/tmp/resolv.conf", F_OK) < 0);
}

TEST_IN_DIR(etc_is_not_followed)
{
	check_in_child(*state, in_resolver_elsewhere);
}

TEST_IN_DIR(controllers_are_hidden)
{
	if (access("/sys/fs/cgroup/unified/cgroup.controllers", R_OK) < 0)
		skip();
	check_in_child(*state, in_controllers);
}

/* ---- all of it ---- */

static void take_hello(struct link *l, const struct fields *f, void *arg)
{
	*(bool *)arg = fields_has(f, TAG_AGENT);
}

static void say_hello(int sock)
{
	static const struct link_ops ops = { .hello = take_hello };
	_cleanup_buf_ struct buf hello = BUF_INIT(WIRE_PAYLOAD_MAX);
	_cleanup_link_ struct link *l = NULL;
	char bytes[4096];
	bool heard = false;
	const void *out;
	size_t n;

	CHECK(link_new(LINK_KEEPER, &ops, &heard, &l) == 0);
	fields_put_number(&hello, TAG_VERSION, WIRE_VERSION);
	CHECK(link_hello(l, &hello) == 0);
	out = link_pending(l, &n);
	CHECK(fd_write_all(sock, out, n) == 0);
	while (!heard) {
		ssize_t k = read(sock, bytes, sizeof(bytes));

		CHECK(k > 0 && link_feed(l, bytes, (size_t)k, &last) == 0);
	}
}

static bool status_says(pid_t pid, const char *line)
{
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	return fd_read_file(AT_FDCWD, path, &b, &last) == 0 && strstr(buf_text(&b), line);
}

/* crun leaves a process that ends at once; a longer-lived one would block the test for ever. */
static void reap_rest(void)
{
	while (waitpid(-1, NULL, 0) > 0)
		;
	CHECK(errno == ECHILD);
}

/* Kills PID 1, after which no process may be left. */
static void end(struct engine_sandbox *b)
{
	siginfo_t info;

	CHECK(proc_signal(&b->init, SIGKILL) == 0);
	CHECK(proc_wait(&b->init, clock_mono() + 5 * NSEC_PER_SEC, &info) == 0);
	CHECK(info.si_code == CLD_KILLED);
	proc_done(&b->init);
	reap_rest();
}

static uint64_t start_once(const struct unit_dir *d, struct engine_sandbox *ret, int *ret_sock)
{
	struct spec spec;
	struct engine_start s = plan(d, &spec);
	uint64_t before = clock_mono();
	int socks[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) == 0);
	s.channel = socks[1];
	CHECK(s.engine->start(&s, ret, &last) == 0);
	(void)close(socks[1]);
	say_hello(socks[0]);
	*ret_sock = socks[0];
	return clock_mono() - before;
}

static void in_sandbox(const struct unit_dir *d)
{
	size_t fds = fail_count_fds();
	struct engine_sandbox b;
	int sock;

	(void)start_once(d, &b, &sock);
	CHECK(fail_count_fds() == fds + 2); /* the pidfd and the channel */
	CHECK(b.disk == 8 * MIB);
	CHECK(status_says(b.init.pid, "\nUid:\t1600000000\t1600000000\t1600000000\t1600000000\n"));
	CHECK(status_says(b.init.pid, "\nGroups:\t \n"));
	CHECK(status_says(b.init.pid, "\nSeccomp:\t2\n"));
	CHECK(status_says(b.init.pid, "\nNSpid:\t"));
	end(&b);
}

/* Connects from the sandbox's own network to an address that stands for a name. */
static void connect_inside(int pidfd, const struct sockaddr_in *to)
{
	_cleanup_close_ int sock = -EBADF;

	CHECK(setns(pidfd, CLONE_NEWNET) == 0);
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(connect(sock, (const struct sockaddr *)to, sizeof(*to)) == 0);
	_exit(0);
}

static void in_captured_sandbox(const struct unit_dir *d)
{
	const struct sockaddr_in to = { .sin_family = AF_INET,
					.sin_port = htons(443),
					.sin_addr.s_addr = htonl(POOL_NET + POOL_FIRST) };
	_cleanup_capture_sockets_ struct capture_sockets s = CAPTURE_SOCKETS_INIT;
	struct sockaddr_in got;
	struct engine_sandbox b;
	struct pollfd p;
	socklen_t n = sizeof(got);
	size_t fds;
	int sock, fd;
	pid_t pid;

	(void)start_once(d, &b, &sock);
	fds = fail_count_fds();
	CHECK(netns_capture(b.init.pidfd, NULL, 0, &s, &last) == 0);
	CHECK(fail_count_fds() == fds + CAPTURE_SOCKETS - 1 && s.fds[CAPTURE_TCP6] == -EBADF);
	pid = fork();
	if (pid == 0)
		connect_inside(b.init.pidfd, &to);
	p = (struct pollfd){ .fd = s.fds[CAPTURE_TCP], .events = POLLIN };
	CHECK(poll(&p, 1, DEADLINE * 1000) == 1);
	fd = accept4(s.fds[CAPTURE_TCP], NULL, NULL, SOCK_CLOEXEC);
	CHECK(fd >= 0 && getsockname(fd, (struct sockaddr *)&got, &n) == 0);
	CHECK(got.sin_port == to.sin_port && got.sin_addr.s_addr == to.sin_addr.s_addr);
	CHECK(waitpid(pid, NULL, 0) == pid);
	/* Once per sandbox: the second call finds the port in use. */
	CHECK(netns_capture(b.init.pidfd, NULL, 0, &s, &last) == -EADDRINUSE);
	(void)close(fd);
	end(&b);
}

static void need_guest(void)
{
	char crun[256];

	if (!guest[0] || proc_find("crun", crun, sizeof(crun)) < 0)
		skip();
}

TEST_IN_DIR(says_hello_and_leaves_nothing)
{
	_cleanup_buf_ struct buf before = BUF_INIT(MIB), after = BUF_INIT(MIB);
	struct err e = ERR_INIT;

	need_guest();
	assert_int_equal(fd_read_file(AT_FDCWD, "/proc/self/mountinfo", &before, &e), 0);
	check_in_child(*state, in_sandbox);
	assert_int_equal(fd_read_file(AT_FDCWD, "/proc/self/mountinfo", &after, &e), 0);
	assert_string_equal(buf_text(&before), buf_text(&after));
	assert_true(owned("/dev/null", 0, 0)); /* crun would chown its own stdin */
}

TEST_IN_DIR(what_goes_out_is_captured)
{
	const uint64_t network = UINT64_C(1) << CAP_NET_ADMIN | UINT64_C(1) << CAP_NET_RAW |
				 UINT64_C(1) << CAP_SYS_ADMIN;

	need_guest();
	assert_true((oci_guest_capabilities() & network) == 0);
	check_in_child(*state, in_captured_sandbox);
}

/* The guest ends when its channel closes, as when a warden is killed. */
static void in_sandbox_without_keeper(const struct unit_dir *d)
{
	struct engine_sandbox b;
	siginfo_t info;
	int sock;

	(void)start_once(d, &b, &sock);
	(void)close(sock);
	CHECK(proc_wait(&b.init, clock_mono() + 5 * NSEC_PER_SEC, &info) == 0);
	CHECK(info.si_code == CLD_EXITED);
}

TEST_IN_DIR(ends_with_its_channel)
{
	need_guest();
	check_in_child(*state, in_sandbox_without_keeper);
}

static void in_broken_guest(const struct unit_dir *d)
{
	struct engine_sandbox b = { .init = PROC_INIT };
	char path[128];
	struct spec spec;
	struct engine_start s = plan(d, &spec);
	int socks[2];

	unit_dir_write(d, "guest", "guest", 5);
	(void)snprintf(path, sizeof(path), "%s/guest", d->path);
	s.guest = path;
	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks) == 0);
	s.channel = socks[1];
	CHECK(s.engine->start(&s, &b, &last) == -EIO);
	CHECK(str_eq(last.msg, "crun: open executable: Permission denied"));
	CHECK(b.init.pid == 0);
	reap_rest();
}

TEST_IN_DIR(what_crun_says_is_told)
{
	need_guest();
	check_in_child(*state, in_broken_guest);
}

static void in_missing_image(const struct unit_dir *d)
{
	struct engine_sandbox b = { .init = PROC_INIT };
	struct spec spec;
	struct engine_start s = plan(d, &spec);

	spec.root = "/nonexistent/root";
	CHECK(s.engine->start(&s, &b, &last) == -ENOENT);
	CHECK(strstr(last.msg, "'/nonexistent/root'"));
	spec.root = "/proc";
	CHECK(s.engine->start(&s, &b, &last) == -EOPNOTSUPP);
	CHECK(strstr(last.msg, "idmapped"));
}

TEST_IN_DIR(an_image_that_cannot_be_had_is_named)
{
	check_in_child(*state, in_missing_image);
}

/* ---- duration ---- */

static void in_measure(const struct unit_dir *d)
{
	struct engine_sandbox b;
	int sock;
	uint64_t took = start_once(d, &b, &sock);

	(void)printf("%.1f ms\n", (double)took / (double)NSEC_PER_MSEC);
	(void)fflush(stdout);
	end(&b);
}

static void measure(void **state)
{
	check_in_child(*state, in_measure);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest measures[] = { cmocka_unit_test_setup_teardown(
		measure, unit_dir_setup, unit_dir_teardown) };
	int r = 0;

	guest = getenv("HUTCH_GUEST");
	assert(guest);
	if (argc < 2)
		return unit_run(NULL, NULL);
	for (unsigned long n = strtoul(argv[1], NULL, 10); r == 0 && n > 0; n--)
		r = cmocka_run_group_tests(measures, NULL, NULL);
	return r;
}
