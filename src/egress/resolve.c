/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One c-ares channel for all lookups. c-ares reports which sockets it waits for (on_state) and when
 * to wake it. We create the sockets, CLOEXEC and non-blocking from the start. c-ares accepts a
 * reply only from the server's address, with the query's id and question.
 *
 * A lookup is two queries. It is answered when both are, or shortly after the first with a result,
 * or at its timeout. c-ares cannot cancel a single query, so a cancelled lookup stays allocated
 * until both queries have ended; resolver_free() ends them all.
 */
#include "egress/resolve.h"

#include <ares.h>
#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"

enum {
	SOCKETS_MAX = 32, /* a channel has one or two for each server */
};

struct resolver {
	struct loop *loop;
	ares_channel channel;
	struct loop_timer timer;
	struct loop_fd sockets[SOCKETS_MAX];
	size_t lookups;
	bool broken, freeing;
};

struct query {
	struct lookup *lookup;
	int family;
};

struct lookup {
	struct resolver *resolver;
	resolve_cb *cb; /* NULL: answered or cancelled */
	void *arg;
	struct answer answer;
	struct query query[2];
	unsigned int pending;
	struct loop_timer timer;
};

/* ---- sockets ---- */

static ares_socket_t make_socket(int domain, int type, int protocol, void *arg)
{
	return socket(domain, type | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
}

static int close_socket(ares_socket_t fd, void *arg)
{
	return close(fd);
}

static int connect_socket(ares_socket_t fd, const struct sockaddr *to, ares_socklen_t n, void *arg)
{
	return connect(fd, to, n);
}

static ares_ssize_t receive(ares_socket_t fd, void *data, size_t n, int flags,
			    struct sockaddr *from, ares_socklen_t *from_n, void *arg)
{
	return recvfrom(fd, data, n, flags, from, from_n);
}

static ares_ssize_t transmit(ares_socket_t fd, const struct iovec *v, int n, void *arg)
{
	return writev(fd, v, n);
}

static const struct ares_socket_functions socket_functions = {
	make_socket, close_socket, connect_socket, receive, transmit,
};

static void wake(struct resolver *r)
{
	struct timeval tv = { 0 };

	if (!ares_timeout(r->channel, NULL, &tv))
		loop_del_timer(&r->timer);
	else if (loop_set_timer(r->loop, &r->timer,
				clock_mono() + (uint64_t)tv.tv_sec * NSEC_PER_SEC +
					(uint64_t)tv.tv_usec * 1000) < 0)
		r->broken = true;
}

static void on_timer(struct loop_timer *src)
{
	struct resolver *r = src->arg;

	ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	wake(r);
}

static void on_socket(struct loop_fd *src, uint32_t events)
{
	struct resolver *r = src->arg;
	int fd = src->fd;

	ares_process_fd(r->channel, events & (EPOLLIN | EPOLLERR | EPOLLHUP) ? fd : ARES_SOCKET_BAD,
			events & EPOLLOUT ? fd : ARES_SOCKET_BAD);
	wake(r);
}

static struct loop_fd *find_socket(struct resolver *r, int fd)
{
	for (size_t i = 0; i < SOCKETS_MAX; i++)
		if (r->sockets[i].loop ? r->sockets[i].fd == fd : fd < 0)
			return &r->sockets[i];
	return NULL;
}

/* c-ares waits for these events on that socket from now on. A socket that we cannot watch times
 * out. */
static void on_state(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct resolver *r = arg;
	uint32_t events = (readable ? EPOLLIN : 0) | (writable ? EPOLLOUT : 0);
	struct loop_fd *src = find_socket(r, fd);

	if (src && events == 0)
		return loop_del_fd(src);
	if (src && loop_mod_fd(src, events) < 0)
		r->broken = true;
	if (src || events == 0)
		return;
	src = find_socket(r, -1);
	if (!src)
		return;
	src->cb = on_socket;
	src->arg = r;
	(void)loop_add_fd(r->loop, src, fd, events);
}

/* ---- the channel ---- */

static int set_server(ares_channel channel, const char *server, struct err *e)
{
	if (server && ares_set_servers_ports_csv(channel, server) != ARES_SUCCESS)
		return err_set(e, -EINVAL, "'%s' is not the ADDRESS:PORT of a resolver", server);
	return 0;
}

static int no_channel(int status, struct err *e)
{
	return err_set(e, -EIO, "cannot set up the resolver: %s", ares_strerror(status));
}

static struct target server_of(const struct ares_addr_port_node *node)
{
	const bool v4 = node->family == AF_INET;
	struct target t = { .is_addr = true,
			    .port = node->udp_port ? (uint16_t)node->udp_port : NAMESERVER_PORT,
			    .addr = { .family = v4 ? 4 : 6, .prefix = v4 ? 32 : 128 } };

	memcpy(t.addr.bytes, &node->addr, v4 ? 4 : 16);
	return t;
}

int resolver_servers(const char *server, struct target ret[static RESOLVE_SERVERS_MAX],
		     size_t *ret_n, struct err *e)
{
	struct ares_addr_port_node *all = NULL;
	ares_channel channel = NULL;
	int status = ares_library_init(ARES_LIB_INIT_ALL), r;
	size_t n = 0;

	if (status == ARES_SUCCESS)
		status = ares_init(&channel);
	if (status != ARES_SUCCESS)
		return no_channel(status, e);
	r = set_server(channel, server, e);
	if (r == 0) {
		status = ares_get_servers_ports(channel, &all);
		r = status == ARES_SUCCESS ? 0 : no_channel(status, e);
	}
	for (const struct ares_addr_port_node *at = all; at && n < RESOLVE_SERVERS_MAX;
	     at = at->next)
		ret[n++] = server_of(at);
	ares_free_data(all);
	ares_destroy(channel);
	ares_library_cleanup();
	if (r == 0)
		*ret_n = n;
	return r;
}

int resolver_new(struct loop *l, const char *server, struct resolver **ret, struct err *e)
{
	struct ares_options options = {
		.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
		.timeout = RESOLVE_TRY_MS,
		.tries = RESOLVE_TRIES,
		.lookups = (char *)"b", /* DNS only */
		.sock_state_cb = on_state,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
		   ARES_OPT_SOCK_STATE_CB | ARES_OPT_DOMAINS | ARES_OPT_NOROTATE;
	struct resolver *r = calloc(1, sizeof(*r));
	int status, k;

	if (!r)
		return err_oom(e);
	options.sock_state_cb_data = r;
	r->loop = l;
	r->timer.cb = on_timer;
	r->timer.arg = r;
	status = ares_library_init(ARES_LIB_INIT_ALL);
	if (status == ARES_SUCCESS)
		status = ares_init_options(&r->channel, &options, mask);
	if (status != ARES_SUCCESS) {
		free(r);
		return no_channel(status, e);
	}
	ares_set_socket_functions(r->channel, &socket_functions, r);
	k = set_server(r->channel, server, e);
	if (k < 0)
		(void)resolver_free(r);
	else
		*ret = r;
	return k;
}

struct resolver *resolver_free(struct resolver *r)
{
	if (!r)
		return NULL;
	r->freeing = true;
	ares_destroy(r->channel); /* ends every query: see on_reply() */
	assert(r->lookups == 0);
	loop_del_timer(&r->timer);
	for (size_t i = 0; i < SOCKETS_MAX; i++)
		loop_del_fd(&r->sockets[i]);
	ares_library_cleanup();
	free(r);
	return NULL;
}

/* ---- lookups ---- */

static int parse_v4(const unsigned char *reply, int n, struct answer *a)
{
	struct ares_addrttl v[RESOLVE_ADDRS_MAX];
	int count = RESOLVE_ADDRS_MAX;
	int r = ares_parse_a_reply(reply, n, NULL, v, &count);

	for (int i = 0; r == ARES_SUCCESS && i < count; i++) {
		struct addr *at = &a->v[a->n++];

		*at = (struct addr){ .family = 4, .prefix = 32 };
		memcpy(at->bytes, &v[i].ipaddr, sizeof(v[i].ipaddr));
	}
	return r;
}

static int parse_v6(const unsigned char *reply, int n, struct answer *a)
{
	struct ares_addr6ttl v[RESOLVE_ADDRS_MAX];
	int count = RESOLVE_ADDRS_MAX;
	int r = ares_parse_aaaa_reply(reply, n, NULL, v, &count);

	for (int i = 0; r == ARES_SUCCESS && i < count; i++) {
		struct addr *at = &a->v[a->n++];

		*at = (struct addr){ .family = 6, .prefix = 128 };
		memcpy(at->bytes, &v[i].ip6addr, sizeof(v[i].ip6addr));
	}
	return r;
}

int resolve_parse(const unsigned char *reply, int n, int family, struct answer *a)
{
	size_t room = ARRAY_SIZE(a->v) - a->n;

	if (room < RESOLVE_ADDRS_MAX)
		return ARES_ENOMEM;
	return family == 4 ? parse_v4(reply, n, a) : parse_v6(reply, n, a);
}

static void put_lookup(struct lookup *l)
{
	if (l->pending > 0 || l->cb)
		return;
	loop_del_timer(&l->timer);
	l->resolver->lookups--;
	free(l);
}

static void finish(struct lookup *l)
{
	resolve_cb *cb = l->cb;
	struct answer answer = l->answer;
	void *arg = l->arg;

	l->cb = NULL;
	loop_del_timer(&l->timer);
	if (answer.n > 0)
		answer.why = NULL;
	else if (!answer.why)
		answer.why = "the resolver did not answer in time";
	put_lookup(l);
	if (cb)
		cb(arg, &answer);
}

static void on_time(struct loop_timer *src)
{
	finish(src->arg);
}

/* Defers the answer to a timer: resolve_start() must not call back. */
static void finish_soon(struct lookup *l, uint64_t ms)
{
	if (loop_set_timer(l->resolver->loop, &l->timer, clock_mono() + ms * NSEC_PER_MSEC) < 0)
		l->answer.why = "too many timers";
}

static const char *say(int status)
{
	switch (status) {
	case ARES_SUCCESS:
	case ARES_ENODATA:
		return "the name has no address";
	case ARES_ENOTFOUND:
		return "the name does not exist";
	case ARES_ETIMEOUT:
		return "the resolver did not answer in time";
	case ARES_ECONNREFUSED:
		return "no resolver could be reached, or none would answer";
	default:
		return "the resolver gave no usable answer";
	}
}

static void on_reply(void *arg, int status, int timeouts, unsigned char *reply, int n)
{
	struct query *q = arg;
	struct lookup *l = q->lookup;

	l->pending--;
	if (l->resolver->freeing) {
		l->cb = NULL;
		return put_lookup(l);
	}
	if (!l->cb)
		return put_lookup(l);
	if (status == ARES_SUCCESS)
		status = resolve_parse(reply, n, q->family, &l->answer);
	/* A missing name says more than a network error. */
	if (!l->answer.why || status == ARES_ENOTFOUND)
		l->answer.why = say(status);
	if (l->pending == 0)
		finish_soon(l, 0);
	else if (l->answer.n > 0)
		finish_soon(l, RESOLVE_DELAY_MS);
}

int resolve_start(struct resolver *r, const struct name *name, resolve_cb *cb, void *arg,
		  struct lookup **ret)
{
	struct lookup *l;
	int k;

	if (r->lookups >= RESOLVE_AT_ONCE || r->broken)
		return r->broken ? -EIO : -EBUSY;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->resolver = r;
	l->cb = cb;
	l->arg = arg;
	l->timer.cb = on_time;
	l->timer.arg = l;
	k = loop_set_timer(r->loop, &l->timer, clock_mono() + RESOLVE_TIMEOUT_MS * NSEC_PER_MSEC);
	if (k < 0) {
		free(l);
		return k;
	}
	r->lookups++;
	l->pending = 2;
	for (unsigned int i = 0; i < 2; i++) {
		l->query[i] = (struct query){ .lookup = l, .family = i == 0 ? 6 : 4 };
		ares_query(r->channel, name->text, ns_c_in, i == 0 ? ns_t_aaaa : ns_t_a, on_reply,
			   &l->query[i]);
	}
	wake(r);
	*ret = l;
	return 0;
}

void resolve_cancel(struct lookup *l)
{
	l->cb = NULL;
	loop_del_timer(&l->timer);
	put_lookup(l);
}
