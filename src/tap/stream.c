/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream waits for the program's first byte, which decides: TLS on both sides, or plain HTTP on
 * both. With TLS both handshakes run at the same time, and the program's request is read while the
 * server's handshake still runs. Only a program that offers HTTP/2 waits for the server's
 * handshake: it gets HTTP/2 if the server speaks it.
 *
 * If the server's handshake fails or takes too long, the program's is completed: its request is
 * answered with the reason, because a program shows an HTTP answer but hides why a connection was
 * closed.
 *
 * serve() moves bytes in rounds, as long as any move, at most ROUNDS for one event; a stream with
 * more to do is served again after the others (due). Bytes that the exchange does not consume are
 * kept, at most KEPT_MAX for each direction; then that side is not read.
 *
 * A program that has left must not keep its stream. A broken connection, or one whose TLS was not
 * ended, cannot receive a response: the stream ends as soon as the server has what was sent. A
 * program that has ended its direction in order may wait for the response; it gets LEFT_TIME
 * without a byte.
 */
#include "tap/stream.h"

#include <malloc.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "tap/exchange.h"

#define SHAKE_TIME  (30 * NSEC_PER_SEC)
#define HEAD_TIME   (60 * NSEC_PER_SEC)
#define LINGER_TIME (5 * NSEC_PER_SEC)
#define LEFT_TIME   (60 * NSEC_PER_SEC)
#define HELD_TIME   (50 * NSEC_PER_MSEC)

enum {
	SCRATCH = CONN_CHUNK,
	KEPT_MAX = 32 * 1024,
	ROUNDS = 4,
	LINGER_ROUNDS = 8,
	GIVE_BACK_MIN = 16,   /* streams */
	TLS_HANDSHAKE = 0x16, /* the first byte of a ClientHello */
};

static_assert(KEPT_MAX < SCRATCH, "there is room to read");

enum stage {
	STAGE_FIRST, /* waits for the first byte */
	STAGE_SERVE,
	STAGE_LINGER, /* all is sent; waits until the program closes */
	STAGE_END,
};

enum timer {
	TIMER_NONE,
	TIMER_SHAKE,
	TIMER_HEAD,
	TIMER_LINGER,
	TIMER_HELD,
	TIMER_LEFT,
};

struct side {
	struct conn conn;
	struct tls_peer peer;
	struct buf kept;  /* read, but not consumed by the exchange */
	bool is_eof_told; /* to the exchange */
};

struct stream {
	struct tap *tap;
	uint64_t id;
	struct name name;
	struct side client, server;
	struct exchange *exchange;
	enum stage stage;
	enum timer timer;
	struct loop_timer clock;
	enum tap_protocol protocol; /* that the policy allows */
	bool tls, is_addr, http2;
	bool is_woken;	    /* a call may continue */
	bool has_answer;    /* bytes of a response came since the last request */
	bool server_failed; /* its handshake; then its connection is closed */
	enum tap_result server_result;
	enum tap_result result;
	char text[TAP_TEXT_MAX + 1];
	bool is_due;
	struct stream *due_next, *due_prev;
};

static char scratch[SCRATCH];

static void step(struct stream *s);

/* ---- the end ---- */

static void set_result(struct stream *s, enum tap_result result, const char *text)
{
	s->result = result;
	(void)snprintf(s->text, sizeof(s->text), "%s", text);
}

static void finish(struct stream *s, enum tap_result result, const char *text)
{
	if (s->stage == STAGE_END)
		return;
	if (s->exchange && !exchange_over(s->exchange))
		exchange_abort(s->exchange, result, text);
	s->stage = STAGE_END;
	set_result(s, result, text);
}

/* A server that has a part of a request must not read it as the whole one. */
static void close_server(struct stream *s, bool gently)
{
	struct conn *c = &s->server.conn;

	if (s->exchange && (c->pending.len > 0 || exchange_cuts_request(s->exchange)))
		conn_reset_on_close(c);
	else if (gently)
		conn_shut(c);
	conn_done(c);
}

/* After this the program must not read a partial response as a whole one. */
static void finish_hard(struct stream *s, enum tap_result result, const char *text)
{
	finish(s, result, text);
	conn_reset_on_close(&s->client.conn);
}

