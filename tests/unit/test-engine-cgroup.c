/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups in invented trees, for layouts that this host lacks. */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "engine/cgroup-inner.h"

enum {
	MIB = 1024 * 1024
};

static const struct cgroup_limits limits = { .cpus = 500, .memory = 64 * MIB, .pids = 20 };

static void put(const struct unit_dir *d, const char *path, const char *text)
{
	char dir[512];

	for (const char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
		(void)snprintf(dir, sizeof(dir), "%.*s", (int)(p - path), path);
		assert_true(mkdirat(d->fd, dir, 0755) == 0 || errno == EEXIST);
	}
	unit_dir_write(d, path, text, strlen(text));
}

static void fake_proc(const struct unit_dir *d, const char *mounts, const char *own,
		      const char *controllers)
{
	put(d, "proc/self/mountinfo", mounts);
	put(d, "proc/self/cgroup", own);
	put(d, "proc/cgroups", controllers);
}

static void fake_group(const struct unit_dir *d, const char *path, const char *controllers,
		       const char *subtree)
{
	char file[512];

	(void)snprintf(file, sizeof(file), "%s/cgroup.controllers", path);
	put(d, file, controllers);
	(void)snprintf(file, sizeof(file), "%s/cgroup.subtree_control", path);
	put(d, file, subtree);
	(void)snprintf(file, sizeof(file), "%s/cgroup.procs", path);
	put(d, file, "");
}

