/* SPDX-License-Identifier: Apache-2.0 */
/* Uses control groups: enters them, kills their processes, reads their usage. */
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "engine/cgroup-inner.h"

enum {
	PROCS_MAX = 64 * 1024, /* bytes of cgroup.procs read in one round */
	STAT_MAX = 64 * 1024,
	KILL_BATCH = 64,
	KILL_PATIENCE = 3 /* rounds before we forbid forks */
};

bool cgroup_first(const struct cgroup *g, enum cgroup_part p)
{
	for (enum cgroup_part i = 0; i < p; i++)
		if (g->dir[i] == g->dir[p])
			return false;
	return g->dir[p] >= 0;
}

static int put(int dir, const char *file, const char *text)
{
	int fd = RETRY_EINTR(openat(dir, file, O_WRONLY | O_CLOEXEC));
	ssize_t n;
	int r;

	if (fd < 0)
		return -errno;
	n = RETRY_EINTR(write(fd, text, strlen(text)));
	r = n < 0 ? -errno : 0;
	(void)close(fd);
	return r;
}

int cgroup_enter(const struct cgroup *g)
{
	int r = 0;

	for (enum cgroup_part p = 0; p < CGROUP_PARTS && r == 0; p++)
		if (cgroup_first(g, p))
			r = put(g->dir[p], "cgroup.procs", "0");
	return r;
}

/* As fork(2), but without an exit signal: the caller's SIGCHLD handler and waits do not see the
 * child. */
