/* SPDX-License-Identifier: Apache-2.0 */
#include "filter/serve.h"

#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "filter-link/filter-link.h"

enum {
	TURN_MAX = 64,	 /* packets before other events are handled */
	TALLY_MAX = 8,	 /* rules counted for a stream before they are reported */
	TALLY_MS = 1000, /* between two reports of a stream */
	QUEUE_STOPS = 1024 * 1024,
	QUEUE_MAX = QUEUE_STOPS + 4 * FILTER_BYTES_MAX * FILTER_GROWTH_MAX,
	SLOTS = 256, /* lists in the table of streams */
};

static_assert((int)FILTER_RULE_NAME_MAX == (int)FILTER_HIT_NAME_MAX, "each name fits");

/* A compiled filter; streams keep theirs when the configuration changes. */
struct setup {
	struct filter_setup of;
	size_t users;
};

struct tally {
	char name[FILTER_HIT_NAME_MAX];
	uint32_t count, late;
};

struct server;

struct stream {
	struct server *server;
	uint64_t number, reported;
	struct setup *setup;
	struct filter_stream *scan;
	struct loop_timer pause;
	uint64_t due; /* clock_mono(): held bytes leave */
	struct tally tally[TALLY_MAX];
	size_t n_tally;
	struct stream *next;
};

struct server {
	struct loop *loop;
	const struct filter_rules *rules;
	struct loop_fd warden, keeper;
	struct setup *setup; /* for new streams */
	struct stream *slot[SLOTS];
	size_t n_streams;
	struct buf queue; /* packets that the keeper has not taken yet */
	size_t sent;
	struct buf out;
	int result;
};

static void fail(struct server *s, int error)
{
	s->result = error;
	loop_stop(s->loop, 0);
}

/* ---- setups ---- */

static void setup_drop(struct setup *p)
{
	if (!p || --p->users > 0)
		return;
	(void)filter_free(p->of.filter);
	free(p);
}

/* ---- to the keeper ---- */

static void watch(struct server *s)
{
	const size_t waiting = s->queue.len - s->sent;
	const uint32_t events = (waiting < QUEUE_STOPS ? (uint32_t)EPOLLIN : 0U) |
				(waiting > 0 ? (uint32_t)EPOLLOUT : 0U);

	if (s->keeper.events != events && loop_mod_fd(&s->keeper, events) < 0)
		fail(s, -EIO);
}

static void flush(struct server *s)
{
	static struct filter_packet p;

	while (s->sent < s->queue.len) {
		int r;

		memcpy(&p.head, s->queue.data + s->sent, sizeof(p.head));
		memcpy(p.bytes, s->queue.data + s->sent + sizeof(p.head), p.head.n);
		r = filter_send(s->keeper.fd, &p);
		if (r == -EAGAIN)
			break;
		if (r < 0)
			return fail(s, r == -EPIPE ? 0 : r);
		s->sent += filter_packet_size(&p);
	}
	if (s->sent == s->queue.len) {
		buf_reset(&s->queue);
		s->sent = 0;
	} else if (s->sent > s->queue.len / 2) {
		buf_consume(&s->queue, s->sent);
		s->sent = 0;
	}
	watch(s);
}

static void put(struct server *s, struct filter_head head, const char *bytes)
{
	(void)buf_put(&s->queue, &head, sizeof(head));
	if (head.n > 0)
		(void)buf_put(&s->queue, bytes, head.n);
	if (s->queue.err)
		fail(s, s->queue.err);
}

/* Sends the bytes that may leave; the last packet says how many were taken. */
static void put_out(struct stream *t, uint32_t taken)
{
	struct server *s = t->server;
	size_t at = 0;

	do {
		const size_t n = MIN(s->out.len - at, (size_t)FILTER_BYTES_MAX);
		const bool last = at + n == s->out.len;

		if (n > 0 || taken > 0)
			put(s,
			    (struct filter_head){ .kind = FILTER_DATA,
						  .n = (uint32_t)n,
						  .stream = t->number,
						  .taken = last ? taken : 0 },
			    s->out.data + at);
		at += n;
	} while (at < s->out.len);
	buf_reset(&s->out);
}

