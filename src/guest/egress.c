/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outgoing connections of a sandbox with its own kernel. The guest creates the capturing sockets
 * and runs the capture half of src/egress, but decides nothing. It asks the keeper whether a name
 * may be resolved (ask), and opens a channel for each stream (connect). The keeper answers ACCEPT
 * when it is connected, or CLOSE with a code if the connection failed or was reset.
 *
 * Until ACCEPT the guest reads nothing from the program and only watches for its end. After that
 * the stream is a tunnel. A program that breaks its connection closes the channel before both
 * directions have ended.
 */
#include <netinet/in.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "egress/capture.h"
#include "egress/net-setup.h"
#include "guest/tunnel.h"
#include "guest/vm.h"

enum {
	/* Below WIRE_CHANNELS_MAX: questions need channels too. The policy's limit is lower. */
	STREAMS_MAX = 896,
	NAMES_MAX = 16384, /* names with an address; the keeper enforces the policy's limit */
	HOST_FIELDS_MAX = 320,
};
static_assert((int)STREAMS_MAX < (int)WIRE_CHANNELS_MAX, "some are left for questions");

struct stream {
	struct tunnel tunnel;
	enum capture_how how;
	struct loop_fd waiting; /* the program's socket, until ACCEPT */
	bool told;		/* the result was reported; otherwise the keeper has changed */
};

static struct stream *stream_of(struct job *j)
{
	return (struct stream *)j;
}

/* ---- end of a stream ---- */

