/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/ram-save.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"

/* Bits of an entry of /proc/PID/pagemap (admin-guide/mm/pagemap.rst). */
#define PRESENT	  (UINT64_C(1) << 63)
#define SWAPPED	  (UINT64_C(1) << 62)
#define FROM_FILE (UINT64_C(1) << 61)

enum {
	STATE_MAX = 8 * 1024 * 1024, /* the state without memory: 150 KiB were measured */
	BLOCK = 64 * 1024,
	ENTRIES = 8192, /* pages looked up at once */
};

enum kind {
	KIND_HOLE,
	KIND_BASE,    /* the VM has not written it: as in the file that it was started from */
	KIND_PRIVATE, /* the VM has written it */
};

/* The child's descriptors and its position. */
struct saver {
	const struct ram_source *from;
	int mem, pagemap; /* files of the hypervisor's process in /proc */
	int pipe, state, memory;
	int go, result;

	uint64_t entry[ENTRIES], first, n; /* looked up: pages first to first + n */
	uint64_t data, data_end; /* the base's data at or after the last offset asked for */
	enum kind kind;		 /* source of the last range */
};

/* Sent at once through the pipe `result`. */
struct result {
	int num;
	char at[48];
	char hex[PAGES_HEX];
};

/* ---- the child: state ---- */

/* Copies what is in the pipe. 1: more may come; 0: the end; -errno. */
static int copy_block(const struct saver *s, uint64_t *sum)
{
	char block[BLOCK];
	ssize_t k = RETRY_EINTR(read(s->pipe, block, sizeof(block)));
	int r;

	if (k < 0)
		return errno == EAGAIN ? 1 : -errno;
	if (k == 0)
		return 0;
	*sum += (uint64_t)k;
	if (*sum > STATE_MAX)
		return -EFBIG;
	r = fd_write_all(s->state, block, (size_t)k);
	return r < 0 ? r : 1;
}

/* A hypervisor may keep its end of the pipe open: bytes that it writes after "go" are lost. */
static int drain(const struct saver *s, uint64_t *sum)
{
	uint64_t before;
	int r;

	do {
		before = *sum;
		r = copy_block(s, sum);
	} while (r > 0 && *sum > before);
	return MIN(r, 0);
}

/* Copies the state until the byte "go" arrives. -ECANCELED: it never will. */
static int copy_state(const struct saver *s)
{
	struct pollfd fds[] = { { .fd = s->go, .events = POLLIN },
				{ .fd = s->pipe, .events = POLLIN } };
	uint64_t sum = 0;
	char byte;
	int r = 1;

	while (r >= 0 && !fds[0].revents) {
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
			return -errno;
		if (fds[1].revents)
			r = copy_block(s, &sum);
		if (r == 0)
			fds[1].fd = -1;
	}
	if (r < 0)
		return r;
	if (RETRY_EINTR(read(s->go, &byte, 1)) != 1)
		return -ECANCELED;
	return drain(s, &sum);
}

/* ---- the child: memory ---- */

static int look_up(struct saver *s, uint64_t page)
{
	const uint64_t n = MIN(s->from->size / PAGES_SIZE - page, (uint64_t)ENTRIES);
	const uint64_t at = (s->from->address / PAGES_SIZE + page) * sizeof(s->entry[0]);
	int r = pages_read(s->pagemap, at, (char *)s->entry, (size_t)n * sizeof(s->entry[0]));

	s->first = page;
	s->n = r < 0 ? 0 : n;
	return r;
}

/* Whether the base has data at `offset`; offsets ascend. 1, 0 or -errno. */
static int base_has(struct saver *s, uint64_t offset)
{
	int r;

	if (s->from->base < 0)
		return 0;
	if (offset >= s->data_end) {
		s->data = offset;
		r = pages_next_data(s->from->base, s->from->size, &s->data, &s->data_end);
		if (r < 0)
			return r;
		if (r == 0)
			s->data = s->data_end = UINT64_MAX; /* no more data */
	}
	return offset >= s->data;
}

static int kind_of(struct saver *s, uint64_t page)
{
	uint64_t entry;
	int r = 0;

	if (page < s->first || page >= s->first + s->n)
		r = look_up(s, page);
	if (r < 0)
		return r;
	entry = s->entry[page - s->first];
	if ((entry & (PRESENT | SWAPPED)) && !(entry & FROM_FILE))
		return KIND_PRIVATE;
	r = base_has(s, page * PAGES_SIZE);
	return r < 0 ? r : r > 0 ? KIND_BASE : KIND_HOLE;
}

static int next_range(void *arg, uint64_t *pos, uint64_t *ret_end)
{
	struct saver *s = arg;
	const uint64_t pages = s->from->size / PAGES_SIZE;
	uint64_t page = *pos / PAGES_SIZE;
	int kind = KIND_HOLE, r = KIND_HOLE;

	while (page < pages && (kind = kind_of(s, page)) == KIND_HOLE)
		page++;
	if (kind < 0 || page == pages)
		return MIN(kind, 0);
	*pos = page * PAGES_SIZE;
	while (page < pages && (r = kind_of(s, page)) == kind)
		page++;
	*ret_end = page * PAGES_SIZE;
	s->kind = (enum kind)kind;
	return r < 0 ? r : 1;
}

