/* SPDX-License-Identifier: Apache-2.0 */
#include "image/channel.h"

#include <string.h>
#include <sys/socket.h>

union control {
	struct cmsghdr align;
	char space[CMSG_SPACE(sizeof(int))];
};

int channel_send(int sock, const struct channel_msg *m, int fd, bool wait)
{
	struct iovec iov = { .iov_base = (void *)m, .iov_len = sizeof(*m) };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };
	union control control = { 0 };
	ssize_t k;

	if (fd >= 0) {
		struct cmsghdr *c;

		h.msg_control = control.space;
		h.msg_controllen = sizeof(control.space);
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	k = RETRY_EINTR(sendmsg(sock, &h, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT)));
	return k < 0 ? -errno : k == (ssize_t)sizeof(*m) ? 0 : -EIO;
}

int channel_recv(int sock, struct channel_msg *ret, int *ret_fd)
{
	struct channel_msg m;
	struct iovec iov = { .iov_base = &m, .iov_len = sizeof(m) };
	union control control = { 0 };
	struct msghdr h = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.space,
			    .msg_controllen = sizeof(control.space) };
	ssize_t k = RETRY_EINTR(recvmsg(sock, &h, MSG_CMSG_CLOEXEC));
	struct cmsghdr *c = k >= 0 ? CMSG_FIRSTHDR(&h) : NULL;
	int fd = -EBADF;

	if (k < 0)
		return errno == ECONNRESET ? -EPIPE : -errno;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
	    c->cmsg_len == CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(c), sizeof(int));
	if (k != (ssize_t)sizeof(m)) {
		(void)fd_close(fd);
		return k == 0 ? -EPIPE : -EBADMSG;
	}
	m.text[sizeof(m.text) - 1] = '\0';
	*ret = m;
	*ret_fd = fd;
	return 0;
}