static int make_room(const struct unit_dir *d, const char *path, bool ours)
{
	_cleanup_close_ int fd = openat(d->fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return cgroup_make_room(fd, ours);
}

static bool there(const struct unit_dir *d, const char *path)
{
	return faccessat(d->fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static const char v2_mount[] = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

/* cpu and memory in one v1 hierarchy, pids on v2: each is found, and no group is made twice. */
TEST_IN_DIR(mixed_tree)
{
	const struct unit_dir *d = *state;
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct cgroup_where w;
	struct err e = ERR_INIT;

	fake_proc(d,
		  "32 31 0:29 / /cg/both rw - cgroup cgroup rw,cpu,memory\n"
		  "41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n",
		  "0::/\n", "");
	put(d, "cg/both/tasks", "");
	fake_group(d, "cg/unified", "pids", "");
	fake_group(d, "cg/unified/hutch", "pids", "pids");
	assert_return_code(cgroup_make_at(d->fd, "a1", &limits, &g, &e), 0);
	assert_true(there(d, "cg/both/hutch/a1"));
	assert_true(there(d, "cg/unified/hutch/a1"));
	assert_true(g.dir[CGROUP_CPU] >= 0 && g.dir[CGROUP_CPU] == g.dir[CGROUP_MEMORY]);
	assert_int_not_equal(g.dir[CGROUP_PIDS], g.dir[CGROUP_CPU]);
	assert_true(g.v2[CGROUP_PIDS] && !g.v2[CGROUP_CPU] && !g.v2[CGROUP_MEMORY]);
	/* An ordinary directory, so no limit can be written. */
	assert_false(g.has[CGROUP_CPU] || g.has[CGROUP_MEMORY] || g.has[CGROUP_PIDS]);
	assert_string_equal(g.why[CGROUP_MEMORY],
			    "/cg/both/hutch/a1/memory.limit_in_bytes: No such file or directory");
	assert_string_equal(g.why[CGROUP_PIDS],
			    "/cg/unified/hutch/a1/pids.max: No such file or directory");

	cgroup_close(&g);
	cgroup_open_at(d->fd, "a1", &g, &w);
	assert_true(g.dir[CGROUP_CPU] >= 0 && g.dir[CGROUP_CPU] == g.dir[CGROUP_MEMORY]);
	assert_true(g.v2[CGROUP_PIDS]);
	assert_string_equal(w.path[CGROUP_PIDS], "/cg/unified/hutch/a1");
	assert_return_code(cgroup_remove_at(d->fd, "a1", &e), 0);
	assert_false(there(d, "cg/both/hutch/a1") || there(d, "cg/unified/hutch/a1"));
	assert_true(there(d, "cg/both/hutch"));
	assert_return_code(cgroup_remove_at(d->fd, "a1", &e), 0);
}

/* An existing group belongs to another sandbox; groups made before it was found are removed. */
TEST_IN_DIR(existing_group)
{
	const struct unit_dir *d = *state;
	struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;

	fake_proc(d,
		  "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
		  "33 31 0:29 / /cg/pids rw - cgroup cgroup rw,pids\n",
		  "", "memory 0 1 0\n");
	put(d, "cg/cpu/tasks", "");
	put(d, "cg/pids/hutch/a1/stays", "");
	assert_int_equal(cgroup_make_at(d->fd, "a1", &limits, &g, &e), -EEXIST);
	assert_non_null(strstr(e.msg, "/cg/pids/hutch"));
	assert_false(there(d, "cg/cpu/hutch/a1"));
	assert_true(there(d, "cg/pids/hutch/a1/stays"));
	assert_return_code(cgroup_make_at(d->fd, "a2", &limits, &g, &e), 0);
	assert_string_equal(g.why[CGROUP_MEMORY],
			    "memory is switched off on the kernel's command line");
	cgroup_close(&g);
	/* An error names the path, and the other groups are still removed. */
	put(d, "cg/pids/hutch/a2/x", "");
	assert_int_equal(cgroup_remove_at(d->fd, "a2", &e), -ENOTEMPTY);
	assert_non_null(strstr(e.msg, "/cg/pids/hutch/a2"));
	assert_false(there(d, "cg/cpu/hutch/a2"));
}

static void fake_v2(const struct unit_dir *d)
{
	fake_proc(d, v2_mount, "0::/user.slice/u1/s1\n", "");
	fake_group(d, "sys/fs/cgroup", "cpu memory pids", "");
	fake_group(d, "sys/fs/cgroup/user.slice", "cpu memory pids", "cpu memory pids");
	fake_group(d, "sys/fs/cgroup/user.slice/u1", "memory pids", "memory pids");
	fake_group(d, "sys/fs/cgroup/user.slice/u1/s1", "memory pids", "");
}

/* Root: at the top, which enables missing controllers for its children. */
TEST_IN_DIR(v2_tree_as_root)
{
	const struct unit_dir *d = *state;
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;
	char line[64];

	fake_v2(d);
	fake_group(d, "sys/fs/cgroup/hutch", "cpu memory pids", "cpu memory pids");
	assert_return_code(cgroup_make_at(d->fd, "a1", &limits, &g, &e), 0);
	assert_true(there(d, "sys/fs/cgroup/hutch/a1"));
	assert_true(g.dir[0] >= 0 && g.dir[0] == g.dir[1] && g.dir[1] == g.dir[2]);
	assert_return_code(
		fd_read_line(d->fd, "sys/fs/cgroup/cgroup.subtree_control", line, sizeof(line)), 0);
	assert_true(str_has_prefix(line, "+pids")); /* the last of three */
	assert_return_code(fd_read_line(d->fd, "sys/fs/cgroup/hutch/cgroup.subtree_control", line,
					sizeof(line)),
			   0);
	assert_string_equal(line, "cpu memory pids"); /* nothing to ask for */
	assert_return_code(cgroup_remove_at(d->fd, "a1", &e), 0);
	assert_false(there(d, "sys/fs/cgroup/hutch/a1"));
}

/* Runs `fn` as user `nobody` and returns its result. A failed assertion aborts. */
static int as_nobody(int (*fn)(const struct unit_dir *d), const struct unit_dir *d)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	siginfo_t info;

	if (proc_fork(&p) == 1) {
		if (setgid(65534) < 0 || setuid(65534) < 0)
			_exit(99);
		_exit(fn(d));
	}
	assert_return_code(proc_wait(&p, UINT64_MAX, &info), 0);
	return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

static int make_delegated(const struct unit_dir *d)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;

	if (cgroup_make_at(d->fd, "a1", &limits, &g, &e) < 0)
		return 1;
	if (!there(d, "sys/fs/cgroup/user.slice/u1/hutch/a1"))
		return 2;
	/* Two controllers were delegated, the third was not. */
	if (g.dir[CGROUP_MEMORY] < 0 || g.dir[CGROUP_PIDS] < 0 || g.dir[CGROUP_CPU] >= 0)
		return 3;
	if (!str_eq(g.why[CGROUP_CPU], "/sys/fs/cgroup/user.slice/u1: does not enable the cpu "
				       "controller for its groups"))
		return 4;
	return cgroup_remove_at(d->fd, "a1", &e) == 0 &&
			       !there(d, "sys/fs/cgroup/user.slice/u1/hutch/a1")
		       ? 0
		       : 5;
}

static int make_denied(const struct unit_dir *d)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;

	if (cgroup_make_at(d->fd, "a1", &limits, &g, &e) < 0)
		return 1;
	for (enum cgroup_part p = 0; p < CGROUP_IO; p++)
		if (g.has[p] || g.dir[p] >= 0 || !strstr(g.why[p], "not delegated to us"))
			return 2;
	return 0;
}

static void need_root(void)
{
	if (geteuid() != 0)
		skip();
}

TEST_IN_DIR(v2_tree_as_user)
{
	static const char *const own[] = { "", "/cgroup.procs", "/cgroup.subtree_control", "/hutch",
					   "/hutch/cgroup.subtree_control" };
	const struct unit_dir *d = *state;
	char path[128];

	need_root();
	fake_v2(d);
	assert_return_code(fchmod(d->fd, 0755), 0);
	fake_group(d, "sys/fs/cgroup/user.slice/u1/hutch", "memory pids", "memory pids");
	assert_int_equal(as_nobody(make_denied, d), 0);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		(void)snprintf(path, sizeof(path), "sys/fs/cgroup/user.slice/u1%s", own[i]);
		assert_return_code(fchownat(d->fd, path, 65534, 65534, 0), 0);
	}
	assert_int_equal(as_nobody(make_delegated, d), 0);
}