static void report(struct stream *t)
{
	for (size_t i = 0; i < t->n_tally; i++)
		put(t->server,
		    (struct filter_head){ .kind = FILTER_HIT,
					  .n = (uint32_t)strlen(t->tally[i].name),
					  .stream = t->number,
					  .count = t->tally[i].count,
					  .late = t->tally[i].late },
		    t->tally[i].name);
	t->n_tally = 0;
	t->reported = clock_mono();
}

static void on_hit(void *arg, const char *name, bool late)
{
	struct stream *t = arg;
	size_t i = 0;

	while (i < t->n_tally && !str_eq(t->tally[i].name, name))
		i++;
	if (i == TALLY_MAX || (i < t->n_tally && t->tally[i].count == FILTER_COUNT_MAX)) {
		report(t);
		i = 0;
	}
	if (i == t->n_tally) {
		t->tally[i] = (struct tally){ 0 };
		(void)snprintf(t->tally[i].name, sizeof(t->tally[i].name), "%s", name);
		t->n_tally++;
	}
	t->tally[i].count++;
	t->tally[i].late += late;
}

static void report_if_due(struct stream *t)
{
	if (t->n_tally > 0 && clock_mono() - t->reported >= TALLY_MS * NSEC_PER_MSEC)
		report(t);
}

/* ---- streams ---- */

static void on_pause(struct loop_timer *timer);

static struct stream **find(struct server *s, uint64_t number)
{
	struct stream **at = &s->slot[number % SLOTS];

	while (*at && (*at)->number != number)
		at = &(*at)->next;
	return at;
}

static struct stream *begin_stream(struct server *s, uint64_t number)
{
	struct stream *t = s->n_streams < FILTER_STREAMS_MAX ? calloc(1, sizeof(*t)) : NULL;

	if (!t)
		return NULL;
	t->scan = filter_stream_new(s->setup->of.filter, s->setup->of.action, on_hit, t);
	if (!t->scan) {
		free(t);
		return NULL;
	}
	t->server = s;
	t->number = number;
	t->setup = s->setup;
	t->setup->users++;
	t->pause = (struct loop_timer){ .cb = on_pause, .arg = t };
	t->next = s->slot[number % SLOTS];
	s->slot[number % SLOTS] = t;
	s->n_streams++;
	return t;
}

static void end_stream(struct server *s, struct stream **at)
{
	struct stream *t = *at;

	*at = t->next;
	s->n_streams--;
	loop_del_timer(&t->pause);
	(void)filter_stream_free(t->scan);
	setup_drop(t->setup);
	free(t);
}

static void wait_for_pause(struct stream *t)
{
	if (filter_held(t->scan) == 0 && t->n_tally == 0)
		return loop_del_timer(&t->pause);
	t->due = clock_mono() + SERVE_PAUSE_MS * NSEC_PER_MSEC;
	if (t->pause.slot == 0 && loop_set_timer(t->server->loop, &t->pause, t->due) < 0)
		fail(t->server, -EIO);
}

/* False: memory or Hyperscan failed. Nothing leaves then. */
static bool scan(struct stream *t, const struct filter_packet *p)
{
	struct server *s = t->server;
	int r;

	buf_reset(&s->out);
	r = p ? filter_put(t->scan, p->bytes, p->head.n, &s->out) : filter_pause(t->scan, &s->out);
	if (r < 0) {
		log_error("the output filter failed: %s", strerror(-r));
		fail(s, r);
		return false;
	}
	put_out(t, p ? p->head.n : 0);
	report_if_due(t);
	return true;
}

static void take_data(struct server *s, const struct filter_packet *p)
{
	struct stream *t = *find(s, p->head.stream);

	if (!t)
		t = begin_stream(s, p->head.stream);
	if (!t)
		return fail(s, -ENOMEM);
	if (scan(t, p))
		wait_for_pause(t);
}

static void take_end(struct server *s, const struct filter_packet *p)
{
	struct stream **at = find(s, p->head.stream);

	if (*at) {
		if (!scan(*at, NULL))
			return;
		report(*at);
		end_stream(s, at);
	}
	put(s, (struct filter_head){ .kind = FILTER_END, .stream = p->head.stream }, NULL);
}

