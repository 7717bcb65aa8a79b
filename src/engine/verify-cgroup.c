/* SPDX-License-Identifier: Apache-2.0 */
/* Receipt rows about control groups: PID 1 is in the group, as both /proc/PID/cgroup and the group
 * report, and the group has its limit now. */
#include <inttypes.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/verify.h"

static const char *const controllers[CGROUP_PARTS] = {
	[CGROUP_CPU] = "cpu",	      [CGROUP_MEMORY] = "memory", [CGROUP_PIDS] = "pids",
	[CGROUP_FREEZER] = "freezer", [CGROUP_IO] = "blkio",
};

/* /proc/PID/cgroup names hutch/NAME, and the group lists PID. */
static int check_member(const struct verify *v, enum cgroup_part part, struct err *e)
{
	_cleanup_buf_ struct buf of_process = BUF_INIT(VERIFY_FILE_MAX);
	_cleanup_buf_ struct buf of_group = BUF_INIT(VERIFY_FILE_MAX);
	const struct cgroup *g = v->s->group;
	struct span path, rest, line;
	char end[CGROUP_NAME_MAX + 16];
	uint64_t pid;

	(void)snprintf(end, sizeof(end), "/hutch/%s", g->name);
	if (fd_read_file(v->proc, "cgroup", &of_process, e) < 0 ||
	    fd_read_file(g->dir[part], "cgroup.procs", &of_group, e) < 0)
		return e->num;
	if (!text_cgroup(buf_text(&of_process), g->v2[part] ? NULL : controllers[part], &path) ||
	    !span_ends(path, end))
		return err_set(e, -EPERM, "PID 1 is not in the control group %s of %s", end + 1,
			       controllers[part]);
	rest = span_of(buf_text(&of_group));
	while (span_line(&rest, &line))
		if (span_number(line, &pid) && pid == (uint64_t)v->b->init.pid)
			return 0;
	return err_set(e, -EPERM, "the control group %s does not list PID 1", end + 1);
}

/* Reads a file with one number. "max" or "-1" means no limit, and is an error. */
static int read_number(int dir, const char *file, uint64_t *ret, struct err *e)
{
	char line[64];
	int r = fd_read_line(dir, file, line, sizeof(line));

	if (r < 0)
		return err_set(e, r, "cannot read %s: %s", file, strerror(-r));
	if (!span_number(span_of(line), ret))
		return err_set(e, -EPERM, "%s: %s", file, line);
	return 0;
}

static int check_most(int dir, const char *file, uint64_t most, uint64_t *ret, struct err *e)
{
	if (read_number(dir, file, ret, e) < 0)
		return e->num;
	if (*ret > most)
		return err_set(e, -EPERM, "%s: %" PRIu64 ", but %" PRIu64 " was asked for", file,
			       *ret, most);
	return 0;
}

static int read_cpu(const struct cgroup *g, uint64_t *ret_quota, uint64_t *ret_period,
		    struct err *e)
{
	int dir = g->dir[CGROUP_CPU], r;
	struct span rest, quota, period;
	char line[64];

	if (!g->v2[CGROUP_CPU]) {
		r = read_number(dir, "cpu.cfs_quota_us", ret_quota, e);
		return r < 0 ? r : read_number(dir, "cpu.cfs_period_us", ret_period, e);
	}
	r = fd_read_line(dir, "cpu.max", line, sizeof(line));
	if (r < 0)
		return err_set(e, r, "cannot read cpu.max: %s", strerror(-r));
	rest = span_of(line);
	if (!span_word(&rest, &quota) || !span_word(&rest, &period) ||
	    !span_number(quota, ret_quota) || !span_number(period, ret_period))
		return err_set(e, -EPERM, "cpu.max: %s", line);
	return 0;
}

static int check_cpu(const struct verify *v, struct sight *ret, struct err *e)
{
	uint64_t quota, period, used, asked;

	if (read_cpu(v->s->group, &quota, &period, e) < 0)
		return e->num;
	if (__builtin_mul_overflow(quota, UINT64_C(1000), &used) ||
	    __builtin_mul_overflow(v->limits.cpus, period, &asked) || used > asked)
		return err_set(e, -EPERM, "%" PRIu64 " of %" PRIu64 " us, more than was asked for",
			       quota, period);
	return sight_set(ret, "%" PRIu64 " us of every %" PRIu64 " us", quota, period);
}

/* Without a swap limit, a memory limit would only move pages to swap. */
static int check_memory(const struct verify *v, struct sight *ret, struct err *e)
{
	const struct cgroup *g = v->s->group;
	int dir = g->dir[CGROUP_MEMORY], r;
	uint64_t most = v->limits.memory, memory = 0, swap;

	if (check_most(dir, g->v2[CGROUP_MEMORY] ? "memory.max" : "memory.limit_in_bytes", most,
		       &memory, e) < 0)
		return e->num;
	r = g->v2[CGROUP_MEMORY] ? check_most(dir, "memory.swap.max", 0, &swap, e)
				 : check_most(dir, "memory.memsw.limit_in_bytes", most, &swap, e);
	if (r < 0 && r != -ENOENT)
		return r;
	return sight_set(ret, "%" PRIu64 " bytes, %s", memory,
			 r == 0 ? "no swap" : "this kernel does not count swap");
}