/* The group of a service with its processes: they are moved, except "0". */
TEST_IN_DIR(own_group_is_emptied)
{
	const struct unit_dir *d = *state;
	char line[64];

	put(d, "g/cgroup.procs", "");
	assert_return_code(make_room(d, "g", true), 0);
	put(d, "g/cgroup.procs", "12\n0\n13\n0\n");
	assert_return_code(make_room(d, "g", true), 0); /* the root of the tree */
	put(d, "g/cgroup.type", "domain\n");
	assert_int_equal(make_room(d, "g", false), -EBUSY);
	assert_false(there(d, "g/warden"));
	assert_int_equal(make_room(d, "g", true), -ENOENT); /* no file in a mere directory */
	put(d, "g/warden/cgroup.procs", "");
	/* An ordinary file never becomes empty, and the retries end. */
	assert_int_equal(make_room(d, "g", true), -EBUSY);
	assert_return_code(fd_read_line(d->fd, "g/warden/cgroup.procs", line, sizeof(line)), 0);
	assert_string_equal(line, "13"); /* the last */
}

static int make_in_own_group(const struct unit_dir *d)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;

	if (cgroup_make_at(d->fd, "a1", &limits, &g, &e) < 0 || g.dir[CGROUP_PIDS] >= 0)
		return 2;
	return strstr(g.why[CGROUP_PIDS], "contains processes") ? 0 : 3;
}