static void make_reset(int fd)
{
	const struct linger reset = { .l_onoff = 1 };

	if (fd >= 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

static void release(struct stream *s)
{
	if (s->tunnel.reset) {
		make_reset(s->waiting.fd);
		make_reset(s->tunnel.in.fd);
		make_reset(s->tunnel.out.fd);
	}
	loop_del_fd(&s->waiting);
	s->waiting.fd = fd_close(s->waiting.fd);
	tunnel_done(&s->tunnel);
}

/* ---- answers of the keeper ---- */

static enum front_result result_of(enum wire_code code)
{
	switch (code) {
	case WIRE_PERMISSION:
		return FRONT_DENIED;
	case WIRE_NOT_FOUND:
		return FRONT_UNREACHABLE;
	case WIRE_IO:
		return FRONT_REFUSED;
	case WIRE_GONE:
		return FRONT_TIMEOUT;
	default:
		return FRONT_BUSY;
	}
}

static void stream_accepted(struct job *j)
{
	struct stream *s = stream_of(j);

	loop_del_fd(&s->waiting);
	if (tunnel_begin(&s->tunnel, &s->waiting.fd) < 0 ||
	    capture_reply(s->tunnel.out.fd, s->how, FRONT_OK, NULL) < 0) {
		s->tunnel.reset = true;
		job_close(j, WIRE_GONE, NULL);
		return;
	}
	outflow_wake(&s->tunnel.out);
}

static void stream_answered(struct job *j, enum wire_code code, const char *text)
{
	struct stream *s = stream_of(j);

	s->told = true;
	s->tunnel.reset = code != WIRE_DONE;
	if (s->waiting.fd < 0)
		return;
	loop_del_fd(&s->waiting);
	capture_refuse(TAKE_FD(s->waiting.fd), s->how, result_of(code), text[0] ? text : NULL);
}

static void stream_closed(struct job *j)
{
	struct stream *s = stream_of(j);

	s->tunnel.reset |= !s->told;
	release(s);
}

static void stream_done(struct job *j)
{
	release(stream_of(j));
	j->guest->n_streams--;
}

static const struct job_ops stream_ops = {
	.own = true,
	.accepted = stream_accepted,
	.answered = stream_answered,
	.data = tunnel_data,
	.eof = tunnel_eof,
	.wake = tunnel_wake,
	.closed = stream_closed,
	.done = stream_done,
};

/* ---- start of a stream ---- */

/* No events are requested, so this is a hangup or an error. */
static void on_waiting(struct loop_fd *src, uint32_t events)
{
	struct stream *s = src->arg;

	s->tunnel.reset = true;
	job_close(&s->tunnel.job, WIRE_GONE, NULL);
}

static void put_host(struct buf *b, const struct target *t)
{
	char text[ADDR_TEXT_MAX];

	fields_put_number(b, TAG_PORT, t->port);
	fields_put_text(b, TAG_HOST, t->is_addr ? addr_format(&t->addr, text) : t->name.text);
}

/* 0 or -errno. Takes `fd` on success. */
static int stream_open(struct guest *g, int fd, const struct target *t, enum capture_how how)
{
	_cleanup_buf_ struct buf b = BUF_INIT(HOST_FIELDS_MAX);
	_cleanup_free_ struct stream *s = calloc(1, sizeof(*s));
	uint32_t ch = 0;
	int r;

	if (!s || g->n_streams >= STREAMS_MAX)
		return -ENOMEM;
	s->how = how;
	s->waiting = (struct loop_fd){ .cb = on_waiting, .arg = s };
	put_host(&b, t);
	r = loop_add_fd(g->loop, &s->waiting, fd, 0);
	if (r < 0)
		return r;
	r = link_open(g->link, WIRE_OP_CONNECT, &b, NULL, &ch);
	if (r < 0) {
		loop_del_fd(&s->waiting);
		guest_check(g, r == -EAGAIN ? 0 : r);
		return r;
	}
	tunnel_init(&s->tunnel, true);
	g->n_streams++;
	job_add(g, &s->tunnel.job, &stream_ops, 0, ch);
	(void)TAKE_PTR(s);
	return 0;
}

static void on_connect(int fd, const struct target *t, enum capture_how how, void *arg)
{
	if (stream_open(arg, fd, t, how) < 0)
		capture_refuse(fd, how, FRONT_BUSY, "too many connections at once");
}

/* ---- questions ---- */

struct question {
	struct job job;
	uint64_t number;
};

static void question_answered(struct job *j, enum wire_code code, const char *text)
{
	const struct question *q = (const struct question *)j;

	capture_answered(j->guest->capture, q->number, code == WIRE_DONE,
			 text[0] ? text : "not allowed by the policy of this sandbox");
}

static void question_closed(struct job *j)
{
	(void)j;
}

static const struct job_ops question_ops = {
	.own = true,
	.answered = question_answered,
	.closed = question_closed,
};

static enum capture_may on_ask(const struct name *name, uint64_t number, const char **ret_reason,
			       void *arg)
{
	_cleanup_buf_ struct buf b = BUF_INIT(HOST_FIELDS_MAX);
	struct question *q = calloc(1, sizeof(*q));
	struct guest *g = arg;
	uint32_t ch = 0;
	int r = -ENOMEM;

	fields_put_text(&b, TAG_HOST, name->text);
	if (q)
		r = link_open(g->link, WIRE_OP_ASK, &b, NULL, &ch);
	if (r < 0) {
		free(q);
		guest_check(g, r == -EAGAIN || r == -ENOMEM ? 0 : r);
		*ret_reason = "too many questions at once";
		return CAPTURE_MAY_NOT;
	}
	q->number = number;
	job_add(g, &q->job, &question_ops, 0, ch);
	return CAPTURE_MAY_LATER;
}

/* ---- the network ---- */

static int read_networks(const struct fields *hello, struct addr *v, size_t *ret_n, struct err *e)
{
	size_t pos = 0, len = 0, n = 0;
	const char *text = NULL;
	struct rule rule;

	while (fields_next(hello, TAG_NETWORK, &pos, &text, &len)) {
		if (n == NET_NETWORKS_MAX)
			return err_set(e, -E2BIG, "more than %d networks", NET_NETWORKS_MAX);
		if (rule_parse(text, len, &rule, e) < 0 || rule.kind != RULE_ADDR || rule.port != 0)
			return err_set(e, -EINVAL, "'%.*s' is not a network", (int)MIN(len, 64U),
				       text);
		v[n++] = rule.addr;
	}
	*ret_n = n;
	return 0;
}

int egress_open(struct guest *g, const struct fields *hello, struct err *e)
{
	static const struct capture_ops ops = { .ask = on_ask, .connect = on_connect };
	_cleanup_capture_sockets_ struct capture_sockets s = CAPTURE_SOCKETS_INIT;
	_cleanup_free_ struct addr *networks = NULL;
	uint8_t key[SIPHASH_KEY];
	size_t n = 0;
	int r;

	/* A resumed VM still has its sockets. */
	if (!fields_has(hello, TAG_EGRESS) || g->capture)
		return 0;
	networks = calloc(NET_NETWORKS_MAX, sizeof(*networks));
	if (!networks)
		return err_oom(e);
	if (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))
		return err_set(e, -EIO, "no random numbers");
	r = read_networks(hello, networks, &n, e);
	if (r == 0)
		r = net_capture(&(struct net_plan){ .networks = networks,
						    .n = n,
						    .shared = vm_is_nested() },
				&s, e);
	if (r < 0)
		return err_wrap(e, "setting up egress");
	r = capture_new(g->loop, &s, NAMES_MAX, key, &ops, g, &g->capture);
	return r < 0 ? err_set(e, r, "setting up egress: %s", strerror(-r)) : 0;
}