static int check_pids(const struct verify *v, struct sight *ret, struct err *e)
{
	uint64_t pids = 0;

	if (check_most(v->s->group->dir[CGROUP_PIDS], "pids.max", v->limits.pids, &pids, e) < 0)
		return e->num;
	return sight_set(ret, "pids.max: %" PRIu64, pids);
}

/* Advice for an ordinary user whose group could not be made. For root the reason is enough. */
static void advise(const struct verify *v, struct sight *ret)
{
	struct statfs fs;
	bool v2 = statfs("/sys/fs/cgroup", &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;

	if (!v->s->rootless)
		return;
	(void)snprintf(ret->advice, sizeof(ret->advice), "%s",
		       v2 ? "systemd-run --user --scope -p Delegate=yes hutch ..."
			  : "run hutch as root, or boot with "
			    "systemd.unified_cgroup_hierarchy=1 and log in through systemd");
}

int verify_cgroup(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	static int (*const check[CGROUP_PARTS])(const struct verify *, struct sight *,
						struct err *) = {
		[CGROUP_CPU] = check_cpu,
		[CGROUP_MEMORY] = check_memory,
		[CGROUP_PIDS] = check_pids,
	};
	enum cgroup_part part = row == LAYER_CGROUP_CPU	     ? CGROUP_CPU
				: row == LAYER_CGROUP_MEMORY ? CGROUP_MEMORY
							     : CGROUP_PIDS;
	const struct cgroup *g = v->s->group;

	if (g->dir[part] < 0 || !g->has[part]) {
		advise(v, ret);
		return err_set(e, -EOPNOTSUPP, "%s",
			       g->why[part][0] ? g->why[part] : "there is no control group");
	}
	if (check_member(v, part, e) < 0)
		return e->num;
	return check[part](v, ret, e);
}

/* "; 4194304 bytes/s by io.max" */
static void describe_io(const struct cgroup_limits *l, bool v2, char *ret, size_t n)
{
	char rate[64] = "", ops[64] = "";

	if (l->disk_bandwidth > 0)
		(void)snprintf(rate, sizeof(rate), " %" PRIu64 " bytes/s", l->disk_bandwidth);
	if (l->disk_ops > 0)
		(void)snprintf(ops, sizeof(ops), " %" PRIu64 " operations/s", l->disk_ops);
	(void)snprintf(ret, n, ";%s%s by %s", rate, ops,
		       v2 ? "io.max" : "blkio, write-back excepted (cgroup v1)");
}

int verify_io(const struct verify *v, char *ret, size_t n, struct err *e)
{
	const struct cgroup *g = v->s->group;
	struct cgroup_io_line lines[CGROUP_IO_FILES];
	char text[CGROUP_IO_LINE];
	size_t k;
	int r;

	ret[0] = '\0';
	if ((v->limits.disk_bandwidth == 0 && v->limits.disk_ops == 0) || v->b->disk_dev == 0)
		return 0;
	if (!g->has[CGROUP_IO])
		return err_set(e, -EOPNOTSUPP, "disk_bandwidth, disk_ops: %s", g->why[CGROUP_IO]);
	if (check_member(v, CGROUP_IO, e) < 0)
		return e->num;
	k = cgroup_io_lines(g->v2[CGROUP_IO], v->b->disk_dev, &v->limits, lines);
	for (size_t i = 0; i < k; i++) {
		r = fd_read_line(g->dir[CGROUP_IO], lines[i].file, text, sizeof(text));
		if (r < 0)
			return err_set(e, r, "cannot read %s: %s", lines[i].file, strerror(-r));
		if (!str_eq(text, lines[i].line))
			return err_set(e, -EPERM, "%s: '%.60s', not '%s'", lines[i].file, text,
				       lines[i].line);
	}
	describe_io(&v->limits, g->v2[CGROUP_IO], ret, n);
	return 0;
}

int verify_pause(const struct verify *v, unsigned int row, struct sight *ret, struct err *e)
{
	const struct cgroup *g = v->s->group;

	(void)row;
	if (!g->has[CGROUP_FREEZER])
		return err_set(e, -EOPNOTSUPP, "%s",
			       g->why[CGROUP_FREEZER][0] ? g->why[CGROUP_FREEZER]
							 : "there is no control group");
	if (check_member(v, CGROUP_FREEZER, e) < 0)
		return e->num;
	return sight_set(ret, "every process stops, memory stays, nothing is written to disk");
}
