/* SPDX-License-Identifier: Apache-2.0 */
/* The clients of hutch-hold, which also start it: see hold.h. */
#include "snapshot/hold.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd-pass.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/str.h"

enum {
	TRIES = 4,
	ANSWER_S = 60, /* to read many GiB from a slow disk */
	START_S = 10,
};

struct want {
	int sockets; /* RUN/templates */
	int dir;     /* snapshot directory */
	uint64_t size;
	const char *digest;
	char name[HOLD_NAME];
};

/* ---- the socket directory ---- */

static int open_sockets(const struct state_root *run, bool make, int *ret_fd, struct err *e)
{
	_cleanup_close_ int top = -EBADF;
	int r = 0, fd = -EBADF;

	top = RETRY_EINTR(openat(run->dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (top < 0)
		return err_errno(e, "cannot open '%s'", run->path);
	if (make)
		r = path_mkdirs(top, "templates", 0700);
	if (r == 0)
		r = fd = path_open_nofollow(top, "templates", O_RDONLY | O_DIRECTORY, 0);
	if (r < 0)
		return err_set(e, r, "cannot open '%s/templates': %s", run->path, strerror(-r));
	*ret_fd = fd;
	return 0;
}

static int open_lock(int sockets, int *ret_fd, struct err *e)
{
	int fd = RETRY_EINTR(
		openat(sockets, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));

	if (fd < 0)
		return err_errno(e, "cannot open the lock of templates");
	*ret_fd = fd;
	return 0;
}

static int take_lock(int sockets, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = open_lock(sockets, &fd, e);

	if (r == 0 && RETRY_EINTR(flock(fd, LOCK_EX)) < 0)
		r = err_errno(e, "cannot lock templates");
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

/* ---- requests ---- */

/* Uses the directory's descriptor: its path may be too long for an address. */
static struct sockaddr_un address(int sockets, const char *name)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	(void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d/%s", sockets, name);
	return a;
}

static bool is_ours(int sock)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	return getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == geteuid();
}

/* 0, or -errno: -ENOENT and -ECONNREFUSED mean that no process listens. */
static int reach(int sockets, const char *name, int *ret_sock)
{
	const struct timeval patience = { .tv_sec = ANSWER_S };
	const struct sockaddr_un a = address(sockets, name);
	_cleanup_close_ int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (s < 0 || setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
	    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
	    RETRY_EINTR(connect(s, (const struct sockaddr *)&a, sizeof(a))) < 0)
		return -errno;
	if (!is_ours(s))
		return -EPERM;
	*ret_sock = TAKE_FD(s);
	return 0;
}

static int request(int sock, char what)
{
	return fd_pass(sock, 0, &what, sizeof(what), NULL, 0);
}

static int ask(const struct want *w, int sock, int *ret_memfd)
{
	struct hold_answer answer = { 0 };
	_cleanup_close_ int memfd = -EBADF;
	int r = request(sock, HOLD_MEMORY);

	if (r == 0)
		r = fd_receive(sock, 0, &answer, sizeof(answer), &memfd, 1);
	if (r < 0)
		return r == -EBADMSG ? -EPROTO : r;
	if (answer.status == HOLD_DAMAGED)
		return -EBADMSG;
	if (answer.status == HOLD_FAILED)
		return answer.error < 0 ? answer.error : -EPROTO;
	if (answer.status != HOLD_OK || !hold_is_sealed(memfd, w->size))
		return -EPROTO;
	*ret_memfd = TAKE_FD(memfd);
	return 0;
}

/* ---- starting ---- */

/* Looks in $HUTCH_LIBEXEC_DIR if set; else beside this program (hutch-keeper), in libexec as seen
 * from hutch, or in the build tree. */
static int find_program(char out[static PATH_MAX])
{
	static const char name[] = "hutch-hold";
	const char *set = getenv("HUTCH_LIBEXEC_DIR");
	char dir[PATH_MAX];

	if (set && set[0] == '/')
		return proc_find_in(set, ".", name, out) ? 0 : -ENOENT;
	if (proc_own_directory(dir) < 0)
		return -ENOENT;
	return proc_find_in(dir, ".", name, out) ||
			       proc_find_in(dir, "../libexec/hutch", name, out) ||
			       proc_find_in(dir, "../snapshot", name, out)
		       ? 0
		       : -ENOENT;
}

static uint64_t patience(void)
{
	const char *set = getenv("HUTCH_HOLD_SECONDS");
	uint64_t s;

	return set && str_to_u64(set, strlen(set), 24 * 3600, &s) == 0 ? s : HOLD_SECONDS;
}

/* hutch-hold runs as an orphan: the started process forks and exits at once. */
static int spawn(const struct want *w, int listener, struct err *e)
{
	_cleanup_close_ int memory = -EBADF, lock = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	char program[PATH_MAX], size[24], seconds[24];
	const char *argv[] = { "hutch-hold", w->name, w->digest, size, seconds, NULL };
	siginfo_t info = { 0 };
	int r = find_program(program);

	if (r < 0)
		return err_set(e, r, "hutch-hold is not installed");
	memory = path_open_nofollow(w->dir, "memory", O_RDONLY, 0);
	if (memory < 0)
		return err_set(e, memory, "cannot open the memory of a template: %s",
			       strerror(-memory));
	r = open_lock(w->sockets, &lock, e);
	if (r < 0)
		return r;
	(void)snprintf(size, sizeof(size), "%llu", (unsigned long long)w->size);
	(void)snprintf(seconds, sizeof(seconds), "%llu", (unsigned long long)patience());
	r = proc_spawn(&(struct proc_spec){ .path = program,
					    .argv = argv,
					    .in = -EBADF,
					    .out = -EBADF,
					    .err = -EBADF,
					    .more = (const int[]){ listener, w->dir, memory,
								   w->sockets, lock },
					    .n_more = 5,
					    .own_session = true },
		       &p, e);
	if (r == 0)
		r = proc_wait(&p, clock_mono() + START_S * NSEC_PER_SEC, &info);
	if (r == 0 && (info.si_code != CLD_EXITED || info.si_status != 0))
		r = -EIO;
	return r < 0 && e->num == 0 ? err_set(e, r, "hutch-hold failed: %s", strerror(-r)) : r;
}

/* Only our user may connect; the socket has its mode from the start (unix(7)). */
static int listen_as(const struct want *w, int *ret_fd, struct err *e)
{
	const struct sockaddr_un a = address(w->sockets, w->name);
	_cleanup_close_ int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (unlinkat(w->sockets, w->name, 0) < 0 && errno != ENOENT)
		return err_errno(e, "cannot remove an old socket of a template");
	if (s < 0 || fchmod(s, 0600) < 0 || bind(s, (const struct sockaddr *)&a, sizeof(a)) < 0 ||
	    listen(s, HOLD_BACKLOG) < 0)
		return err_errno(e, "cannot create a socket for a template");
	*ret_fd = TAKE_FD(s);
	return 0;
}

/* Takes the lock, then checks again that no process listens, since one may have started meanwhile.
 */
static int start(const struct want *w, int *ret_sock, struct err *e)
{
	_cleanup_close_ int lock = -EBADF, listener = -EBADF;
	int r = take_lock(w->sockets, &lock, e);

	if (r < 0 || reach(w->sockets, w->name, ret_sock) == 0)
		return r;
	r = listen_as(w, &listener, e);
	if (r == 0)
		r = spawn(w, listener, e);
	if (r < 0) {
		(void)unlinkat(w->sockets, w->name, 0);
		return r;
	}
	r = reach(w->sockets, w->name, ret_sock);
	return r < 0 ? err_set(e, r, "cannot reach hutch-hold: %s", strerror(-r)) : 0;
}

/* No process listens on the socket. */
static bool is_absent(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED;
}

/* Opens its own file description: a shared one shares the offset, which each user can move. */
static int reopen(int *memfd)
{
	char path[32];
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", *memfd);
	fd = RETRY_EINTR(open(path, O_RDONLY | O_CLOEXEC));
	if (fd < 0)
		return -errno;
	(void)fd_close(*memfd);
	*memfd = fd;
	return 0;
}

int hold_get(const struct state_root *run, int dir, uint64_t size, const char *digest,
	     int *ret_memfd, struct err *e)
{
	_cleanup_close_ int sockets = -EBADF;
	struct want w = { .dir = dir, .size = size, .digest = digest };
	int r = open_sockets(run, true, &sockets, e);

	if (r < 0)
		return r;
	w.sockets = sockets;
	(void)snprintf(w.name, sizeof(w.name), "%.32s.sock", digest);
	/* A holder may exit at this moment; this repeats only if something kills every one. */
	for (int i = 0; i < TRIES; i++) {
		_cleanup_close_ int sock = -EBADF;

		r = reach(w.sockets, w.name, &sock);
		if (is_absent(r) && (r = start(&w, &sock, e)) < 0)
			return r;
		if (r == 0)
			r = ask(&w, sock, ret_memfd);
		if (r == 0 && (r = reopen(ret_memfd)) < 0)
			*ret_memfd = fd_close(*ret_memfd);
		if (r == 0 || r == -EBADMSG)
			break;
	}
	return r < 0 ? err_set(e, r,
			       r == -EBADMSG ? "the snapshot's memory is damaged"
					     : "hutch-hold: %s",
			       strerror(-r))
		     : 0;
}

/* ---- stopping ---- */

/* Removes a socket without a listener: its process was killed. Under the lock, no process can bind
 * a new one. */
static int remove_stale(int sockets, const char *name)
{
	_cleanup_close_ int sock = -EBADF, lock = -EBADF;
	struct err none = ERR_INIT;
	int r = take_lock(sockets, &lock, &none);

	if (r == 0 && reach(sockets, name, &sock) == -ECONNREFUSED &&
	    unlinkat(sockets, name, 0) < 0 && errno != ENOENT)
		r = -errno;
	return r;
}

/* 1: it has exited. 0: there was none. */
static int end_one(int sockets, const char *name)
{
	_cleanup_close_ int sock = -EBADF;
	bool ended = false;
	char byte;
	int r = reach(sockets, name, &sock);

	if (r == 0)
		r = request(sock, HOLD_END);
	if (r == 0) {
		ended = true;
		if (RETRY_EINTR(recv(sock, &byte, sizeof(byte), 0)) < 0 && errno != ECONNRESET)
			return -errno;
	} else if (!is_absent(r) && r != -EPIPE && r != -ECONNRESET) {
		return r;
	}
	r = remove_stale(sockets, name);
	return r < 0 ? r : ended;
}

int hold_end_all(const struct state_root *run, void (*took)(const char *name, void *arg), void *arg,
		 struct err *e)
{
	_cleanup_close_ int sockets = -EBADF;
	struct err none = ERR_INIT;
	struct dirent *entry;
	int r = open_sockets(run, false, &sockets, &none);
	DIR *d;

	if (r < 0)
		return r == -ENOENT ? 0 : (*e = none).num;
	d = fd_list(sockets);
	if (!d)
		return err_errno(e, "cannot list '%s/templates'", run->path);
	while (r >= 0 && (entry = readdir(d))) {
		if (!str_has_suffix(entry->d_name, ".sock"))
			continue;
		r = end_one(sockets, entry->d_name);
		if (r > 0)
			took(entry->d_name, arg);
		else if (r < 0)
			(void)err_set(e, r, "cannot stop the holder of template '%.40s': %s",
				      entry->d_name, strerror(-r));
	}
	(void)closedir(d);
	return r < 0 ? r : 0;
}