static pid_t fork_silently(void)
{
	struct clone_args args = { .exit_signal = 0 };

	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

void cgroup_warm(struct cgroup *g)
{
	pid_t pid;

	if (g->warm > 0)
		return;
	pid = fork_silently();
	if (pid == 0) {
		(void)cgroup_enter(g);
		(void)FAULT("cgroup-warm");
		_exit(0);
	}
	if (pid > 0)
		g->warm = pid;
}

static pid_t expecting; /* the child of cgroup_expect() */

/* A group that hands controllers down refuses the process, but only after the wait. */
static _noreturn_ void enter_top(void)
{
	int root, top;

	(void)close_range(0, UINT_MAX, 0); /* no reader of a pipe may wait for this child */
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	top = cgroup_place_top(root);
	if (top >= 0)
		(void)put(top, "cgroup.procs", "0");
	_exit(0);
}

void cgroup_expect(void)
{
	pid_t pid;

	cgroup_expected();
	if (expecting > 0 || geteuid() != 0)
		return;
	pid = fork_silently();
	if (pid == 0)
		enter_top();
	if (pid > 0)
		expecting = pid;
}

void cgroup_expected(void)
{
	if (expecting > 0 && waitpid(expecting, NULL, __WALL | WNOHANG) != 0)
		expecting = 0;
}

/* False if the list could not be read. */
static bool read_procs(int dir, struct buf *b)
{
	struct err e = ERR_INIT;
	int r = fd_read_file(dir, "cgroup.procs", b, &e);

	/* The beginning of a long list is enough: the next round reads the rest. A group removed in
	 * the meantime is empty. */
	return r == 0 || r == -EFBIG || r == -ENODEV || r == -ENOENT;
}

/* Splits cgroup.procs into pids, in place; skips pids of other namespaces, which read 0. */
static size_t split_pids(char *text, char *ret[static KILL_BATCH])
{
	size_t n = 0;

	while (text && n < KILL_BATCH) {
		char *word = strsep(&text, "\n");

		if (*word && !str_eq(word, "0"))
			ret[n++] = word;
	}
	return n;
}

static int open_pid(const char *word)
{
	uint64_t pid;

	if (str_to_u64(word, strlen(word), INT32_MAX, &pid) < 0)
		return -EBADF;
	return (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
}

/* Kills the first processes of the list. A pid may have been reused by now. So we open the pidfd,
 * read the list again, and signal only a pid that is still listed: it is the process that we hold,
 * or that process has ended and the signal goes nowhere. */
static bool kill_listed(int dir)
{
	_cleanup_buf_ struct buf before = BUF_INIT(PROCS_MAX), after = BUF_INIT(PROCS_MAX);
	char *word[KILL_BATCH];
	int fd[KILL_BATCH];
	size_t n;

	if (!read_procs(dir, &before))
		return true; /* no memory or no descriptor: try again */
	if (before.len == 0)
		return false;
	n = split_pids(before.data, word);
	for (size_t i = 0; i < n; i++)
		fd[i] = open_pid(word[i]);
	(void)read_procs(dir, &after);
	for (size_t i = 0; i < n; i++) {
		if (fd[i] >= 0 && str_has_word(buf_text(&after), word[i]))
			(void)syscall(SYS_pidfd_send_signal, fd[i], SIGKILL, NULL, 0);
		(void)fd_close(fd[i]);
	}
	return true;
}

/* The number after `key` in lines "key number"; 0 if missing. */
static uint64_t keyed(const struct buf *b, const char *key)
{
	size_t n = strlen(key);
	uint64_t value = 0;

	for (const char *p = buf_text(b); *p; p += strcspn(p, "\n"), p += *p == '\n')
		if (strncmp(p, key, n) == 0 && p[n] == ' ')
			(void)str_to_u64(p + n + 1, strcspn(p + n + 1, "\n"), UINT64_MAX, &value);
	return value;
}

uint64_t cgroup_keyed(int dir, const char *file, const char *key)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	struct err e = ERR_INIT;

	(void)fd_read_file(dir, file, &b, &e);
	return keyed(&b, key);
}

static uint64_t number(int dir, const char *file)
{
	uint64_t value = 0;
	char line[32];

	if (fd_read_line(dir, file, line, sizeof(line)) == 0)
		(void)str_to_u64(line, strlen(line), UINT64_MAX, &value);
	return value;
}

/* True while there were processes to kill. */
static bool kill_group(int dir, bool v2)
{
	if (v2 && cgroup_keyed(dir, "cgroup.events", "populated") == 0)
		return kill_listed(dir);
	/* cgroup.kill (Linux 5.14) kills all at once, including processes being forked. */
	if (v2 && put(dir, "cgroup.kill", "1") == 0)
		return true;
	return kill_listed(dir);
}

int cgroup_kill(const struct cgroup *g, uint64_t deadline)
{
	const struct timespec pause = { .tv_nsec = (long)NSEC_PER_MSEC };

	for (unsigned int round = 0;; round++) {
		bool any = false;

		for (enum cgroup_part p = 0; p < CGROUP_PARTS; p++)
			if (cgroup_first(g, p) && kill_group(g->dir[p], g->v2[p]))
				any = true;
		/* On v1 a frozen process dies only after a thaw. */
		if (g->dir[CGROUP_FREEZER] >= 0 && !g->v2[CGROUP_FREEZER])
			(void)put(g->dir[CGROUP_FREEZER], "freezer.state", "THAWED");
		if (!any)
			return 0;
		if (clock_mono() >= deadline)
			return -ETIME;
		/* The sandbox forks faster than we kill: forbid forks. Not at once, because it
		 * would count as a fork refused by the sandbox's own limit. */
		if (round == KILL_PATIENCE && g->dir[CGROUP_PIDS] >= 0)
			(void)put(g->dir[CGROUP_PIDS], "pids.max", "0");
		(void)nanosleep(&pause, NULL);
	}
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a - MIN(a, b);
}

/* Memory is all that is charged, including kernel memory, without reclaimable caches of files on
 * disk. v1 does not show which part of the kernel memory is reclaimable. */
static void usage_memory(int dir, bool v2, struct cgroup_usage *u)
{
	_cleanup_buf_ struct buf b = BUF_INIT(STAT_MAX);
	uint64_t all = number(dir, v2 ? "memory.current" : "memory.usage_in_bytes");
	struct err e = ERR_INIT;

	(void)fd_read_file(dir, "memory.stat", &b, &e);
	u->memory_cache = less(keyed(&b, v2 ? "file" : "total_cache"),
			       keyed(&b, v2 ? "shmem" : "total_shmem"));
	u->memory = less(all, u->memory_cache + (v2 ? keyed(&b, "slab_reclaimable") : 0));
}

static void usage_v1(const struct cgroup *g, enum cgroup_part p, struct cgroup_usage *u)
{
	int dir = g->dir[p];

	if (p == CGROUP_MEMORY) {
		usage_memory(dir, false, u);
		u->memory_peak = number(dir, "memory.max_usage_in_bytes");
		u->oom_kills = cgroup_keyed(dir, "memory.oom_control", "oom_kill");
	} else if (p == CGROUP_CPU) {
		/* Only if cpu and cpuacct share a hierarchy. */
		u->cpu_us = number(dir, "cpuacct.usage") / 1000;
		u->throttled = cgroup_keyed(dir, "cpu.stat", "nr_throttled");
	}
}

static void usage_v2(const struct cgroup *g, enum cgroup_part p, struct cgroup_usage *u)
{
	int dir = g->dir[p];

	if (p == CGROUP_MEMORY) {
		usage_memory(dir, true, u);
		u->memory_peak = number(dir, "memory.peak");
		u->oom_kills = cgroup_keyed(dir, "memory.events", "oom_kill");
	} else if (p == CGROUP_CPU) {
		u->cpu_us = cgroup_keyed(dir, "cpu.stat", "usage_usec");
		u->throttled = cgroup_keyed(dir, "cpu.stat", "nr_throttled");
	}
}

void cgroup_usage(const struct cgroup *g, struct cgroup_usage *ret)
{
	struct cgroup_usage u = { 0 };

	for (enum cgroup_part p = 0; p < CGROUP_PARTS; p++) {
		if (g->dir[p] < 0)
			continue;
		if (g->v2[p])
			usage_v2(g, p, &u);
		else
			usage_v1(g, p, &u);
	}
	if (g->dir[CGROUP_PIDS] >= 0) {
		u.pids = number(g->dir[CGROUP_PIDS], "pids.current");
		u.pids_refused = cgroup_keyed(g->dir[CGROUP_PIDS], "pids.events", "max");
	}
	*ret = u;
}
