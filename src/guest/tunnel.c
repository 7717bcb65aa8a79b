/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/tunnel.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

static struct tunnel *tunnel_of(struct job *j)
{
	return (struct tunnel *)j;
}

/* Closes the channel once both directions have ended. May free the job. */
static void finish(struct job *j)
{
	const struct tunnel *t = tunnel_of(j);

	if (!outflow_running(&t->out) && t->in.fd < 0)
		job_close(j, t->reset ? WIRE_GONE : WIRE_DONE, NULL);
}

/* The program sends nothing more. If it has also closed its end, do not wait for it to receive. */
static void sent_all(struct job *j)
{
	struct tunnel *t = tunnel_of(j);
	struct pollfd p = { .fd = t->in.fd };

	if (t->in.fd >= 0 && poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR))) {
		t->reset |= t->passes_resets;
		inflow_done(&t->in);
	}
	finish(j);
}

/* Everything up to the keeper's EOF is in the socket. */
static void received_all(struct job *j)
{
	const struct tunnel *t = tunnel_of(j);

	if (outflow_running(&t->out))
		(void)shutdown(t->out.fd, SHUT_WR);
	finish(j);
}

/* The program is gone. If the peer is informed of resets, the program's last bytes are useless. */
static void dropped(struct job *j)
{
	struct tunnel *t = tunnel_of(j);

	if (t->passes_resets) {
		t->reset = true;
		outflow_done(&t->out);
	}
	finish(j);
}

void tunnel_init(struct tunnel *t, bool passes_resets)
{
	t->passes_resets = passes_resets;
	outflow_init(&t->out, &t->job, 0, -EBADF, sent_all);
	inflow_init(&t->in, &t->job, 0, -EBADF);
}

int tunnel_begin(struct tunnel *t, int *fd)
{
	int on = 1, other = fcntl(*fd, F_DUPFD_CLOEXEC, 3);

	if (other < 0)
		return -errno;
	(void)setsockopt(other, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	inflow_init(&t->in, &t->job, 0, other);
	t->in.drained = received_all;
	t->in.dropped = dropped;
	outflow_init(&t->out, &t->job, 0, *fd, sent_all);
	*fd = -EBADF;
	return 0;
}

void tunnel_done(struct tunnel *t)
{
	outflow_done(&t->out);
	inflow_done(&t->in);
}

void tunnel_data(struct job *j, unsigned int stream, const void *data, size_t n)
{
	if (stream == 0)
		inflow_data(&tunnel_of(j)->in, data, n);
	else
		guest_check(j->guest, link_consumed(j->guest->link, j->ch, stream, n));
}

void tunnel_eof(struct job *j, unsigned int stream)
{
	if (stream == 0)
		inflow_eof(&tunnel_of(j)->in);
}

void tunnel_wake(struct job *j)
{
	outflow_wake(&tunnel_of(j)->out);
}