static void due_remove(struct stream *s)
{
	struct tap *t = s->tap;

	if (!s->is_due)
		return;
	s->is_due = false;
	*(s->due_prev ? &s->due_prev->due_next : &t->due_first) = s->due_next;
	*(s->due_next ? &s->due_next->due_prev : &t->due_last) = s->due_prev;
	s->due_next = s->due_prev = NULL;
}

static void due_add(struct stream *s)
{
	struct tap *t = s->tap;

	if (s->is_due)
		return;
	s->is_due = true;
	s->due_prev = t->due_last;
	*(t->due_last ? &t->due_last->due_next : &t->due_first) = s;
	t->due_last = s;
}

static void tell_end(struct tap *t, uint64_t id, enum tap_result result, const char *text)
{
	struct tap_message m = { .kind = TAP_END, .end = { .stream = id, .result = result } };

	(void)snprintf(m.end.text, sizeof(m.end.text), "%s", text);
	tap_tell(t, &m);
}

static void side_done(struct side *side)
{
	conn_done(&side->conn);
	buf_done(&side->kept);
}

/* After a burst, its memory is free, but lies between blocks that are in use. */
static void give_back(struct tap *t)
{
	if (t->most_streams < GIVE_BACK_MIN || t->n_streams > t->most_streams / 2)
		return;
	t->most_streams = t->n_streams;
	(void)malloc_trim(0);
}

static void stream_free(struct stream *s)
{
	struct tap *t = s->tap;

	loop_del_timer(&s->clock);
	due_remove(s);
	close_server(s, false);
	side_done(&s->client);
	side_done(&s->server);
	(void)exchange_free(s->exchange);
	t->n_streams--;
	tell_end(t, s->id, s->result, s->text);
	free(s);
	give_back(t);
}

/* ---- timers ---- */

static void set_timer(struct stream *s, enum timer timer, uint64_t time)
{
	if (s->timer == timer)
		return;
	s->timer = timer;
	if (timer == TIMER_NONE)
		loop_del_timer(&s->clock);
	else if (loop_set_timer(s->tap->loop, &s->clock, clock_mono() + time) < 0)
		finish(s, TAP_FAULT, "too many timers");
}

/* The program gets the reason, server.peer.text, as the response to its request. */
static void drop_server(struct stream *s, enum tap_result result)
{
	s->server_failed = true;
	s->server_result = result;
	conn_done(&s->server.conn);
}

/* The time for the handshakes is over. True if the stream continues, to tell the program. */
static bool end_handshake(struct stream *s)
{
	struct tls_peer *p = &s->client.peer;

	if (s->server_failed) {
		finish(s, s->server_result, s->server.peer.text);
		return false;
	}
	if (!p->is_heard || s->server.conn.is_shaken) {
		finish(s, TAP_TIME, "the program did not complete its TLS handshake");
		return false;
	}
	(void)snprintf(s->server.peer.text, sizeof(s->server.peer.text), "%s",
		       "the server did not complete its TLS handshake");
	drop_server(s, TAP_TIME);
	if (p->protocol == TLS_UNDECIDED)
		tls_decide(p, NULL);
	s->timer = TIMER_NONE;
	set_timer(s, TIMER_SHAKE, SHAKE_TIME);
	return s->stage != STAGE_END;
}

static void on_timer(struct loop_timer *src)
{
	struct stream *s = src->arg;

	switch (s->timer) {
	case TIMER_SHAKE:
		if (!end_handshake(s))
			break;
		step(s);
		return;
	case TIMER_HEAD:
		finish(s, TAP_TIME, "the head of a request did not arrive in time");
		break;
	case TIMER_LINGER:
		s->stage = STAGE_END;
		break;
	case TIMER_LEFT:
		finish(s, TAP_TIME, "the program ended its direction, and no bytes came since");
		break;
	case TIMER_HELD:
		s->timer = TIMER_NONE;
		if (exchange_release(s->exchange) < 0)
			finish_hard(s, TAP_FAULT, "out of memory");
		step(s);
		return;
	case TIMER_NONE:
		return;
	}
	stream_free(s);
}

/* ---- handshakes ---- */

static void fail_server(struct stream *s, int r)
{
	struct side *server = &s->server;

	drop_server(s, tls_server_failure(&server->conn, &server->peer, r));
}

