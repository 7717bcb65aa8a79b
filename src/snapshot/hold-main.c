/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-hold NAME.sock DIGEST SIZE SECONDS: holds the memory of one template and gives it to
 * processes of its own user (hold.h). It reads the file once, verifies its digest, seals the
 * memory, and then waits for requests. It exits after SECONDS without a request, when the snapshot
 * is removed or moved, when asked to, or if the file is damaged, and removes its socket.
 *
 * It keeps its user id and no other privilege (hold-confine.c). The only untrusted input is one
 * byte per request.
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
	REQUEST_MS = 1000,  /* for a connected client to send its request */
	BAD_NEWS_MS = 1000, /* to inform waiting clients of a failure before it exits */
};

struct hold {
	const char *name, *digest;
	uint64_t size, seconds;
	int memfd, watch;
	struct hold_answer answer;
};

/* ---- serving ---- */

/* Watches for the removal of the snapshot. The watch reports the removal of the directory's last
 * name; an open descriptor of the directory would prevent that. */
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

/* Returns whether the client asked it to exit; `sock` then stays open until it does. */
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

/* Returns the connection of the client that asked it to exit, or -EBADF. */
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
	/* If another process holds the lock, it has replaced the socket or is about to. The
	 * listener is still open: clients that connect now see the connection close. */
	if (flock(HOLD_FD_LOCK, LOCK_EX | LOCK_NB) == 0)
		(void)unlinkat(HOLD_FD_SOCKETS, h.name, 0);
	_exit(0);
}
