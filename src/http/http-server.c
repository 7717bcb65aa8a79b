/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listeners and the number of connections. A connection over the limit replaces the one that has
 * been idle, or in the middle of a head, for longest. If there is none, a few more are accepted
 * (SURPLUS) and get 503 after their request has arrived, so that the client reads it; the rest are
 * closed at once.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/http-inner.h"

enum {
	ACCEPTS = 16, /* per turn, before other sources run */
	SURPLUS = 64,
	AGAIN_MS = 100,
};

static void listen_again(struct loop_timer *src)
{
	struct http_server *s = src->arg;

	for (struct http_listener *l = s->listeners; l; l = l->next)
		(void)loop_mod_fd(&l->src, EPOLLIN);
}

/* Out of descriptors: the connection stays in the queue and the listener readable, so listeners are
 * not watched for a while. */
static void rest(struct http_server *s)
{
	if (s->idle_first)
		http_conn_end(s->idle_first);
	if (loop_set_timer(s->config.loop, &s->again, clock_mono() + AGAIN_MS * NSEC_PER_MSEC) < 0)
		return;
	for (struct http_listener *l = s->listeners; l; l = l->next)
		(void)loop_mod_fd(&l->src, 0);
}

static void admit(struct http_listener *l, int fd)
{
	struct http_server *s = l->server;

	if (s->n_conns >= s->config.connections && s->idle_first)
		http_conn_end(s->idle_first);
	if (s->n_conns >= s->config.connections + SURPLUS) {
		(void)fd_close(fd);
		return;
	}
	(void)http_conn_new(l, fd, s->n_conns >= s->config.connections);
}

static void on_listener(struct loop_fd *src, uint32_t events)
{
	struct http_listener *l = src->arg;

	for (int i = 0; i < ACCEPTS; i++) {
		int fd = accept4(src->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			admit(l, fd);
		} else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			rest(l->server);
			return;
		} else if (errno == EAGAIN) {
			return;
		}
		/* Other errors concern a connection that has already gone: accept(2). */
	}
}

int http_server_new(const struct http_config *config, struct http_server **ret, struct err *e)
{
	struct http_server *s = calloc(1, sizeof(*s));

	if (!s)
		return err_oom(e);
	s->config = *config;
	s->again = (struct loop_timer){ .cb = listen_again, .arg = s };
	*ret = s;
	return 0;
}

static void close_listeners(struct http_server *s)
{
	loop_del_timer(&s->again);
	while (s->listeners) {
		struct http_listener *l = s->listeners;

		s->listeners = l->next;
		loop_del_fd(&l->src);
		(void)fd_close(l->src.fd);
		free(l);
	}
}

struct http_server *http_server_free(struct http_server *s)
{
	if (!s)
		return NULL;
	close_listeners(s);
	while (s->conns)
		http_conn_end(s->conns);
	free(s);
	return NULL;
}

int http_server_add(struct http_server *s, int fd, struct http_tls *tls, struct err *e)
{
	struct http_listener *l = calloc(1, sizeof(*l));
	socklen_t n = sizeof(int);
	int domain = 0, r;

	if (!l) {
		(void)fd_close(fd);
		return err_oom(e);
	}
	l->server = s;
	l->tls = tls;
	l->number = s->listeners ? s->listeners->number + 1 : 0;
	l->src = (struct loop_fd){ .cb = on_listener, .arg = l, .fd = fd };
	r = fcntl(fd, F_SETFL, O_NONBLOCK) < 0 ||
			    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) < 0
		    ? -errno
		    : 0;
	l->local = domain == AF_UNIX;
	if (r == 0)
		r = loop_add_fd(s->config.loop, &l->src, fd, EPOLLIN);
	if (r < 0) {
		(void)fd_close(fd);
		free(l);
		return err_set(e, r, "cannot listen for HTTP: %s", strerror(-r));
	}
	l->next = s->listeners;
	s->listeners = l;
	return 0;
}

size_t http_server_connections(const struct http_server *s)
{
	return s->n_conns;
}

void http_server_stop(struct http_server *s)
{
	s->stopping = true;
	close_listeners(s);
	while (s->idle_first)
		http_conn_end(s->idle_first);
}