/* Once the program has said what it speaks. */
static int shake_server(struct stream *s)
{
	struct tls_peer *p = &s->client.peer;
	struct side *v = &s->server;
	int r;

	if (!p->is_heard || s->server_failed)
		return 0;
	if (!v->conn.ssl && tls_connect(&v->conn, &v->peer, p->offers_http2) < 0)
		return -ENOMEM;
	r = conn_shake(&v->conn);
	if (r < 0)
		fail_server(s, r);
	if (p->protocol == TLS_UNDECIDED && (r != 0 || !p->offers_http2))
		tls_decide(p, r > 0 ? &v->conn : NULL);
	return 0;
}

/* As soon as it is decided: the server's first bytes may come before the program's handshake ends.
 */
static int use_protocol(struct stream *s)
{
	if (s->client.peer.protocol != TLS_HTTP2 || s->http2)
		return 0;
	s->http2 = true;
	return exchange_use_http2(s->exchange);
}

/* False if the stream has ended. */
static bool shake(struct stream *s)
{
	struct side *c = &s->client;
	int r;

	if (!s->tls || s->timer != TIMER_SHAKE)
		return true;
	r = conn_shake(&c->conn);
	if (r >= 0 && (shake_server(s) < 0 || use_protocol(s) < 0))
		r = -ENOMEM;
	if (r == 0)
		r = conn_shake(&c->conn);
	if (r == -ENOMEM)
		finish(s, TAP_FAULT, "out of memory");
	else if (r < 0)
		finish(s, tls_client_failure(&c->conn, &c->peer, r), c->peer.text);
	if (r < 0)
		return false;
	if (c->conn.is_shaken && s->server.conn.is_shaken && !s->server_failed)
		set_timer(s, TIMER_NONE, 0);
	return true;
}

/* ---- bytes ---- */

typedef int feed_fn(struct exchange *x, const char *data, size_t n, size_t *ret_used);

/* Reads if there is room, and feeds the exchange. 1 if anything moved, 0, or -errno. */
static int take(struct stream *s, struct side *side, feed_fn *feed)
{
	struct conn *c = &side->conn;
	size_t had = side->kept.len, n = 0, used = 0;
	char *data = side->kept.data;
	int r = 0;

	if (had < KEPT_MAX && conn_has_more(c)) {
		if (had > 0)
			memcpy(scratch, data, had);
		r = conn_read(c, scratch + had, SCRATCH - had, &n);
		data = scratch;
	}
	if (r < 0 || had + n == 0)
		return r;
	r = feed(s->exchange, data, had + n, &used);
	if (r < 0)
		return r;
	if (data != scratch) {
		buf_consume(&side->kept, used);
	} else {
		buf_reset(&side->kept);
		if (used < had + n && buf_put(&side->kept, data + used, had + n - used) < 0)
			return -ENOMEM;
	}
	if (side->kept.len == 0)
		buf_done(&side->kept);
	return n > 0 || used > 0;
}

/* Writes what the connection takes. 1 if anything moved, 0, or -EPIPE. `wipe`: the bytes may be a
 * secret's. */
static int give(struct side *side, struct buf *from, bool wipe)
{
	size_t done = 0, k = 0;
	int r = 0;

	if (from->len == 0)
		return side->conn.is_dead ? -EPIPE : 0;
	do {
		r = conn_write(&side->conn, from->data + done, from->len - done, &k);
		done += k;
	} while (r == 0 && k > 0 && done < from->len);
	if (done > 0)
		buf_consume(from, done);
	if (from->len == 0) {
		if (wipe)
			explicit_bzero(from->data, from->cap);
		buf_done(from);
	}
	return r < 0 ? r : done > 0;
}

