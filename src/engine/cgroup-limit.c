/* SPDX-License-Identifier: Apache-2.0 */
/* Limits: each controller has a few files, which we write and read back. A limit counts only if all
 * its files then read the requested value or less. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup-inner.h"

enum {
	PERIOD_US = 100000,
	ROWS_MAX = 4
};
#define PERIOD_TEXT " 100000"

enum row_kind {
	ROW_LIMIT,    /* must exist and read at most the value */
	ROW_EXACT,    /* must exist and read exactly the value */
	ROW_OPTIONAL, /* like ROW_LIMIT, but the kernel may lack the file */
	ROW_INSTEAD,  /* like ROW_OPTIONAL, written only if the row before was missing */
};

struct row {
	const char *file;
	enum row_kind kind;
	uint64_t value;
	const char *rest; /* text after the number in the file */
};

static size_t add(struct row *rows, size_t n, const char *file, enum row_kind kind, uint64_t value)
{
	rows[n] = (struct row){ file, kind, value, "" };
	return n + 1;
}

static size_t memory_rows(bool v2, uint64_t bytes, struct row rows[static ROWS_MAX])
{
	size_t n = 0;

	if (v2) {
		n = add(rows, n, "memory.max", ROW_LIMIT, bytes);
		return add(rows, n, "memory.swap.max", ROW_OPTIONAL, 0);
	}
	/* memsw limits memory plus swap and cannot be below the memory limit: keep this order. */
	n = add(rows, n, "memory.limit_in_bytes", ROW_LIMIT, bytes);
	n = add(rows, n, "memory.memsw.limit_in_bytes", ROW_OPTIONAL, bytes);
	n = add(rows, n, "memory.swappiness", ROW_INSTEAD, 0);
	/* v1 counts TCP buffers separately. */
	return add(rows, n, "memory.kmem.tcp.limit_in_bytes", ROW_OPTIONAL, bytes);
}

static size_t cpu_rows(bool v2, uint64_t thousandths, struct row rows[static ROWS_MAX])
{
	uint64_t quota;
	size_t n = 0;

	/* The kernel rejects a value that is too large. */
	if (__builtin_mul_overflow(thousandths, PERIOD_US / 1000U, &quota))
		quota = UINT64_MAX;
	if (v2) {
		rows[0] = (struct row){ "cpu.max", ROW_LIMIT, quota, PERIOD_TEXT };
		return 1;
	}
	n = add(rows, n, "cpu.cfs_period_us", ROW_EXACT, PERIOD_US);
	return add(rows, n, "cpu.cfs_quota_us", ROW_LIMIT, quota);
}

static size_t rows_of(enum cgroup_part p, bool v2, const struct cgroup_limits *l,
		      struct row rows[static ROWS_MAX])
{
	switch (p) {
	case CGROUP_CPU:
		return cpu_rows(v2, l->cpus, rows);
	case CGROUP_MEMORY:
		return memory_rows(v2, l->memory, rows);
	case CGROUP_PIDS:
		return add(rows, 0, "pids.max", ROW_LIMIT, l->pids);
	case CGROUP_FREEZER:
	case CGROUP_IO:
	case CGROUP_PARTS:
		break;
	}
	return 0;
}

static int write_row(int dir, const struct row *row)
{
	_cleanup_close_ int fd =
		RETRY_EINTR(openat(dir, row->file, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
	char text[48];

	if (fd < 0)
		return -errno;
	(void)snprintf(text, sizeof(text), "%" PRIu64 "%s", row->value, row->rest);
	return fd_write_all(fd, text, strlen(text));
}

/* 0; -ERANGE with the file's line in `text` if the value is not the requested one; or -errno. */
static int check_row(int dir, const struct row *row, char *text, size_t size)
{
	int r = fd_read_line(dir, row->file, text, size);
	size_t n = strcspn(text, " ");
	uint64_t value;

	if (r < 0)
		return r;
	if (str_to_u64(text, n, UINT64_MAX, &value) < 0 || !str_eq(text + n, row->rest))
		return -ERANGE;
	if (value > row->value || (row->kind == ROW_EXACT && value != row->value))
		return -ERANGE;
	return 0;
}

/* Writes a row and reads it back. 0, with g->why[p] set on failure; 1: the file is missing. */
static int apply_row(struct cgroup *g, enum cgroup_part p, const struct row *row, const char *path,
		     struct err *e)
{
	char text[64] = "";
	int r = write_row(g->dir[p], row);

	if (r == -ENOENT && row->kind >= ROW_OPTIONAL)
		return 1;
	if (r < 0 && cgroup_full(r))
		return err_set(e, r, "cannot set a limit: %s/%s: %s", path, row->file,
			       strerror(-r));
	if (r == 0)
		r = check_row(g->dir[p], row, text, sizeof(text));
	if (r == -ERANGE && text[0])
		cgroup_because(g, p, "%s/%s: %" PRIu64 "%s was written, but it reads %s", path,
			       row->file, row->value, row->rest, text);
	else if (r < 0)
		cgroup_because(g, p, "%s/%s: %s", path, row->file, strerror(-r));
	return 0;
}

int cgroup_limit(struct cgroup *g, enum cgroup_part p, const struct cgroup_limits *limits,
		 const char *path, struct err *e)
{
	struct row rows[ROWS_MAX];
	size_t n;
	int r = 0;

	assert(p < CGROUP_PARTS);
	if (p == CGROUP_FREEZER)
		return cgroup_find_freezer(g, path, e);
	n = rows_of(p, g->v2[p], limits, rows);
	g->why[p][0] = '\0';
	for (size_t i = 0; i < n && !g->why[p][0]; i++) {
		if (rows[i].kind == ROW_INSTEAD && r == 0)
			continue;
		r = apply_row(g, p, &rows[i], path, e);
		if (r < 0)
			return r;
	}
	g->has[p] = !g->why[p][0];
	return 0;
}