/* A group with processes delegates no controllers, and only our own is emptied. */
TEST_IN_DIR(busy_with_ourselves)
{
	static const char *const own[] = { "", "/cgroup.procs", "/cgroup.subtree_control",
					   "/warden", "/warden/cgroup.procs" };
	const struct unit_dir *d = *state;
	char path[128], line[64];

	need_root();
	fake_group(d, "sys/fs/cgroup", "cpu pids", "cpu pids");
	fake_group(d, "sys/fs/cgroup/service", "cpu pids", "none");
	put(d, "sys/fs/cgroup/service/cgroup.type", "domain\n");
	put(d, "sys/fs/cgroup/service/cgroup.procs", "12\n");
	put(d, "sys/fs/cgroup/service/warden/cgroup.procs", "");
	assert_return_code(fchmod(d->fd, 0755), 0);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
		(void)snprintf(path, sizeof(path), "sys/fs/cgroup/service%s", own[i]);
		assert_return_code(fchownat(d->fd, path, 65534, 65534, 0), 0);
	}
	for (unsigned int ours = 0; ours < 2; ours++) {
		fake_proc(d, v2_mount, ours ? "0::/service\n" : "0::/service/inner\n", "");
		assert_int_equal(as_nobody(make_in_own_group, d), 0);
		assert_int_equal(fd_read_line(d->fd, "sys/fs/cgroup/service/warden/cgroup.procs",
					      line, sizeof(line)),
				 0);
		assert_string_equal(line, ours ? "12" : "");
	}
	assert_return_code(fd_read_line(d->fd, "sys/fs/cgroup/service/cgroup.subtree_control", line,
					sizeof(line)),
			   0);
	assert_string_equal(line, "none");
}