static int serve_client(struct stream *s)
{
	struct side *c = &s->client;
	int moved = 0, r;

	if (!c->conn.is_shaken)
		return 0;
	if (!exchange_over(s->exchange)) {
		if (exchange_idle(s->exchange))
			s->has_answer = false;
		moved = take(s, c, exchange_from_client);
	}
	if (moved == -ENOMEM) {
		finish_hard(s, TAP_FAULT, "out of memory");
		return 0;
	}
	if (moved < 0) {
		if (c->conn.ssl && tls_is_distrust(c->conn.error))
			finish(s, tls_client_failure(&c->conn, &c->peer, moved), c->peer.text);
		else
			finish(s, TAP_CLIENT_CLOSED, "the program broke the connection");
		return 0;
	}
	if (c->conn.is_eof && !c->is_eof_told && !exchange_over(s->exchange) &&
	    (c->kept.len == 0 || (moved == 0 && exchange_idle(s->exchange)))) {
		c->is_eof_told = true;
		exchange_client_eof(s->exchange);
		moved = 1;
	}
	r = give(c, exchange_to_client(s->exchange), false);
	if (r < 0)
		finish(s, TAP_CLIENT_CLOSED, "the program closed the connection");
	return moved | MAX(r, 0);
}

/* The program gets the reason as soon as it has sent a request. */
static int answer_for_server(struct stream *s)
{
	struct exchange *x = s->exchange;

	buf_reset(exchange_to_server(x));
	if (exchange_over(x) || !exchange_in_request(x))
		return 0;
	exchange_abort(x, s->server_result, s->server.peer.text);
	return 1;
}

static void lose_server(struct stream *s, enum tap_result result, const char *text)
{
	if (s->has_answer)
		finish_hard(s, result, text);
	else
		exchange_abort(s->exchange, result, text);
}

static int server_eof(struct stream *s)
{
	struct side *v = &s->server;

	v->is_eof_told = true;
	if (v->conn.is_cut && s->has_answer && !exchange_idle(s->exchange))
		finish_hard(s, TAP_SERVER_CLOSED,
			    "the server closed the connection without ending TLS");
	else
		exchange_server_eof(s->exchange);
	return 1;
}

static int serve_server(struct stream *s)
{
	struct exchange *x = s->exchange;
	struct side *v = &s->server;
	int moved = 0, wrote;

	if (s->server_failed)
		return answer_for_server(s);
	if (!v->conn.is_shaken)
		return 0;
	/* After a refusal in the middle of a request, its bytes stay here. */
	wrote = exchange_over(x) ? 0 : give(v, exchange_to_server(x), true);
	if (wrote < 0) /* it may have answered before it closed */
		buf_reset(exchange_to_server(x));
	if (exchange_server_done(x) && exchange_to_server(x)->len == 0)
		conn_shut(&v->conn);
	if (exchange_over(x))
		return MAX(wrote, 0);
	moved = take(s, v, exchange_from_server);
	if (moved > 0 && !exchange_idle(x) && !s->http2) /* HTTP/2 marks the end of a response */
		s->has_answer = true;
	if (moved == -ENOMEM)
		finish_hard(s, TAP_FAULT, "out of memory");
	else if (moved < 0)
		lose_server(s, TAP_SERVER_CLOSED, "the server broke the connection");
	else if (v->conn.is_eof && !v->is_eof_told &&
		 (v->kept.len == 0 || (moved == 0 && exchange_to_client(x)->len == 0)))
		moved = server_eof(s);
	return MAX(moved, 0) | MAX(wrote, 0);
}

/* ---- closing ---- */

/* Closing at once with unread bytes would reset the connection, and the program might lose the
 * response. */
static void begin_linger(struct stream *s)
{
	close_server(s, true);
	conn_shut(&s->client.conn);
	buf_done(&s->client.kept);
	s->stage = STAGE_LINGER;
	set_timer(s, TIMER_LINGER, LINGER_TIME);
}

static void linger(struct stream *s)
{
	struct conn *c = &s->client.conn;
	size_t n = 0;
	int r = 0;

	(void)conn_flush(c);
	for (int i = 0; r == 0 && i < LINGER_ROUNDS && conn_has_more(c); i++)
		r = conn_read(c, scratch, sizeof(scratch), &n);
	if (r < 0 || c->is_dead || c->is_eof)
		s->stage = STAGE_END;
	else if (conn_has_more(c))
		due_add(s);
}

static bool has_left(const struct stream *s)
{
	const struct conn *c = &s->client.conn;

	return c->is_lost || (c->is_eof && c->is_cut);
}

/* Nothing moves any more, and the program cannot receive a response. */
static void end_if_left(struct stream *s)
{
	const struct conn *v = &s->server.conn;

	if (has_left(s) && (s->server_failed || (v->is_shaken && v->pending.len == 0 &&
						 exchange_to_server(s->exchange)->len == 0)))
		finish(s, TAP_CLIENT_CLOSED, "the program broke the connection");
}

