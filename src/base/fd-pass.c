/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd-pass.h"

#include <string.h>
#include <sys/socket.h>

#include "base/util.h"

union control {
	struct cmsghdr align;
	char space[CMSG_SPACE(FD_PASS_MAX * sizeof(int))];
};

int fd_pass(int sock, int flags, const void *data, size_t n, const int *fds, size_t n_fds)
{
	struct iovec iov = { .iov_base = (void *)data, .iov_len = n };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control control = { 0 };
	struct cmsghdr *c = &control.align;
	size_t k = 0;
	ssize_t sent;

	assert(n > 0 && n_fds <= FD_PASS_MAX);
	for (size_t i = 0; i < n_fds; i++)
		if (fds[i] >= 0)
			memcpy(CMSG_DATA(c) + k++ * sizeof(int), &fds[i], sizeof(int));
	if (k > 0) {
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(k * sizeof(int));
		h.msg_control = control.space;
		h.msg_controllen = CMSG_SPACE(k * sizeof(int));
	}
	sent = RETRY_EINTR(sendmsg(sock, &h, flags | MSG_NOSIGNAL));
	return sent < 0 ? -errno : sent == (ssize_t)n ? 0 : -EIO;
}

static size_t take(struct msghdr *h, int fds[static FD_PASS_MAX])
{
	struct cmsghdr *c = CMSG_FIRSTHDR(h);
	size_t k;

	if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
		return 0;
	k = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	assert(k <= FD_PASS_MAX);
	memcpy(fds, CMSG_DATA(c), k * sizeof(int));
	return k;
}

static void close_all(const int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		(void)fd_close(fds[i]);
}

int fd_receive_up_to(int sock, int flags, void *data, size_t max, size_t *ret_n, int *fds,
		     size_t n_fds)
{
	struct iovec iov = { .iov_base = data, .iov_len = max };
	union control control = { 0 };
	struct msghdr h = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.space,
			    .msg_controllen = sizeof(control.space) };
	ssize_t len = RETRY_EINTR(recvmsg(sock, &h, flags | MSG_CMSG_CLOEXEC));
	int got[FD_PASS_MAX];
	size_t k = len < 0 ? 0 : take(&h, got);

	if (len < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	if (len == 0 || k > n_fds || (h.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		close_all(got, k);
		return len == 0 ? -EPIPE : -EBADMSG;
	}
	for (size_t i = 0; i < n_fds; i++)
		fds[i] = i < k ? got[i] : -EBADF;
	*ret_n = (size_t)len;
	return 0;
}

int fd_receive(int sock, int flags, void *data, size_t n, int *fds, size_t n_fds)
{
	int got[FD_PASS_MAX], r;
	size_t len = 0;

	assert(n_fds <= FD_PASS_MAX);
	for (size_t i = 0; i < FD_PASS_MAX; i++)
		got[i] = -EBADF;
	r = fd_receive_up_to(sock, flags, data, n, &len, got, n_fds);
	if (r < 0)
		return r;
	if (len != n) {
		close_all(got, n_fds);
		return -EBADMSG;
	}
	for (size_t i = 0; i < n_fds; i++)
		fds[i] = got[i];
	return 0;
}