static int read_range(void *arg, uint64_t offset, char *to, size_t n)
{
	const struct saver *s = arg;

	return s->kind == KIND_BASE ? pages_read(s->from->base, offset, to, n)
				    : pages_read(s->mem, s->from->address + offset, to, n);
}

static _noreturn_ void child(struct saver *s)
{
	const struct pages_from from = { .next = next_range, .read = read_range, .arg = s };
	struct result result = { .at = "confining itself" };
	int kept[] = { s->mem,	  s->pagemap, s->pipe,	 s->state,
		       s->memory, s->go,      s->result, s->from->base };
	int r = fd_close_others(3, kept, ARRAY_SIZE(kept));

	if (r == 0)
		r = ram_save_confine(s->from->id);
	if (r == 0) {
		(void)snprintf(result.at, sizeof(result.at), "the VM's state");
		r = copy_state(s);
	}
	if (r == 0) {
		(void)snprintf(result.at, sizeof(result.at), "the VM's memory");
		r = pages_copy(&from, s->from->size, s->memory, result.hex);
	}
	result.num = r;
	(void)!write(s->result, &result, sizeof(result));
	_exit(r < 0);
}

/* ---- the parent ---- */

static int open_process(pid_t pid, const char *name, int *ret, struct err *e)
{
	char path[48];

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	*ret = RETRY_EINTR(open(path, O_RDONLY | O_CLOEXEC));
	return *ret < 0 ? err_errno(e, "cannot open '%s'", path) : 0;
}

int ram_save_allowed(struct err *e)
{
	char scope[8];

	if (fd_read_line(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope)) <
		    0 ||
	    !str_eq(scope, "3"))
		return 0;
	return err_set(e, -EOPNOTSUPP,
		       "kernel.yama.ptrace_scope is 3, so the memory of a VM cannot be saved: see "
		       "'hutch doctor'");
}

int ram_save_start(const struct ram_source *from, int state, int memory, struct ram_save *ret,
		   int *ret_pipe, struct err *e)
{
	_cleanup_close_ int mem = -EBADF, pagemap = -EBADF, in = -EBADF, out = -EBADF;
	_cleanup_close_ int go = -EBADF, go_theirs = -EBADF, result = -EBADF,
			    result_theirs = -EBADF;
	_cleanup_free_ struct saver *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_oom(e);
	if (open_process(from->pid, "mem", &mem, e) < 0 ||
	    open_process(from->pid, "pagemap", &pagemap, e) < 0)
		return e->num;
	r = fd_pipe(0, &in, &out);
	if (r == 0)
		r = fd_pipe(0, &go_theirs, &go);
	if (r == 0)
		r = fd_pipe(0, &result, &result_theirs);
	/* Only the reader must not wait: the hypervisor's end stays as it is. */
	if (r == 0 && fcntl(in, F_SETFL, O_NONBLOCK) < 0)
		r = -errno;
	if (r < 0)
		return err_set(e, r, "cannot create a pipe: %s", strerror(-r));
	*s = (struct saver){ .from = from,
			     .mem = mem,
			     .pagemap = pagemap,
			     .pipe = in,
			     .state = state,
			     .memory = memory,
			     .go = go_theirs,
			     .result = result_theirs };
	r = proc_fork(&ret->saver);
	if (r == 1)
		child(s);
	if (r < 0)
		return err_set(e, r, "cannot start a process to save the VM: %s", strerror(-r));
	ret->go = TAKE_FD(go);
	ret->result = TAKE_FD(result);
	*ret_pipe = TAKE_FD(out);
	return 0;
}

static int wait_for(int fd, uint64_t deadline)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t now = clock_mono();
	int n = RETRY_EINTR(
		poll(&p, 1, now < deadline ? (int)((deadline - now) / NSEC_PER_MSEC) + 1 : 0));

	return n < 0 ? -errno : n == 0 ? -ETIME : 0;
}

void ram_save_go(struct ram_save *s)
{
	FAULT_KILL("ram-saver", s->saver.pidfd);
	(void)!write(s->go, "m", 1); /* if the child has failed, its result says why */
}

int ram_save_result(struct ram_save *s, char ret_hex[static PAGES_HEX], struct err *e)
{
	struct result result = { 0 };

	if (RETRY_EINTR(read(s->result, &result, sizeof(result))) != (ssize_t)sizeof(result))
		return err_set(e, -EPIPE, "the process that saves the VM was killed");
	if (result.num < 0)
		return err_set(e, result.num, "cannot save %.*s: %s", (int)sizeof(result.at) - 1,
			       result.at, strerror(-result.num));
	memcpy(ret_hex, result.hex, PAGES_HEX);
	ret_hex[PAGES_HEX - 1] = '\0';
	return 0;
}

int ram_save_finish(struct ram_save *s, uint64_t deadline, char ret_hex[static PAGES_HEX],
		    struct err *e)
{
	int r;

	ram_save_go(s);
	r = wait_for(s->result, deadline);
	return r < 0 ? err_set(e, r, "cannot save the VM: %s", strerror(-r))
		     : ram_save_result(s, ret_hex, e);
}

void ram_save_done(struct ram_save *s)
{
	proc_done(&s->saver);
	s->go = fd_close(s->go);
	s->result = fd_close(s->result);
}