static bool is_sent(struct stream *s)
{
	return exchange_over(s->exchange) && exchange_to_client(s->exchange)->len == 0;
}

static void close_if_over(struct stream *s)
{
	const bool is_gone = s->client.is_eof_told && (s->server_failed || s->server.is_eof_told) &&
			     exchange_idle(s->exchange) &&
			     exchange_to_client(s->exchange)->len == 0;

	if (!is_sent(s) && !is_gone)
		return;
	if (s->server_failed)
		set_result(s, s->server_result, s->server.peer.text);
	begin_linger(s);
	linger(s);
}

/* ---- one event ---- */

static void choose_timer(struct stream *s, bool moved)
{
	if (s->timer == TIMER_SHAKE)
		return;
	if (moved && s->timer == TIMER_LEFT)
		set_timer(s, TIMER_NONE, 0);
	if (!exchange_idle(s->exchange) && !exchange_in_request(s->exchange))
		set_timer(s, TIMER_HEAD, HEAD_TIME);
	else if (exchange_is_held(s->exchange))
		set_timer(s, TIMER_HELD, HELD_TIME);
	else if (s->client.conn.is_eof || s->client.conn.is_lost)
		set_timer(s, TIMER_LEFT, LEFT_TIME);
	else
		set_timer(s, TIMER_NONE, 0);
}

static bool can_give(const struct conn *c, const struct buf *from)
{
	return from->len > 0 && c->is_shaken && c->writable && c->pending.len == 0 && !c->is_dead;
}

/* By HTTP/2, bytes for one side may become due when the other one has taken some. A server gets
 * nothing after the end of the exchange. */
static bool has_due(struct stream *s)
{
	struct exchange *x = s->exchange;

	return s->http2 && (can_give(&s->client.conn, exchange_to_client(x)) ||
			    (!s->server_failed && !exchange_over(x) &&
			     can_give(&s->server.conn, exchange_to_server(x))));
}

static void serve(struct stream *s)
{
	int moved = 1, moves = 0;

	if (s->is_woken) {
		s->is_woken = false;
		if (exchange_resume(s->exchange) < 0)
			finish_hard(s, TAP_FAULT, "out of memory");
		if (s->stage == STAGE_END)
			return;
	}
	for (int i = 0; i < ROUNDS && moved; i++) {
		if (s->tap->n_queued >= TAP_QUEUE_LONG)
			break;
		(void)conn_flush(&s->client.conn);
		if (!s->server_failed)
			(void)conn_flush(&s->server.conn);
		if (!shake(s))
			return;
		moved = serve_client(s);
		if (s->stage != STAGE_END)
			moved |= serve_server(s);
		if (s->stage == STAGE_END)
			return;
		moves += moved;
		moved |= has_due(s);
	}
	if (moved)
		due_add(s);
	else
		close_if_over(s);
	if (s->stage == STAGE_SERVE && !moved)
		end_if_left(s);
	if (s->stage == STAGE_SERVE)
		choose_timer(s, moves > 0);
}

static bool wants_out(const struct conn *c, const struct buf *b)
{
	return c->pending.len > 0 || (c->is_shaken && b && b->len > 0 && !c->writable);
}

static bool wants_in(const struct side *side)
{
	return !side->conn.is_eof && side->kept.len < KEPT_MAX;
}

static void watch(struct stream *s)
{
	const bool serves = s->stage == STAGE_SERVE;
	struct exchange *x = s->exchange;
	int r = conn_watch(&s->client.conn, s->tap->loop, wants_in(&s->client),
			   wants_out(&s->client.conn, serves ? exchange_to_client(x) : NULL));

	if (r == 0 && serves && !s->server_failed && (!s->tls || s->server.conn.ssl))
		r = conn_watch(&s->server.conn, s->tap->loop, wants_in(&s->server),
			       wants_out(&s->server.conn, exchange_to_server(x)));
	if (r < 0)
		finish_hard(s, TAP_FAULT, "cannot watch a connection");
}