/* No hierarchy at all, and ids that contain a path. */
TEST_IN_DIR(nothing_there)
{
	static const char *const bad[] = { "", "..", "a/b", "A", "a.b", "-ab", "\xc3\xa4" };
	const struct unit_dir *d = *state;
	struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;
	char longest[80];

	assert_return_code(cgroup_make_at(d->fd, "a1", &limits, &g, &e), 0);
	for (enum cgroup_part p = 0; p < CGROUP_IO; p++)
		assert_string_equal(g.why[p], "no control groups are mounted");
	assert_return_code(cgroup_remove_at(d->fd, "a1", &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(cgroup_make_at(d->fd, bad[i], &limits, &g, &e), -EINVAL);
		assert_int_equal(cgroup_remove_at(d->fd, bad[i], &e), -EINVAL);
	}
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	assert_int_equal(cgroup_make_at(d->fd, longest, &limits, &g, &e), -EINVAL);
}

static void check_file(const struct unit_dir *d, const char *name, const char *text)
{
	char line[64];

	assert_return_code(fd_read_line(d->fd, name, line, sizeof(line)), 0);
	assert_string_equal(line, text);
}

static void check_limits(const struct unit_dir *d, bool v2, bool good)
{
	struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;

	for (enum cgroup_part p = 0; p < CGROUP_IO; p++) {
		g.dir[p] = d->fd;
		g.v2[p] = v2;
		assert_return_code(cgroup_limit(&g, p, &limits, "/g", &e), 0);
		assert_int_equal(g.has[p], good);
		assert_int_equal(g.why[p][0] == '\0', good);
	}
}

/* Checks which value goes to which file, in an ordinary directory. */
TEST_IN_DIR(limits_v2)
{
	const struct unit_dir *d = *state;

	check_limits(d, true, false);
	put(d, "memory.max", "");
	put(d, "pids.max", "");
	put(d, "cpu.max", "");
	put(d, "cgroup.freeze", "0");
	check_limits(d, true, true); /* a kernel without swap */
	put(d, "memory.swap.max", "");
	check_limits(d, true, true);
	check_file(d, "memory.max", "67108864");
	check_file(d, "memory.swap.max", "0");
	check_file(d, "pids.max", "20");
	check_file(d, "cpu.max", "50000 100000");
}

TEST_IN_DIR(limits_v1)
{
	const struct unit_dir *d = *state;

	put(d, "memory.limit_in_bytes", "");
	put(d, "memory.swappiness", "");
	put(d, "pids.max", "");
	put(d, "cpu.cfs_period_us", "");
	put(d, "cpu.cfs_quota_us", "");
	put(d, "freezer.state", "THAWED");
	check_limits(d, false, true);
	check_file(d, "memory.swappiness", "0"); /* in place of memsw */
	put(d, "memory.swappiness", "60");
	put(d, "memory.memsw.limit_in_bytes", "");
	put(d, "memory.kmem.tcp.limit_in_bytes", "");
	check_limits(d, false, true);
	check_file(d, "memory.limit_in_bytes", "67108864");
	check_file(d, "memory.memsw.limit_in_bytes", "67108864");
	check_file(d, "memory.kmem.tcp.limit_in_bytes", "67108864");
	check_file(d, "memory.swappiness", "60");
	check_file(d, "cpu.cfs_period_us", "100000");
	check_file(d, "cpu.cfs_quota_us", "50000");
	check_file(d, "pids.max", "20");
}

static bool limit_disk(struct cgroup *g, uint64_t bandwidth, uint64_t ops)
{
	const struct cgroup_limits l = { .disk_bandwidth = bandwidth, .disk_ops = ops };
	struct err e = ERR_INIT;

	assert_return_code(cgroup_limit_disk(g, makedev(7, 3), &l, &e), 0);
	return g->has[CGROUP_IO];
}

TEST_IN_DIR(limits_of_a_disk)
{
	const struct unit_dir *d = *state;
	struct cgroup g = CGROUP_INIT;

	assert_false(limit_disk(&g, 1000, 10)); /* no group */
	g.dir[CGROUP_IO] = d->fd;
	assert_false(limit_disk(&g, 1000, 10));
	assert_string_equal(g.why[CGROUP_IO],
			    "blkio.throttle.read_bps_device: No such file or directory");
	put(d, "blkio.throttle.read_bps_device", "");
	put(d, "blkio.throttle.write_bps_device", "");
	assert_true(limit_disk(&g, 1000, 0)); /* only the files that it needs */
	check_file(d, "blkio.throttle.write_bps_device", "7:3 1000");
	put(d, "blkio.throttle.read_iops_device", "");
	put(d, "blkio.throttle.write_iops_device", "");
	assert_true(limit_disk(&g, 1000, 10));
	check_file(d, "blkio.throttle.read_iops_device", "7:3 10");
	put(d, "blkio.throttle.write_iops_device", "7:3 10 and more");
	assert_false(limit_disk(&g, 0, 10));
	assert_string_equal(g.why[CGROUP_IO],
			    "blkio.throttle.write_iops_device reads '7:3 10 and more'");
	g.v2[CGROUP_IO] = true;
	put(d, "io.max", "");
	assert_false(limit_disk(&g, 1000, 0));
	assert_string_equal(g.why[CGROUP_IO],
			    "io.max does not limit write-back without the memory controller");
	g.dir[CGROUP_MEMORY] = d->fd;
	assert_true(limit_disk(&g, 1000, 0));
	check_file(d, "io.max", "7:3 rbps=1000 wbps=1000 riops=max wiops=max");
	put(d, "io.max", "");
	assert_true(limit_disk(&g, 1000, 10));
	check_file(d, "io.max", "7:3 rbps=1000 wbps=1000 riops=10 wiops=10");
}

/* The group of the io controller is made only for a sandbox whose disk is limited. */
TEST_IN_DIR(a_group_for_a_disk)
{
	const struct unit_dir *d = *state;
	const struct cgroup_limits l = { .cpus = 500, .memory = MIB, .pids = 9, .disk_ops = 10 };
	struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;

	fake_proc(d, "32 31 0:29 / /cg/blkio rw - cgroup cgroup rw,blkio\n", "", "");
	put(d, "cg/blkio/tasks", "");
	assert_return_code(cgroup_make_at(d->fd, "a1", &limits, &g, &e), 0);
	assert_int_equal(g.dir[CGROUP_IO], -EBADF);
	assert_false(there(d, "cg/blkio/hutch"));
	assert_return_code(cgroup_make_at(d->fd, "a1", &l, &g, &e), 0);
	assert_true(g.dir[CGROUP_IO] >= 0);
	cgroup_close(&g);
	assert_return_code(cgroup_remove_at(d->fd, "a1", &e), 0);
	assert_false(there(d, "cg/blkio/hutch/a1"));
	fake_proc(d, "", "", "");
	assert_return_code(cgroup_make_at(d->fd, "a1", &l, &g, &e), 0);
	assert_string_equal(g.why[CGROUP_IO], "no control groups are mounted");
}

/* A file that does not keep the written value: the limit does not count. */
TEST_IN_DIR(limits_that_do_not_stick)
{
	const struct unit_dir *d = *state;
	struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;

	g.dir[CGROUP_PIDS] = d->fd;
	put(d, "pids.max", "99999"); /* an ordinary file: "20" over it reads 20999 */
	assert_return_code(cgroup_limit(&g, CGROUP_PIDS, &limits, "/g", &e), 0);
	assert_false(g.has[CGROUP_PIDS]);
	assert_string_equal(g.why[CGROUP_PIDS], "/g/pids.max: 20 was written, but it reads 20999");
	put(d, "pids.max", "20x");
	assert_return_code(cgroup_limit(&g, CGROUP_PIDS, &limits, "/g", &e), 0);
	assert_false(g.has[CGROUP_PIDS]);
}

/* The requested state counts only when it reads back; otherwise the request is undone. */
TEST_IN_DIR(freezer_v1)
{
	const struct unit_dir *d = *state;
	struct cgroup g = CGROUP_INIT;

	assert_int_equal(cgroup_freeze(&g, UINT64_MAX), -EOPNOTSUPP);
	assert_int_equal(cgroup_thaw(&g, UINT64_MAX), -EOPNOTSUPP);
	g.dir[CGROUP_FREEZER] = d->fd;
	assert_int_equal(cgroup_freeze(&g, 0), -ENOENT);
	put(d, "freezer.state", "THAWED\n");
	assert_return_code(cgroup_freeze(&g, 0), 0);
	check_file(d, "freezer.state", "FROZEN");
	assert_return_code(cgroup_thaw(&g, 0), 0);
	check_file(d, "freezer.state", "THAWED");
	/* A state that is never reached: an ordinary file keeps the rest of its old contents. */
	put(d, "freezer.state", "THAWED, FREEZING\n");
	assert_int_equal(cgroup_freeze(&g, 0), -ETIME);
	check_file(d, "freezer.state", "THAWED, FREEZING");
	assert_int_equal(cgroup_thaw(&g, 0), -ETIME);
}

/*
 * Plays the kernel: accepts the first request, and stays in FREEZING until there is a second one. A
 * write to an ordinary file leaves the bytes after it, so that "FROZEN" over six other characters
 * is the end.
 */
static void half_frozen(const struct unit_dir *d)
{
	const struct timespec pause = { .tv_nsec = (long)NSEC_PER_MSEC };
	char line[64] = "";

	while (!str_eq(line, "FROZEN, FREEZING")) {
		(void)nanosleep(&pause, NULL);
		(void)fd_read_line(d->fd, "freezer.state", line, sizeof(line));
	}
	put(d, "next", "FREEZI\n");
	_exit(renameat(d->fd, "next", d->fd, "freezer.state") < 0);
}

TEST_IN_DIR(freezer_v1_asks_again)
{
	const struct unit_dir *d = *state;
	struct cgroup g = CGROUP_INIT;
	int status = 0;
	pid_t pid;

	g.dir[CGROUP_FREEZER] = d->fd;
	put(d, "freezer.state", "THAWED, FREEZING\n");
	pid = fork();
	assert_return_code(pid, errno);
	if (pid == 0)
		half_frozen(d);
	assert_return_code(cgroup_freeze(&g, clock_mono() + 20 * NSEC_PER_SEC), 0);
	check_file(d, "freezer.state", "FROZEN");
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

TEST_IN_DIR(freezer_v2)
{
	const struct unit_dir *d = *state;
	struct cgroup g = CGROUP_INIT;

	g.dir[CGROUP_FREEZER] = d->fd;
	g.v2[CGROUP_FREEZER] = true;
	assert_int_equal(cgroup_freeze(&g, 0), -ENOENT);
	put(d, "cgroup.freeze", "0\n");
	put(d, "cgroup.events", "populated 1\nfrozen 0\n");
	assert_int_equal(cgroup_freeze(&g, 0), -ETIME);
	check_file(d, "cgroup.freeze", "0");
	put(d, "cgroup.events", "populated 1\nfrozen 1\n");
	assert_return_code(cgroup_freeze(&g, 0), 0);
	check_file(d, "cgroup.freeze", "1");
	assert_return_code(cgroup_thaw(&g, 0), 0);
	check_file(d, "cgroup.freeze", "0");
}

/* The freezer's place depends on the host: its own v2 group beside v1 limits, or none. */
TEST_IN_DIR(freezer_places)
{
	const struct unit_dir *d = *state;
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct err e = ERR_INIT;

	fake_proc(d,
		  "32 31 0:29 / /cg/v1 rw - cgroup cgroup rw,cpu,memory,pids\n"
		  "41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n",
		  "0::/\n", "");
	put(d, "cg/v1/tasks", "");
	fake_group(d, "cg/unified", "", "");
	assert_return_code(cgroup_make_at(d->fd, "a1", &limits, &g, &e), 0);
	assert_true(g.v2[CGROUP_FREEZER] && g.dir[CGROUP_FREEZER] >= 0);
	assert_true(there(d, "cg/unified/hutch/a1"));
	assert_false(g.has[CGROUP_FREEZER]); /* the file is missing */
	assert_string_equal(g.why[CGROUP_FREEZER],
			    "/cg/unified/hutch/a1: No such file or directory");
	assert_return_code(cgroup_remove_at(d->fd, "a1", &e), 0);
	assert_false(there(d, "cg/unified/hutch/a1") || there(d, "cg/v1/hutch/a1"));

	cgroup_close(&g);
	fake_proc(d, "32 31 0:29 / /cg/v1 rw - cgroup cgroup rw,cpu,memory,pids\n", "", "");
	assert_return_code(cgroup_make_at(d->fd, "a2", &limits, &g, &e), 0);
	assert_string_equal(g.why[CGROUP_FREEZER],
			    "no hierarchy with the freezer controller is mounted");
	assert_return_code(cgroup_remove_at(d->fd, "a2", &e), 0);
}

TEST_IN_DIR(usage_files)
{
	const struct unit_dir *d = *state;
	struct cgroup g = { .dir = { d->fd, d->fd, d->fd, d->fd, d->fd },
			    .v2 = { true, true, true, true } };
	struct cgroup_usage u;

	cgroup_usage(&g, &u);
	assert_true(u.memory == 0 && u.oom_kills == 0 && u.pids == 0 && u.cpu_us == 0);
	put(d, "memory.current", "4400\n");
	put(d, "memory.stat", "anon 3000\nfile 500\nkernel 900\nshmem 200\nslab_reclaimable 4\n");
	put(d, "memory.peak", "8192\n");
	put(d, "memory.events", "low 1\noom 7\noom_kill 2\noom_group_kill 9\n");
	put(d, "pids.current", "3\n");
	put(d, "pids.events", "max 5\n");
	put(d, "cpu.stat", "usage_usec 123\nuser_usec 1\nnr_periods 8\nnr_throttled 4\n");
	cgroup_usage(&g, &u);
	assert_true(u.memory == 4400 - 300 - 4 && u.memory_cache == 300 && u.memory_peak == 8192 &&
		    u.oom_kills == 2);
	assert_true(u.pids == 3 && u.pids_refused == 5 && u.cpu_us == 123 && u.throttled == 4);
	memset(g.v2, 0, sizeof(g.v2));
	put(d, "memory.usage_in_bytes", "100\n");
	put(d, "memory.stat", "cache 9\nrss 1\ntotal_cache 90\ntotal_rss 10\ntotal_shmem 30\n");
	put(d, "memory.max_usage_in_bytes", "2\n");
	put(d, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
	put(d, "cpuacct.usage", "5000\n");
	cgroup_usage(&g, &u);
	assert_true(u.memory == 40 && u.memory_cache == 60 && u.memory_peak == 2 &&
		    u.oom_kills == 3);
	assert_true(u.pids == 3 && u.pids_refused == 5 && u.cpu_us == 5 && u.throttled == 4);
}
