/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A child without privileges (sandbox-confine.h) unpacks the sandbox's data; it can write below one
 * directory only. If a directory is copied onto an existing one, that is the directory. Otherwise
 * it is a new directory next to the destination, and one rename moves the unpacked result into
 * place; after a failure the new directory is removed with its contents. So a result under its
 * final name is complete.
 *
 * The parent waits. It requests the archive, to learn whether a directory comes, but reads no byte
 * of it. The child reports progress on a socket, and stops when the parent closes its end.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/str.h"
#include "cli/copy.h"
#include "image/tree.h"
#include "sandbox/sandbox-confine.h"
#include "tar/extract.h"

#define TELL_EVERY (200 * NSEC_PER_MSEC)

enum {
	NAME = 256,
	STAGE_TRIES = 8,
};

/* Report of the child: progress, and finally the result. */
struct report {
	bool last;
	int result;
	uint64_t entries, bytes;
	char text[ERR_MSG_MAX]; /* the error */
	char note[ERR_MSG_MAX];
};

struct unpacking {
	struct extract extract;
	int sock;
	uint64_t told;
};

/* ---- the child ---- */

static int64_t read_transfer(void *arg, void *buf, size_t n, struct err *e)
{
	return transfer_read(arg, buf, n, e);
}

static void tell(struct extract *x)
{
	struct unpacking *u = (struct unpacking *)x;
	struct report r = { .entries = x->entries, .bytes = x->bytes };
	uint64_t now = clock_mono();

	if (now - u->told < TELL_EVERY)
		return;
	u->told = now;
	(void)!send(u->sock, &r, sizeof(r), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static int unpack(struct copy *c, struct unpacking *u, const struct jail *j, struct err *e)
{
	int r = jail_enter(j, e);

	if (r == 0)
		r = extract_archive(&u->extract, e);
	/* After a truncated archive the sandbox reports the cause. */
	if (r == 0 || (r == -EINVAL && c->t.ended)) {
		struct err why = ERR_INIT;
		int k = transfer_finish(&c->t, &why);

		if (k < 0) {
			*e = why;
			r = k;
		}
	}
	return r;
}

static _noreturn_ void child(struct copy *c, const struct jail *j, const char *top, bool directory)
{
	static struct unpacking u;
	struct report last = { .last = true };
	struct err e = ERR_INIT;

	/* The parent handles signals; when it ends, so does the child. */
	c->t.stop = u.sock = j->keep[1];
	u.extract = (struct extract){ .root = j->dir,
				      .top = top,
				      .directory = directory,
				      .read = read_transfer,
				      .arg = &c->t,
				      .pipe = -EBADF,
				      .max_entries = c->max_entries,
				      .max_bytes = c->max_bytes,
				      .tick = tell };
	last.result = unpack(c, &u, j, &e);
	last.entries = u.extract.entries;
	last.bytes = u.extract.bytes;
	memcpy(last.text, e.msg, sizeof(last.text));
	(void)snprintf(last.note, sizeof(last.note), "%.*s", ERR_MSG_MAX - 1, c->t.text);
	(void)!send(u.sock, &last, sizeof(last), MSG_NOSIGNAL);
	_exit(last.result < 0);
}

/* ---- the parent ---- */

/* Receives one packet. 1: it was the last; 0: more follow; -EPIPE: the child ended without one. */
static int take_report(struct copy *c, int sock, struct report *ret)
{
	ssize_t n = RETRY_EINTR(recv(sock, ret, sizeof(*ret), 0));

	if (n != (ssize_t)sizeof(*ret))
		return -EPIPE;
	ret->text[sizeof(ret->text) - 1] = ret->note[sizeof(ret->note) - 1] = '\0';
	c->entries = ret->entries;
	c->bytes = ret->bytes;
	copy_tick(c, c->entries, c->bytes);
	return ret->last;
}

/* Waits until the child has ended or a signal arrives: *ret_signal. */
static int wait_for(struct copy *c, int sock, int signals, int *ret_signal, struct err *e)
{
	struct pollfd p[2] = { { .fd = sock, .events = POLLIN },
			       { .fd = signals, .events = POLLIN } };
	struct signalfd_siginfo info;
	struct report report;
	int r = 0;

	while (r == 0) {
		if (RETRY_EINTR(poll(p, 2, -1)) < 0)
			return err_errno(e, "cannot wait");
		if (p[1].revents & POLLIN && read(signals, &info, sizeof(info)) == sizeof(info)) {
			*ret_signal = (int)info.ssi_signo;
			return err_set(e, -ECANCELED, "interrupted");
		}
		if (p[0].revents != 0)
			r = take_report(c, sock, &report);
	}
	if (r < 0)
		return err_set(e, r, "the process that unpacks has ended unexpectedly");
	memcpy(c->note, report.note, sizeof(c->note));
	return report.result < 0 ? err_set(e, report.result, "%s", report.text) : 0;
}

/* Runs the child to its end. SIGINT and the like are blocked, because files may have to be removed.
 */
static int unpack_below(struct copy *c, int dir, const char *top, bool directory, bool override,
			int *ret_signal, int signals, struct err *e)
{
	_cleanup_close_ int ours = -EBADF, theirs = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	siginfo_t info;
	int socks[2], r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
		return err_errno(e, "cannot make a socket");
	ours = socks[0];
	theirs = socks[1];
	(void)fflush(NULL);
	r = proc_fork(&p);
	if (r < 0)
		return err_set(e, r, "cannot start a process: %s", strerror(-r));
	if (r == 1) {
		const struct jail j = { .dir = dir,
					.keep = { c->t.fd, theirs, theirs },
					.override = override };

		child(c, &j, top, directory);
	}
	theirs = fd_close(theirs);
	r = wait_for(c, ours, signals, ret_signal, e);
	ours = fd_close(ours);
	(void)proc_wait(&p, UINT64_MAX, &info);
	return r;
}

/* ---- destination ---- */

/* Creates a new directory next to the destination. */
static int make_stage(int parent, char out[static NAME], struct err *e)
{
	for (int i = 0; i < STAGE_TRIES; i++) {
		uint64_t random = 0;

		if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
			return err_errno(e, "cannot get random bytes");
		(void)snprintf(out, NAME, ".hutch-cp-%016llx", (unsigned long long)random);
		if (mkdirat(parent, out, 0700) == 0) {
			int fd = RETRY_EINTR(openat(
				parent, out, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));

			return fd < 0 ? err_errno(e, "cannot open '%s'", out) : fd;
		}
		if (errno != EEXIST)
			break;
	}
	return err_errno(e, "cannot write in the destination's directory");
}

/* Moving a directory changes its "..", so its mode must allow writing. */
static int put_in_place(int stage, int parent, const char *base, struct err *e)
{
	struct stat st;
	int r = 0;

	if (fstatat(stage, "new", &st, AT_SYMLINK_NOFOLLOW) < 0)
		return err_errno(e, "cannot stat the unpacked files");
	if (S_ISDIR(st.st_mode) && fchmodat(stage, "new", st.st_mode | S_IRWXU, 0) < 0)
		r = -errno;
	if (r == 0 && renameat(stage, "new", parent, base) < 0)
		r = -errno;
	if (r == 0 && S_ISDIR(st.st_mode) && fchmodat(parent, base, st.st_mode & 07777, 0) < 0)
		r = -errno;
	return r < 0 ? err_set(e, r, "cannot write '%.150s': %s", base, strerror(-r)) : 0;
}

/* Unpacks next to `base` and moves the result into place. */
static int unpack_new(struct copy *c, int parent, const char *base, bool directory, int *ret_signal,
		      int signals, struct err *e)
{
	_cleanup_close_ int stage = -EBADF;
	char name[NAME];
	int r, left;

	stage = make_stage(parent, name, e);
	if (stage < 0)
		return stage;
	r = unpack_below(c, stage, "new", directory, false, ret_signal, signals, e);
	if (r == 0)
		r = put_in_place(stage, parent, base, e);
	left = tree_remove(parent, name);
	if (r == 0 && left < 0)
		r = err_set(e, left, "cannot remove '%s': %s", name, strerror(-left));
	return r;
}

/* Root may write into another user's directory; its child, without capabilities, may not. */
static bool needs_override(int dir)
{
	struct stat st;

	return geteuid() == 0 && fstat(dir, &st) == 0 && st.st_uid != 0;
}

static int unpack_into(struct copy *c, int dir, int *ret_signal, int signals, struct err *e)
{
	int r = unpack_below(c, dir, ".", true, needs_override(dir), ret_signal, signals, e);
	char size[ERR_MSG_MAX];

	if (r < 0 && c->entries > 0) {
		(void)snprintf(size, sizeof(size), "%.180s", e->msg);
		return err_set(e, r, "%s; %llu entries were written before that", size,
			       (unsigned long long)c->entries);
	}
	return r;
}

struct destination {
	int parent;	 /* directory of the result */
	char base[NAME]; /* name of the result there; "." is `parent` itself */
	int dir;	 /* the existing directory, else -EBADF */
};

static void destination_done(struct destination *d)
{
	d->parent = fd_close(d->parent);
	d->dir = fd_close(d->dir);
}

/* Like cp(1): into an existing directory, or to a name in an existing directory. */
static int find(const char *src, const char *dst, struct destination *ret, struct err *e)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
	char above[TAR_NAME_MAX + 1];

	ret->parent = RETRY_EINTR(open(dst, flags));
	if (ret->parent >= 0) {
		if (!copy_base(src, ret->base, sizeof(ret->base)))
			return err_set(e, -ENAMETOOLONG, "the name is too long");
	} else if (errno != ENOENT && errno != ENOTDIR) {
		return err_errno(e, "cannot write to '%.150s'", dst);
	} else {
		if (str_has_suffix(dst, "/") && errno == ENOTDIR)
			return err_set(e, -ENOTDIR, "'%.150s' is not a directory", dst);
		if (!copy_base(dst, ret->base, sizeof(ret->base)) || str_eq(ret->base, "."))
			return err_set(e, -ENOENT, "cannot write to '%.150s'", dst);
		(void)snprintf(above, sizeof(above), "%s", dst);
		for (size_t n = strlen(above); n > 1 && above[n - 1] == '/'; n--)
			above[n - 1] = '\0';
		if (path_parent(above, above, sizeof(above)) < 0)
			return err_set(e, -ENAMETOOLONG, "the path is too long");
		ret->parent = RETRY_EINTR(open(above, flags));
		if (ret->parent < 0)
			return err_errno(e, "cannot write to '%.150s'", above);
	}
	ret->dir = RETRY_EINTR(openat(ret->parent, ret->base, flags | O_NOFOLLOW));
	return 0;
}

static int unpack_to(struct copy *c, const struct destination *d, const char *dst, int *ret_signal,
		     int signals, struct err *e)
{
	bool directory = c->t.kind == WIRE_DIRECTORY;

	if (d->dir >= 0 && !directory)
		return err_set(e, -EISDIR,
			       "cannot replace the directory '%.150s' by something else", d->base);
	if (d->dir >= 0)
		return unpack_into(c, d->dir, ret_signal, signals, e);
	if (!directory && str_has_suffix(dst, "/") && faccessat(AT_FDCWD, dst, F_OK, 0) < 0)
		return err_set(e, -ENOTDIR, "'%.150s' is not a directory", dst);
	return unpack_new(c, d->parent, d->base, directory, ret_signal, signals, e);
}

static int write_archive(struct copy *c, struct err *e)
{
	_cleanup_free_ char *chunk = malloc(EXTRACT_BUFFER);
	int64_t n = 0;
	int r = chunk ? 0 : err_oom(e);

	while (r == 0 && (n = transfer_read(&c->t, chunk, EXTRACT_BUFFER, e)) > 0) {
		r = fd_write_all(STDOUT_FILENO, chunk, (size_t)n);
		if (r < 0)
			return err_set(e, r, "cannot write to standard output: %s", strerror(-r));
		c->bytes += (uint64_t)n;
		copy_tick(c, 0, c->bytes);
	}
	if (r == 0)
		r = n < 0 ? (int)n : transfer_finish(&c->t, e);
	(void)snprintf(c->note, sizeof(c->note), "%.*s", ERR_MSG_MAX - 1, c->t.text);
	return r;
}

static int block_signals(sigset_t *ret_old, int *ret_fd, struct err *e)
{
	static const int list[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
	sigset_t set;

	(void)sigemptyset(&set);
	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		(void)sigaddset(&set, list[i]);
	if (sigprocmask(SIG_BLOCK, &set, ret_old) < 0)
		return err_errno(e, "cannot block signals");
	*ret_fd = signalfd(-1, &set, SFD_CLOEXEC);
	return *ret_fd < 0 ? err_errno(e, "cannot wait for signals") : 0;
}

int copy_out(struct copy *c, const char *src, const char *dst, struct err *e)
{
	_cleanup_(destination_done) struct destination d = { .parent = -EBADF, .dir = -EBADF };
	_cleanup_close_ int signals = -EBADF;
	int r = str_eq(dst, "-") ? 0 : find(src, dst, &d, e), got = 0;
	sigset_t old;

	if (r == 0)
		r = transfer_open(&c->t, WIRE_OP_PACK, src, c->user, false, e);
	if (r < 0)
		return r;
	if (str_eq(dst, "-"))
		return write_archive(c, e);
	r = block_signals(&old, &signals, e);
	if (r == 0)
		r = unpack_to(c, &d, dst, &got, signals, e);
	(void)sigprocmask(SIG_SETMASK, &old, NULL);
	if (got > 0)
		(void)raise(got); /* deliver the signal now that cleanup is done */
	return r;
}