/* -EAGAIN, 0 if the program has closed, or 1 with its first byte. */
static int first_byte(struct conn *c, uint8_t *ret)
{
	ssize_t k;

	if (c->early.len > 0) {
		*ret = (uint8_t)c->early.data[0];
		return 1;
	}
	k = RETRY_EINTR(recv(c->fd, ret, 1, MSG_PEEK | MSG_DONTWAIT));
	if (k < 0 && errno == EAGAIN && !c->is_lost)
		return -EAGAIN;
	return k == 1;
}

static void report(void *arg, const struct tap_request *r)
{
	const struct stream *s = arg;
	struct tap_message m = { .kind = TAP_REQUEST, .request = *r };

	m.request.stream = s->id;
	tap_tell(s->tap, &m);
}

static bool may_pass(void *arg, size_t i)
{
	const struct stream *s = arg;

	return tap_may_pass(s->tap, i);
}

static int reserve(void *arg, struct gateway *g, struct tap_reserve *r)
{
	const struct stream *s = arg;

	return tap_reserve(s->tap, g, r);
}

static void settle(void *arg, struct gateway *g, struct tap_settle *how)
{
	const struct stream *s = arg;

	tap_settle(s->tap, g, how);
}

static void wake(void *arg)
{
	struct stream *s = arg;

	s->is_woken = true;
	due_add(s);
}

enum denial {
	NO_ROOM,
	NEEDS_TLS,
	NEEDS_HTTP,
};

#define DENIAL(status, word, text)                                                 \
	"HTTP/1.1 " status "\r\nContent-Type: text/plain\r\nX-Hutch-Denied: " word \
	"\r\nConnection: close\r\n\r\nhutch: " text "\n"

/* The program sees why, at the cost of no memory: an alert, or a response. */
static void refuse_program(int fd, uint8_t byte, enum denial why)
{
	static const struct {
		uint8_t alert;
		const char *response;
	} rows[] = {
		[NO_ROOM] = { SSL_AD_INTERNAL_ERROR,
			      DENIAL("503 Service Unavailable\r\nRetry-After: 10", "resources",
				     "hutch-tap has too many streams or no memory") },
		[NEEDS_TLS] = { SSL_AD_ACCESS_DENIED,
				DENIAL("400 Bad Request", "request",
				       "the policy requires TLS on this port: use https") },
		[NEEDS_HTTP] = { SSL_AD_ACCESS_DENIED, "" },
	};
	const uint8_t alert[] = { 0x15, 3, 3, 0, 2, 2, rows[why].alert };
	const char *response = rows[why].response;
	const bool tls = byte == TLS_HANDSHAKE;

	(void)send(fd, tls ? (const void *)alert : response, tls ? sizeof(alert) : strlen(response),
		   MSG_DONTWAIT | MSG_NOSIGNAL);
	/* With unread bytes, closing would reset the connection. */
	(void)recv(fd, scratch, sizeof(scratch), MSG_DONTWAIT);
}

/* False: the policy does not allow the program's protocol, and the stream has ended. */
static bool check_protocol(struct stream *s, uint8_t byte)
{
	const bool tls = byte == TLS_HANDSHAKE;

	if (s->protocol == TAP_ONLY_TLS && !tls) {
		refuse_program(s->client.conn.fd, byte, NEEDS_TLS);
		finish(s, TAP_BAD_REQUEST,
		       "the policy requires TLS on this port, and the program sent no TLS");
		return false;
	}
	if (s->protocol == TAP_ONLY_HTTP && tls) {
		refuse_program(s->client.conn.fd, byte, NEEDS_HTTP);
		finish(s, TAP_BAD_REQUEST,
		       "the policy requires HTTP on this port, and the program sent TLS");
		return false;
	}
	return true;
}

