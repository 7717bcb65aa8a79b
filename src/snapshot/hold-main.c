/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-hold NAME.sock DIGEST SIZE SECONDS: holds the memory of one template, and hands it out to
 * its own user (hold.h). Reads the file once, checks its digest on the way, seals what it has, and
 * then waits. Ends when nobody has asked for SECONDS, when the snapshot is removed or put
 * elsewhere, when it is asked to, or if the file is damaged. Its socket goes with it.
 *
 * It keeps its user, and nothing else (hold-confine.c). It reads nothing of anybody else's but one
 * byte of a request.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd-pass.h"
#include "base/str.h"
#include "snapshot/hold.h"

enum {
	REQUEST_MS = 1000,  /* of one who has connected and does not ask */
	BAD_NEWS_MS = 1000, /* those who wait are told, and then it ends */
};

struct hold {
	const char *name, *digest;
	uint64_t size, seconds;
	int memfd, watch;
	struct hold_answer answer;
};

/* ---- serving ---- */

/* What it waits for: requests, and the end of the snapshot. The watch goes with the directory's
 * last name; a descriptor of the directory would keep it. */
static int watch_snapshot(struct hold *h)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", HOLD_FD_DIR);
	h->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (h->watch < 0 || inotify_add_watch(h->watch, path, IN_MOVE_SELF | IN_DELETE_SELF) < 0)
		return -errno;
	(void)close(HOLD_FD_DIR);
	return 0;
}

static void load(struct hold *h)
{
	int r = hold_load(HOLD_FD_MEMORY, h->size, h->digest, &h->memfd);

	(void)close(HOLD_FD_MEMORY);
	h->answer.status = r == 0 ? HOLD_OK : r == -EBADMSG ? HOLD_DAMAGED : HOLD_FAILED;
	h->answer.error = r;
}

/* Whether it was asked to end; `sock` then stays open until it has. */
static bool serve_one(const struct hold *h, int sock)
{
	const struct timeval patience = { .tv_sec = REQUEST_MS / 1000 };
	struct ucred peer;
	socklen_t n = sizeof(peer);
	char what = 0;

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 || peer.uid != geteuid() ||
	    setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
	    RETRY_EINTR(recv(sock, &what, sizeof(what), 0)) != (ssize_t)sizeof(what))
		return false;
	if (what == HOLD_MEMORY)
		(void)fd_pass(sock, MSG_DONTWAIT, &h->answer, sizeof(h->answer), &h->memfd, 1);
	return what == HOLD_END;
}

/* Returns the connection of the one who wants its end, or -EBADF. */
static int serve(const struct hold *h)
{
	const uint64_t ms = h->answer.status == HOLD_OK ? h->seconds * 1000 : BAD_NEWS_MS;
	struct pollfd fds[] = { { .fd = HOLD_FD_LISTENER, .events = POLLIN },
				{ .fd = h->watch, .events = POLLIN } };
	uint64_t end = clock_mono() + ms * NSEC_PER_MSEC;

	for (;;) {
		uint64_t now = clock_mono();
		int n = now < end
				? poll(fds, ARRAY_SIZE(fds), (int)((end - now) / NSEC_PER_MSEC) + 1)
				: 0;
		int sock;

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0 || fds[1].revents)
			return -EBADF;
		sock = accept4(HOLD_FD_LISTENER, NULL, NULL, SOCK_CLOEXEC);
		if (sock < 0)
			continue;
		if (serve_one(h, sock))
			return sock;
		(void)close(sock);
		if (h->answer.status == HOLD_OK)
			end = clock_mono() + ms * NSEC_PER_MSEC;
	}
}

static int parse(int argc, char **argv, struct hold *h)
{
	if (argc != 5 || !str_has_suffix(argv[1], ".sock") || strchr(argv[1], '/') ||
	    strlen(argv[2]) != PAGES_HEX - 1 ||
	    str_to_u64(argv[3], strlen(argv[3]), INT64_MAX, &h->size) < 0 ||
	    str_to_u64(argv[4], strlen(argv[4]), 24 * 3600, &h->seconds) < 0)
		return -EINVAL;
	h->name = argv[1];
	h->digest = argv[2];
	return 0;
}

int main(int argc, char **argv)
{
	struct hold h = { .memfd = -EBADF, .watch = -EBADF };
	pid_t pid;

	if (parse(argc, argv, &h) < 0) {
		(void)fputs("usage: hutch-hold SOCKET DIGEST SIZE SECONDS\n"
			    "Holds the memory of a template; started by hutch, not by hand.\n",
			    stderr);
		return 2;
	}
	if (chdir("/") < 0 || sodium_init() < 0 || watch_snapshot(&h) < 0)
		return 1;
	pid = fork();
	if (pid != 0)
		return pid < 0;
	if (hold_confine() < 0)
		return 1;
	load(&h);
	(void)serve(&h);
	/* Whoever holds the lock has another in its place, or is about to. The listener is still
	 * open: who connects now is told by its end. */
	if (flock(HOLD_FD_LOCK, LOCK_EX | LOCK_NB) == 0)
		(void)unlinkat(HOLD_FD_SOCKETS, h.name, 0);
	_exit(0);
}
