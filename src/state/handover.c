/* SPDX-License-Identifier: Apache-2.0 */
#include "state/handover.h"

#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>

#include "base/fd-pass.h"
#include "base/str.h"

enum {
	VERSION = 1,
	WAIT_S = 30, /* timeout for the service manager */
	FDS = 4,
};

struct packet {
	uint32_t version, client;
};

static int connect_to(const char *path, int *ret_fd, struct err *e)
{
	static const struct timeval wait = { .tv_sec = WAIT_S };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un a = { .sun_family = AF_UNIX };

	if (path[0] != '/' || strlen(path) >= sizeof(a.sun_path))
		return err_set(e, -EINVAL, "HUTCH_STARTER is not the path of a socket: '%.80s'",
			       path);
	memcpy(a.sun_path, path, strlen(path));
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0 ||
	    RETRY_EINTR(connect(fd, (struct sockaddr *)&a, sizeof(a))) < 0)
		return err_errno(e, "cannot connect to '%s', which starts sandboxes", path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int handover_send(const char *path, const struct handover *h, int *ret_pidfd, struct err *e)
{
	const struct packet p = { .version = VERSION, .client = h->client >= 0 };
	const int fds[FDS] = { h->dir, h->report, h->log, h->client };
	_cleanup_close_ int sock = -EBADF;
	int pidfd = -EBADF, r = connect_to(path, &sock, e);
	uint32_t answer = 0;

	if (r < 0)
		return r;
	r = fd_pass(sock, 0, &p, sizeof(p), fds, FDS);
	if (r == 0)
		r = fd_receive(sock, 0, &answer, sizeof(answer), &pidfd, 1);
	if (r == 0 && pidfd < 0)
		r = -EBADMSG;
	if (r < 0)
		return err_set(e, r, "the service at '%s' started no keeper: %s; see its journal",
			       path, strerror(-r));
	*ret_pidfd = pidfd;
	return 0;
}

static int check_peer(int sock, struct err *e)
{
	struct ucred who = { .uid = (uid_t)-1 };
	socklen_t n = sizeof(who);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &n) < 0)
		return err_errno(e, "standard input is not a connection");
	if (who.uid != geteuid())
		return err_set(e, -EPERM, "uid %u asks for a sandbox of uid %u: refused",
			       (unsigned int)who.uid, (unsigned int)geteuid());
	return 0;
}

static void drop(int fds[static FDS])
{
	for (size_t i = 0; i < FDS; i++)
		fds[i] = fd_close(fds[i]);
}

static int answer(int sock, struct err *e)
{
	_cleanup_close_ int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	const uint32_t yes = VERSION;
	int r = pidfd < 0 ? -errno : fd_pass(sock, 0, &yes, sizeof(yes), &pidfd, 1);

	return r < 0 ? err_set(e, r, "cannot answer: %s", strerror(-r)) : 0;
}

int handover_receive(int sock, struct handover *ret, struct err *e)
{
	int fds[FDS] = { -EBADF, -EBADF, -EBADF, -EBADF }, r = check_peer(sock, e);
	struct packet p = { 0 };
	struct stat st;

	if (r < 0)
		return r;
	r = fd_receive(sock, 0, &p, sizeof(p), fds, FDS);
	if (r < 0)
		return err_set(e, r, "cannot receive a sandbox to start: %s", strerror(-r));
	if (p.version != VERSION || fds[2] < 0 || (fds[3] >= 0) != (p.client != 0) ||
	    fstat(fds[0], &st) < 0 || !S_ISDIR(st.st_mode))
		r = err_set(e, -EBADMSG, "invalid request to start a sandbox");
	if (r == 0)
		r = answer(sock, e);
	if (r < 0) {
		drop(fds);
		return r;
	}
	*ret = (struct handover){
		.dir = fds[0], .report = fds[1], .log = fds[2], .client = fds[3]
	};
	return 0;
}