static void begin(struct stream *s)
{
	uint8_t byte = 0;
	int r = first_byte(&s->client.conn, &byte);
	struct exchange_conf conf = { .config = &s->tap->config,
				      .host = s->is_addr ? NULL : &s->name,
				      .port = s->client.peer.port,
				      .tls = byte == TLS_HANDSHAKE,
				      .report = report,
				      .may_pass = may_pass,
				      .reserve = reserve,
				      .settle = settle,
				      .wake = wake,
				      .arg = s,
				      .probes = &s->tap->probes,
				      .n_requests = &s->tap->n_requests,
				      .max_requests = s->tap->max_streams };

	if (r == -EAGAIN)
		return;
	if (r == 0) {
		finish(s, TAP_DONE, "");
		return;
	}
	if (!check_protocol(s, byte))
		return;
	s->tls = conf.tls;
	if (exchange_new(&conf, &s->exchange) < 0 ||
	    (s->tls && tls_accept(&s->client.conn, &s->client.peer) < 0)) {
		refuse_program(s->client.conn.fd, byte, NO_ROOM);
		finish(s, TAP_FAULT, "out of memory");
		return;
	}
	s->stage = STAGE_SERVE;
	s->server.conn.is_shaken = !s->tls;
	if (s->tls)
		set_timer(s, TIMER_SHAKE, SHAKE_TIME);
}

static void step(struct stream *s)
{
	due_remove(s);
	if (s->stage == STAGE_FIRST)
		begin(s);
	if (s->stage == STAGE_SERVE)
		serve(s);
	else if (s->stage == STAGE_LINGER)
		linger(s);
	if (s->stage != STAGE_END)
		watch(s);
	if (s->stage == STAGE_END)
		stream_free(s);
}

static void on_client(struct loop_fd *src, uint32_t events)
{
	struct stream *s = src->arg;

	conn_note(&s->client.conn, events);
	step(s);
}

static void on_server(struct loop_fd *src, uint32_t events)
{
	struct stream *s = src->arg;

	conn_note(&s->server.conn, events);
	step(s);
}

void stream_run_due(struct tap *t)
{
	struct stream *last = t->due_last, *s;
	bool more = last;

	/* Streams that become due meanwhile wait for the next turn. */
	while (more && t->n_queued < TAP_QUEUE_LONG && (s = t->due_first)) {
		more = s != last;
		step(s);
	}
}

/* ---- opening ---- */

static void side_init(struct side *side, struct stream *s, int fd, const struct tap_open *o)
{
	conn_init(&side->conn, fd, &side->peer);
	side->conn.src.arg = s;
	side->kept = (struct buf)BUF_INIT(SCRATCH);
	side->peer = (struct tls_peer){
		.tls = s->tap->tls, .host = s->name.text, .port = o->port, .is_addr = o->is_addr
	};
}

static int set_name(struct stream *s, const struct tap_open *o)
{
	struct err e = ERR_INIT;

	s->is_addr = o->is_addr;
	if (!o->is_addr)
		return name_parse(o->host, strlen(o->host), &s->name, &e);
	(void)snprintf(s->name.text, sizeof(s->name.text), "%s", o->host);
	return 0;
}

static void refuse_stream(struct tap *t, const struct tap_open *o, const int files[static 2],
			  const char *why)
{
	struct conn c = { .fd = files[0] };
	uint8_t byte = 0;

	if (o->n_early > 0)
		byte = o->early[0];
	else if (first_byte(&c, &byte) < 0)
		byte = TLS_HANDSHAKE; /* still to come */
	refuse_program(files[0], byte, NO_ROOM);
	for (int i = 0; i < 2; i++)
		(void)shutdown(files[i], SHUT_RDWR);
	for (int i = 0; i < 2; i++)
		(void)fd_close(files[i]);
	tell_end(t, o->stream, TAP_FAULT, why);
}

void stream_open(struct tap *t, const struct tap_open *o, const int files[static 2])
{
	const bool may_open = t->n_streams < t->max_streams;
	struct stream *s = may_open ? calloc(1, sizeof(*s)) : NULL;

	if (!s || set_name(s, o) < 0) {
		refuse_stream(t, o, files,
			      s		 ? "invalid host"
			      : may_open ? "out of memory"
					 : "too many streams");
		free(s);
		return;
	}
	s->tap = t;
	s->id = o->stream;
	s->protocol = (enum tap_protocol)o->protocol;
	s->clock.cb = on_timer;
	s->clock.arg = s;
	side_init(&s->client, s, files[0], o);
	side_init(&s->server, s, files[1], o);
	s->client.conn.src.cb = on_client;
	s->server.conn.src.cb = on_server;
	t->n_streams++;
	t->most_streams = MAX(t->most_streams, t->n_streams);
	if (buf_put(&s->client.conn.early, o->early, o->n_early) < 0)
		finish(s, TAP_FAULT, "out of memory");
	step(s);
}
