/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of disk I/O. They name a device: the loop device of a container's disk, which no other
 * sandbox uses. v2 has all limits in one file and counts write-back of the group's pages; v1 has
 * one file for each and counts only what the group's processes submit themselves: reads, direct I/O
 * and fsync(2). */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup-inner.h"

/* "rbps=1048576" or "rbps=max" */
static void add(char line[static CGROUP_IO_LINE], const char *key, uint64_t value)
{
	const size_t n = strlen(line);

	if (value > 0)
		(void)snprintf(line + n, CGROUP_IO_LINE - n, " %s=%" PRIu64, key, value);
	else
		(void)snprintf(line + n, CGROUP_IO_LINE - n, " %s=max", key);
}

size_t cgroup_io_lines(bool v2, dev_t dev, const struct cgroup_limits *l,
		       struct cgroup_io_line ret[static CGROUP_IO_FILES])
{
	const struct {
		const char *file, *key;
		uint64_t value;
	} rows[CGROUP_IO_FILES] = {
		{ "blkio.throttle.read_bps_device", "rbps", l->disk_bandwidth },
		{ "blkio.throttle.write_bps_device", "wbps", l->disk_bandwidth },
		{ "blkio.throttle.read_iops_device", "riops", l->disk_ops },
		{ "blkio.throttle.write_iops_device", "wiops", l->disk_ops },
	};
	size_t n = 0;

	if (v2) {
		ret[0].file = "io.max";
		(void)snprintf(ret[0].line, CGROUP_IO_LINE, "%u:%u", major(dev), minor(dev));
		for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
			add(ret[0].line, rows[i].key, rows[i].value);
		return 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (rows[i].value == 0)
			continue;
		ret[n].file = rows[i].file;
		(void)snprintf(ret[n++].line, CGROUP_IO_LINE, "%u:%u %" PRIu64, major(dev),
			       minor(dev), rows[i].value);
	}
	return n;
}

static int put(int dir, const struct cgroup_io_line *l)
{
	_cleanup_close_ int fd =
		RETRY_EINTR(openat(dir, l->file, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));

	return fd < 0 ? -errno : fd_write_all(fd, l->line, strlen(l->line));
}

int cgroup_limit_disk(struct cgroup *g, dev_t dev, const struct cgroup_limits *limits,
		      struct err *e)
{
	struct cgroup_io_line lines[CGROUP_IO_FILES];
	const int dir = g->dir[CGROUP_IO];
	size_t n;

	g->has[CGROUP_IO] = false;
	if (dir < 0)
		return 0;
	/* The kernel charges write-back to the group only if memory is accounted there, too. */
	if (g->v2[CGROUP_IO] && g->dir[CGROUP_MEMORY] != dir) {
		cgroup_because(g, CGROUP_IO,
			       "io.max does not limit write-back without the memory controller");
		return 0;
	}
	n = cgroup_io_lines(g->v2[CGROUP_IO], dev, limits, lines);
	for (size_t i = 0; i < n; i++) {
		char text[CGROUP_IO_LINE] = "";
		int r = put(dir, &lines[i]);

		if (r < 0 && cgroup_full(r))
			return err_set(e, r, "cannot set a limit of the disk: %s: %s",
				       lines[i].file, strerror(-r));
		if (r == 0)
			r = fd_read_line(dir, lines[i].file, text, sizeof(text));
		if (r == 0 && str_eq(text, lines[i].line))
			continue;
		if (r < 0)
			cgroup_because(g, CGROUP_IO, "%s: %s", lines[i].file, strerror(-r));
		else
			cgroup_because(g, CGROUP_IO, "%s reads '%.60s'", lines[i].file, text);
		return 0;
	}
	g->has[CGROUP_IO] = true;
	return 0;
}
