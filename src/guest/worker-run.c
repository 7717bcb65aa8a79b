/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a worker, its table of operations, and the small operations. */
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

#include "guest/worker.h"

enum {
	CONTROL_FD = 3,
	PIPE_FD = 4,
};

/* Sends ACCEPT with the entry of `path`, without following a link. */
static int accept_path(struct worker *w, const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return worker_fail(w, "look at");
	return worker_send(w, PACKET_ACCEPT, AT_FDCWD, path, path, &st);
}

static int worker_stat(struct worker *w)
{
	return accept_path(w, w->path);
}

static int worker_move(struct worker *w)
{
	struct stat st;

	if (fields_has(w->fields, TAG_PARENTS) && lstat(w->path, &st) == 0 &&
	    worker_make_parents(w->target) < 0)
		return fail_errno(&w->fail, errno, "make the directories above", w->target);
	if (rename(w->path, w->target) < 0)
		return worker_fail(w, "move");
	return accept_path(w, w->target);
}

static int worker_mkdir(struct worker *w)
{
	bool parents = fields_has(w->fields, TAG_PARENTS);
	mode_t mode = (mode_t)fields_number(w->fields, TAG_MODE, 0755);
	size_t n = strlen(w->path);
	struct stat st;

	while (n > 1 && w->path[n - 1] == '/')
		w->path[--n] = '\0';
	if (parents && worker_make_parents(w->path) < 0)
		return worker_fail(w, "make");
	if (mkdir(w->path, 0700) < 0) {
		int err = errno;

		if (!parents || stat(w->path, &st) < 0 || !S_ISDIR(st.st_mode)) {
			errno = err;
			return worker_fail(w, "make");
		}
	} else if (chmod(w->path, mode) < 0) { /* exact, ignoring the umask */
		return worker_fail(w, "set the mode of");
	}
	return accept_path(w, w->path);
}

static int (*const operations[WIRE_OP_MAX])(struct worker *w) = {
	[WIRE_OP_READ] = worker_read,	  [WIRE_OP_WRITE] = worker_write,
	[WIRE_OP_STAT] = worker_stat,	  [WIRE_OP_LIST] = worker_list,
	[WIRE_OP_MKDIR] = worker_mkdir,	  [WIRE_OP_MOVE] = worker_move,
	[WIRE_OP_REMOVE] = worker_remove, [WIRE_OP_WATCH] = worker_watch,
	[WIRE_OP_PACK] = worker_pack,	  [WIRE_OP_UNPACK] = worker_unpack,
};

static int work(struct worker *w, enum wire_op op)
{
	struct user user;

	if (child_become(w->fields, -EBADF, &user, &w->fail) < 0)
		return -1;
	if (fields_has(w->fields, TAG_OWNERS) && user.uid != 0)
		return fail_with(&w->fail, WIRE_PERMISSION, "only root packs an image");
	/* The ruleset and other descriptors of PID 1 are not needed any more. */
	if (syscall(SYS_close_range, w->pipe >= 0 ? PIPE_FD + 1 : PIPE_FD, ~0U, 0) < 0)
		return fail_with(&w->fail, WIRE_IO, "cannot close descriptors");
	if (child_path(w->fields, TAG_PATH, &user, w->path, sizeof(w->path), &w->fail) < 0 ||
	    (fields_has(w->fields, TAG_TARGET) &&
	     child_path(w->fields, TAG_TARGET, &user, w->target, sizeof(w->target), &w->fail) < 0))
		return -1;
	return operations[op](w);
}

/*
 * Makes the worker's descriptors 3 and 4. Descriptor 3 was the channel to the keeper; replacing it
 * closes the channel before anything else happens.
 */
static bool arrange_fds(int control, int contents)
{
	int high = fcntl(control, F_DUPFD_CLOEXEC, PIPE_FD + 1);

	return high >= 0 && dup2(contents >= 0 ? contents : high, PIPE_FD) >= 0 &&
	       dup2(high, CONTROL_FD) >= 0;
}

void worker_run(enum wire_op op, const struct fields *f, int control, int contents)
{
	static struct worker w;
	bool good;

	if (!arrange_fds(control, contents))
		_exit(1);
	w.fields = f;
	w.control = CONTROL_FD;
	w.pipe = contents >= 0 ? PIPE_FD : -EBADF;
	w.packet.max = PACKET_BYTES;
	good = work(&w, op) == 0;
	if (good) {
		w.fail.code = WIRE_DONE;
		memcpy(w.fail.text, w.note, sizeof(w.note));
	}
	if (w.pipe >= 0)
		(void)close(w.pipe);
	(void)worker_send_end(&w);
	_exit(good ? 0 : 1);
}
