/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits that users of a VM have hit. The host's kernel counts for a container; for a VM the guest
 * counts, and the keeper has to trust it. The guest sends WIRE_MSG_LIMIT on the channel of every
 * command for each count that has changed since the last report. It checks before it sends a
 * command's exit, and once a second while commands run, because a command killed by its time limit
 * sends no exit.
 *
 * The counts start at zero again when the VM resumes as another sandbox.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "guest/guest.h"
#include "guest/vm.h"

#define LIMITS ((int)WIRE_LIMIT_INODES + 1)

enum {
	LOOK_SEC = 1,
};

static uint64_t began[LIMITS], told[LIMITS];
static int vmstat = -EBADF, pids_events = -EBADF;

int met_open(int users, struct err *e)
{
	vmstat = open("/proc/vmstat", O_RDONLY | O_CLOEXEC);
	if (vmstat < 0)
		return err_errno(e, "cannot open /proc/vmstat");
	pids_events = openat(users, "pids.events", O_RDONLY | O_CLOEXEC);
	return pids_events < 0 ? err_errno(e, "cannot open pids.events") : 0;
}

/* Returns the number after `key` in a file of lines "key number"; 0 if the key is missing. */
static uint64_t keyed(int fd, const char *key)
{
	static char text[16 * 1024];
	ssize_t k = pread(fd, text, sizeof(text) - 1, 0);
	size_t n = strlen(key);
	uint64_t value = 0;

	text[MAX(k, (ssize_t)0)] = '\0';
	for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n')
		if (strncmp(p, key, n) == 0 && p[n] == ' ')
			(void)str_to_u64(p + n + 1, strcspn(p + n + 1, "\n"), INT64_MAX, &value);
	return value;
}

static void count(uint64_t ret[static LIMITS])
{
	struct statvfs fs;

	/* Counts all processes that this kernel killed for memory; all are users'. */
	ret[WIRE_LIMIT_MEMORY] = keyed(vmstat, "oom_kill");
	ret[WIRE_LIMIT_PIDS] = keyed(pids_events, "max");
	ret[WIRE_LIMIT_DISK] = ret[WIRE_LIMIT_INODES] = 0;
	if (statvfs("/", &fs) == 0) {
		ret[WIRE_LIMIT_DISK] = fs.f_bavail == 0;
		ret[WIRE_LIMIT_INODES] = fs.f_files > 0 && fs.f_ffree == 0;
	}
}

void met_begin(void)
{
	if (vmstat < 0)
		return;
	memset(told, 0, sizeof(told));
	count(began);
	began[WIRE_LIMIT_DISK] = began[WIRE_LIMIT_INODES] = 0;
}

static bool runs(const struct job *j)
{
	return j->ops->runs && j->ops->runs(j);
}

static void tell(struct guest *g, enum wire_limit limit, uint64_t times)
{
	for (struct job *j = g->jobs; j; j = j->next) {
		_cleanup_buf_ struct buf b = BUF_INIT(64);

		if (!runs(j))
			continue;
		fields_put_number(&b, TAG_SIZE, times);
		fields_put_number(&b, TAG_LIMIT, limit);
		guest_check(g, b.err ? b.err : link_msg(g->link, j->ch, WIRE_MSG_LIMIT, &b));
	}
	told[limit] = times;
}

void met_tell(struct guest *g)
{
	uint64_t now[LIMITS];

	if (vmstat < 0)
		return;
	count(now);
	for (int i = WIRE_LIMIT_MEMORY; i < LIMITS; i++)
		if (now[i] - began[i] != told[i])
			tell(g, (enum wire_limit)i, now[i] - began[i]);
}

static bool anything_runs(const struct guest *g)
{
	for (const struct job *j = g->jobs; j; j = j->next)
		if (runs(j))
			return true;
	return false;
}

static void on_look(struct loop_timer *t)
{
	met_tell(t->arg);
	met_watch(t->arg);
}

void met_watch(struct guest *g)
{
	g->look.cb = on_look;
	g->look.arg = g;
	if (vmstat >= 0 && anything_runs(g))
		guest_check(g, loop_set_timer(g->loop, &g->look,
					      clock_mono() + LOOK_SEC * NSEC_PER_SEC));
}