/* 0, or as filter_receive(). */
static int take_one(struct server *s)
{
	static struct filter_packet p; /* zero-filling it each time would cost more than it saves */
	int r = filter_receive(s->keeper.fd, &p);

	if (r < 0)
		return r;
	if (p.head.kind == FILTER_DATA && p.head.n > 0)
		take_data(s, &p);
	else if (p.head.kind == FILTER_END)
		take_end(s, &p);
	else
		return -EBADMSG;
	return 0;
}

static void take_all(struct server *s)
{
	int r = 0;

	for (int i = 0; i < TURN_MAX && r == 0 && s->queue.len - s->sent < QUEUE_STOPS; i++)
		r = take_one(s);
	if (r < 0 && r != -EAGAIN)
		return fail(s, r == -EPIPE ? 0 : r);
	flush(s);
}

static void on_keeper(struct loop_fd *src, uint32_t events)
{
	(void)events;
	take_all(src->arg);
}

/* Output that waits in the socket comes first: on a busy host it is not a pause. */
static void on_pause(struct loop_timer *timer)
{
	struct stream *t = timer->arg;
	struct server *s = t->server;
	const uint64_t number = t->number;

	take_all(s);
	t = *find(s, number);
	if (!t)
		return;
	if (clock_mono() < t->due) {
		if (loop_set_timer(s->loop, &t->pause, t->due) < 0)
			fail(s, -EIO);
		return;
	}
	if (!scan(t, NULL))
		return;
	report(t);
	flush(s);
}

/* ---- the configuration ---- */

static int read_config(int fd, struct buf *text)
{
	char *at = buf_reserve(text, FILTER_CONFIG_MAX);
	ssize_t n;

	if (!at)
		return -ENOMEM;
	n = RETRY_EINTR(pread(fd, at, FILTER_CONFIG_MAX, 0));
	if (n < 0)
		return -errno;
	buf_commit(text, (size_t)n);
	return n == FILTER_CONFIG_MAX ? -E2BIG : 0;
}

static int take_config(struct server *s, int fd, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(FILTER_CONFIG_MAX);
	struct setup *p = calloc(1, sizeof(*p));
	int r = p ? read_config(fd, &text) : -ENOMEM;

	r = r < 0 ? err_set(e, r, "cannot read the configuration: %s", strerror(-r))
		  : filter_config_read(s->rules, text.data, text.len, &p->of, e);
	if (text.data)
		explicit_bzero(text.data, text.len);
	if (r < 0) {
		free(p);
		return r;
	}
	p->users = 1;
	setup_drop(s->setup);
	s->setup = p;
	return 0;
}

static void on_warden(struct loop_fd *src, uint32_t events)
{
	struct server *s = src->arg;
	struct err e = ERR_INIT;
	int file = -EBADF, r = filter_receive_config(src->fd, &file);
	const bool first = !s->setup;

	(void)events;
	if (r == -EAGAIN)
		return;
	if (r < 0)
		return fail(s, r == -EPIPE ? 0 : r);
	r = take_config(s, file, &e);
	(void)fd_close(file);
	if (r == 0 && first)
		r = loop_add_fd(s->loop, &s->keeper, FILTER_FD_KEEPER, EPOLLIN);
	if (r < 0) {
		log_error("%s", e.msg);
		fail(s, r);
	}
}

int filter_serve(struct loop *l, const struct filter_rules *rules, struct err *e)
{
	static struct server s;
	int r;

	s = (struct server){ .loop = l,
			     .rules = rules,
			     .warden = { .cb = on_warden, .arg = &s },
			     .keeper = { .cb = on_keeper, .arg = &s, .fd = FILTER_FD_KEEPER },
			     .queue = BUF_INIT(QUEUE_MAX),
			     .out = BUF_INIT(FILTER_BYTES_MAX * FILTER_GROWTH_MAX +
					     FILTER_HELD_MAX * FILTER_GROWTH_MAX) };
	r = loop_add_fd(l, &s.warden, FILTER_FD_WARDEN, EPOLLIN);
	if (r == 0)
		r = loop_run(l);
	r = r < 0 ? r : s.result;
	return r < 0 ? err_set(e, r, "hutch-filter failed: %s", strerror(-r)) : 0;
}
