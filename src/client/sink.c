/* SPDX-License-Identifier: Apache-2.0 */
#include "client/sink.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>

/* Only wakes the loop: the owner flushes after each round. */
static void on_room(struct loop_fd *src, uint32_t events)
{
}

void sink_init(struct sink *s, struct loop *loop, int fd, size_t max)
{
	struct stat st;

	*s = (struct sink){
		.buf = BUF_INIT(max), .loop = loop, .src = { .cb = on_room }, .fd = fd
	};
	s->regular = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

void sink_done(struct sink *s)
{
	loop_del_fd(&s->src);
	buf_done(&s->buf);
}

int sink_put(struct sink *s, const void *data, size_t n)
{
	return buf_put(&s->buf, data, n);
}

/* A pipe reported as ready accepts PIPE_BUF bytes at once, see pipe(7). */
static size_t room(const struct sink *s, size_t wanted)
{
	struct pollfd p = { .fd = s->fd, .events = POLLOUT };

	if (s->regular)
		return wanted;
	return poll(&p, 1, 0) > 0 ? MIN(wanted, (size_t)PIPE_BUF) : 0;
}

/* Watches the descriptor only while data waits: epoll would report a pipe without readers again and
 * again. */
static int watch(struct sink *s)
{
	int r;

	if (sink_empty(s)) {
		loop_del_fd(&s->src);
		return 0;
	}
	r = loop_add_fd(s->loop, &s->src, s->fd, EPOLLOUT);
	return r == -EEXIST ? 0 : r;
}

ssize_t sink_flush(struct sink *s)
{
	size_t done = 0, n;
	int r;

	while (done < s->buf.len && (n = room(s, s->buf.len - done)) > 0) {
		ssize_t wrote = write(s->fd, s->buf.data + done, n);

		if (wrote < 0 && errno == EAGAIN)
			break; /* another process made it non-blocking */
		if (wrote < 0 && errno != EINTR)
			return -errno;
		done += wrote > 0 ? (size_t)wrote : 0;
	}
	buf_consume(&s->buf, done);
	r = watch(s);
	return r < 0 ? r : (ssize_t)done;
}
