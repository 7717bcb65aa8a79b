/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepts clients. The keeper speaks the guest's role on each client's link. A client that breaks
 * the protocol or is too slow loses its own connection and nothing else: it is marked as gone and
 * freed after the round.
 */
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "keeper/clients.h"
#include "keeper/relay.h"
#include "keeper/serve.h"

enum {
	CLIENT_HELLO_MS = 10 * 1000,
	ACCEPT_PAUSE_MS = 100, /* after accept4() ran out of descriptors or memory */
	LAST_READS = 16,       /* from a disconnected client; a socket holds less */
};

/* Only the policy sets these fields. A client that sends them takes the keeper for a guest: drop
 * it. */
static void on_hello(struct link *l, const struct fields *f, void *arg)
{
	static const enum wire_tag none[] = { TAG_HOSTNAME, TAG_READ, TAG_WRITE, TAG_EXECUTE };
	_cleanup_buf_ struct buf b = BUF_INIT(256);
	struct client *c = arg;

	loop_del_timer(&c->deadline);
	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		c->gone |= fields_has(f, none[i]);
	if (c->gone)
		return;
	fields_put_number(&b, TAG_VERSION, WIRE_VERSION);
	fields_put_text(&b, TAG_AGENT, "hutch-keeper " HUTCH_VERSION);
	fields_put_number(&b, TAG_LANDLOCK, c->keeper->landlock);
	client_check(c, link_hello(l, &b));
}

static const struct link_ops ops = {
	.hello = on_hello,
	.opened = relay_client_opened,
	.data = relay_client_data,
	.eof = relay_client_eof,
	.credit = relay_client_credit,
	.msg = relay_client_msg,
	.closed = relay_client_closed,
	.request = relay_request_of,
};

static void on_deadline(struct loop_timer *t)
{
	struct client *c = t->arg;

	c->gone = true;
}

static void on_client(struct loop_fd *src, uint32_t events)
{
	struct client *c = src->arg;
	struct err e = ERR_INIT;
	int r;

	if (c->gone)
		return;
	/* EPOLLHUP is reported even while input is off: drop the client, or the loop spins. */
	if (!(src->events & EPOLLIN)) {
		c->gone = (events & (EPOLLHUP | EPOLLERR)) != 0;
		return;
	}
	/* Another client may have filled the guest's link in this round. */
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) ||
	    port_waiting(&c->keeper->guest) > OUTPUT_STOPS_INPUT)
		return;
	r = port_read(&c->port, &e);
	if (r == -EPROTO)
		log_warning("a client broke the protocol: %s", e.msg);
	c->heard_out = r < 0;
	c->gone |= c->heard_out;
}

static void free_client(struct client *c)
{
	loop_del_timer(&c->deadline);
	port_done(&c->port);
	free(c);
}

struct client *client_new(struct keeper *k, int fd)
{
	struct client *c = calloc(1, sizeof(*c));

	if (!c || port_init(&c->port, LINK_GUEST, &ops, c, fd, on_client) < 0) {
		(void)fd_close(fd);
		free(c);
		return NULL;
	}
	c->keeper = k;
	c->deadline = (struct loop_timer){ .cb = on_deadline, .arg = c };
	link_with_client(c->port.link);
	if ((fd >= 0 && port_watch(&c->port, k->loop) < 0) ||
	    loop_set_timer(k->loop, &c->deadline, clock_mono() + CLIENT_HELLO_MS * NSEC_PER_MSEC) <
		    0) {
		free_client(c);
		return NULL;
	}
	TRACE(TRACE_STATE, "a client has come, %zu are there", k->clients.n + 1);
	c->first = !k->clients.had_first;
	k->clients.had_first = true;
	c->next = k->clients.list;
	if (k->clients.list)
		k->clients.list->prev = c;
	k->clients.list = c;
	k->clients.n++;
	loop_del_timer(&k->idle);
	return c;
}

/* uid 0 of this user namespace; if an ordinary user started the sandbox, that is this user. */
static bool may_connect(int fd)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) == 0 && peer.uid == 0;
}

static void on_accept_again(struct loop_timer *t)
{
	struct keeper *k = t->arg;

	if (loop_mod_fd(&k->clients.listener, EPOLLIN) < 0)
		keeper_stop(k, KEEPER_FAILED);
}

/* The listener stays readable and the shortage lasts: without a pause the loop would spin. */
static void pause_accepting(struct keeper *k)
{
	log_warning("cannot take a client: %s", strerror(errno));
	k->clients.accept_again = (struct loop_timer){ .cb = on_accept_again, .arg = k };
	if (loop_mod_fd(&k->clients.listener, 0) < 0 ||
	    loop_set_timer(k->loop, &k->clients.accept_again,
			   clock_mono() + ACCEPT_PAUSE_MS * NSEC_PER_MSEC) < 0)
		keeper_stop(k, KEEPER_FAILED);
}

static void on_listener(struct loop_fd *src, uint32_t events)
{
	_cleanup_close_ int fd = accept4(src->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct keeper *k = src->arg;

	if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
		pause_accepting(k);
	if (fd < 0 || k->clients.n >= CLIENTS_MAX || !may_connect(fd))
		return;
	(void)FAULT("keeper-client");
	(void)client_new(k, TAKE_FD(fd));
}

int clients_listen(struct keeper *k)
{
	k->clients.listener.cb = on_listener;
	k->clients.listener.arg = k;
	return loop_add_fd(k->loop, &k->clients.listener, k->clients.listener.fd, EPOLLIN);
}

/*
 * Reads the last bytes of a disconnected client. The keeper may not have read from it for a while,
 * or noticed the disconnect by a failed write. A CLOSE in these bytes still counts: it ends a
 * command, while a disconnect does not.
 */
static void hear_out(struct client *c)
{
	struct err e = ERR_INIT;

	for (int i = 0; i < LAST_READS && !c->heard_out; i++)
		c->heard_out = port_read(&c->port, &e) < 0;
}

static void drop_client(struct client *c)
{
	struct keeper *k = c->keeper;

	if (!k->ended)
		hear_out(c);
	relays_drop(k, c);
	life_drop(c, 0);
	tracing_drop(c, 0);
	save_drop(c, 0);
	if (c->prev)
		c->prev->next = c->next;
	else
		k->clients.list = c->next;
	if (c->next)
		c->next->prev = c->prev;
	k->clients.n--;
	if (c->first && k->clients.once)
		keeper_stop(k, KEEPER_ONCE);
	free_client(c);
	idle_arm(k);
}

void clients_sweep(struct keeper *k)
{
	for (struct client *c = k->clients.list, *next; c; c = next) {
		next = c->next;
		if (c->gone)
			drop_client(c);
	}
}

void clients_done(struct keeper *k)
{
	while (k->clients.list)
		drop_client(k->clients.list);
	loop_del_timer(&k->clients.accept_again);
}
