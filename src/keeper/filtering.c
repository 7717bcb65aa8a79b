/* SPDX-License-Identifier: Apache-2.0 */
#include "keeper/filtering.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "keeper/command.h"
#include "keeper/relay-inner.h"
#include "keeper/serve.h"

enum {
	TURN_MAX = 64, /* packets before other events are handled */
};

static_assert(WIRE_STREAMS <= 8, "a bit for each stream");

static const char withheld[] = "\n[hutch: output withheld: the output filter has failed]\n";

void filtering_init(struct keeper *k, const struct filtering_ops *ops)
{
	struct filtering *f = &k->filtering;

	f->ops = ops;
	f->on = k->spec->filter && k->spec->filter[0];
	f->src.fd = -EBADF;
	f->queue = (struct buf)BUF_INIT(FILTER_QUEUE_MAX);
}

static void ask(struct keeper *k)
{
	struct filtering *f = &k->filtering;

	if (!f->on || f->asked || f->src.fd >= 0)
		return;
	f->asked = true;
	if (note_send(k->warden.fd, NOTE_WANT_FILTER, 0, NULL, 0) < 0)
		keeper_stop(k, KEEPER_FAILED);
}

void filtering_begin(struct keeper *k)
{
	ask(k);
}

void filtering_done(struct keeper *k)
{
	struct filtering *f = &k->filtering;

	if (f->src.fd >= 0) {
		loop_del_fd(&f->src);
		f->src.fd = fd_close(f->src.fd);
	}
	buf_done(&f->queue);
}

bool filtering_has(const struct relay *r)
{
	return r->command && r->keeper->filtering.on;
}

/* ---- numbers of streams ---- */

static uint64_t number_of(const struct relay *r, unsigned int stream)
{
	return r->filtered.number * WIRE_STREAMS + stream;
}

static struct relay *relay_of(const struct keeper *k, uint64_t number)
{
	struct relay *r = k->relays.list;

	while (r && (r->filtered.number == 0 || r->filtered.number != number / WIRE_STREAMS))
		r = r->next;
	return r;
}

/* ---- streams that fail ---- */

/* hutch-filter has the stream no longer. */
static void close_stream(struct relay *r, unsigned int stream)
{
	const uint8_t bit = (uint8_t)(1U << stream);

	if (!(r->filtered.open & bit))
		return;
	r->filtered.open &= (uint8_t)~bit;
	r->keeper->filtering.open--;
	if (r->filtered.eof & bit) {
		r->filtered.eof &= (uint8_t)~bit;
		flow_eof(r, TO_CLIENT, stream);
	}
	if (r->filtered.open == 0)
		r->keeper->filtering.ops->drained(r);
}

static void pass(struct relay *r, unsigned int stream, const void *data, size_t n, size_t taken)
{
	struct flow *f = &r->flows[TO_CLIENT][stream];

	/* Credit counts the guest's bytes: more than it sent earn none, fewer are made up for. */
	if (n > taken)
		f->orphaned += n - taken;
	else if (taken > n)
		flow_credit_back(r, stream, taken - n);
	if (n == 0)
		return;
	record_put(&r->command->record, stream, data, n, clock_mono());
	r->keeper->filtering.ops->data(r, stream, data, n);
}

static void withhold(struct relay *r, unsigned int stream)
{
	const uint8_t bit = (uint8_t)(1U << stream);

	const size_t lost = r->filtered.inside[stream];

	r->filtered.inside[stream] = 0;
	if (!(r->filtered.withheld & bit))
		pass(r, stream, withheld, strlen(withheld), lost);
	r->filtered.withheld |= bit;
	close_stream(r, stream);
}

static void lose(struct keeper *k, const char *why)
{
	struct filtering *f = &k->filtering;

	if (f->src.fd >= 0) {
		loop_del_fd(&f->src);
		f->src.fd = fd_close(f->src.fd);
	}
	buf_reset(&f->queue);
	f->sent = 0;
	log_error("%s", why);
	for (struct relay *r = k->relays.list, *next; r; r = next) {
		next = r->next;
		for (unsigned int i = 0; i < WIRE_STREAMS; i++)
			if (r->filtered.open >> i & 1)
				withhold(r, i);
	}
	f->open = 0;
}

/* ---- to hutch-filter ---- */

static void flush(struct keeper *k)
{
	static struct filter_packet p; /* zero-filling it each time would cost more than it saves */
	struct filtering *f = &k->filtering;
	int r = 0;

	while (f->src.fd >= 0 && f->sent < f->queue.len && r == 0) {
		memcpy(&p.head, f->queue.data + f->sent, sizeof(p.head));
		memcpy(p.bytes, f->queue.data + f->sent + sizeof(p.head), p.head.n);
		r = filter_send(f->src.fd, &p);
		if (r == 0)
			f->sent += filter_packet_size(&p);
	}
	/* A hutch-filter that has ended is noticed by reading: a caller may be in the middle of
	 * closing a relay. */
	if (r < 0 && r != -EAGAIN)
		f->sent = f->queue.len;
	if (f->sent == f->queue.len) {
		buf_reset(&f->queue);
		f->sent = 0;
	} else if (f->sent > f->queue.len / 2) {
		buf_consume(&f->queue, f->sent);
		f->sent = 0;
	}
	if (f->src.fd >= 0)
		keeper_check(k,
			     loop_mod_fd(&f->src,
					 EPOLLIN | (f->queue.len > 0 ? (uint32_t)EPOLLOUT : 0U)));
}

/* False: too much waits. */
static bool put(struct keeper *k, const struct filter_head *head, const void *data)
{
	struct buf *q = &k->filtering.queue;

	if (!buf_reserve(q, sizeof(*head) + head->n)) {
		q->err = 0;
		return false;
	}
	(void)buf_put(q, head, sizeof(*head));
	if (head->n > 0)
		(void)buf_put(q, data, head->n);
	return true;
}

void filtering_data(struct relay *r, unsigned int stream, const void *data, size_t n)
{
	struct keeper *k = r->keeper;
	const uint8_t bit = (uint8_t)(1U << stream);
	bool good = true;

	if ((r->filtered.withheld | r->filtered.ended) & bit) {
		flow_credit_back(r, stream, n);
		return;
	}
	if (r->filtered.number == 0)
		r->filtered.number = ++k->filtering.next;
	if (!(r->filtered.open & bit)) {
		r->filtered.open |= bit;
		k->filtering.open++;
	}
	ask(k);
	for (size_t at = 0, take; at < n && good; at += take) {
		take = MIN(n - at, (size_t)FILTER_BYTES_MAX);
		good = put(k,
			   &(struct filter_head){ .kind = FILTER_DATA,
						  .n = (uint32_t)take,
						  .stream = number_of(r, stream) },
			   (const char *)data + at);
	}
	r->filtered.inside[stream] += n;
	if (!good)
		return k->filtering.ops->cut(r, WIRE_TOO_MANY,
					     "too much waits for the output filter");
	flush(k);
}

static void end_stream(struct relay *r, unsigned int stream)
{
	struct keeper *k = r->keeper;
	const uint8_t bit = (uint8_t)(1U << stream);

	if (!(r->filtered.open & bit) || r->filtered.ended & bit)
		return;
	r->filtered.ended |= bit;
	if (!put(k, &(struct filter_head){ .kind = FILTER_END, .stream = number_of(r, stream) },
		 NULL))
		keeper_stop(k, KEEPER_FAILED);
	flush(k);
}

bool filtering_eof(struct relay *r, unsigned int stream)
{
	const uint8_t bit = (uint8_t)(1U << stream);

	if (!(r->filtered.open & bit))
		return false;
	r->filtered.eof |= bit;
	end_stream(r, stream);
	return true;
}

bool filtering_ends(struct relay *r)
{
	for (unsigned int i = 0; i < WIRE_STREAMS; i++)
		end_stream(r, i);
	return r->filtered.open != 0;
}

void filtering_forget(struct relay *r)
{
	for (unsigned int i = 0; i < WIRE_STREAMS; i++) {
		end_stream(r, i);
		if (r->filtered.open >> i & 1)
			r->keeper->filtering.open--;
	}
	r->filtered.open = 0;
}

/* ---- from hutch-filter ---- */

/* False: the hit was only counted. */
static bool may_record(struct filtering *f)
{
	const uint64_t now = clock_mono() / NSEC_PER_SEC;

	if (now != f->second) {
		f->second = now;
		f->recorded = 0;
	}
	if (f->recorded < FILTER_RECORDS_MAX) {
		f->recorded++;
		return true;
	}
	f->dropped++;
	return false;
}

static void record_hit(struct keeper *k, const struct relay *r, const struct filter_packet *p)
{
	_cleanup_audit_payload_ struct audit_payload payload = AUDIT_PAYLOAD_INIT(NULL);
	struct filtering *f = &k->filtering;

	if (!may_record(f))
		return;
	if (r) {
		audit_put_number(&payload, "n", r->entry.number);
		audit_put_number(&payload, "command", r->command->record.number);
		audit_put_number(&payload, "pid", r->pid);
	}
	audit_put_bytes(&payload, "rule", p->bytes, p->head.n);
	audit_put_text(&payload, "action", k->spec->filter);
	audit_put_number(&payload, "matches", p->head.count);
	if (p->head.late > 0)
		audit_put_number(&payload, "late", p->head.late);
	if (f->dropped > 0)
		audit_put_number(&payload, "not_recorded", f->dropped);
	f->dropped = 0;
	journal_outcome(k, AUDIT_OUTPUT, &payload);
}

/* 0, or as filter_receive(). */
static int take_one(struct keeper *k)
{
	static struct filter_packet p;
	struct relay *r;
	int error = filter_receive(k->filtering.src.fd, &p);
	unsigned int stream;

	if (error < 0)
		return error;
	r = relay_of(k, p.head.stream);
	stream = (unsigned int)(p.head.stream % WIRE_STREAMS);
	if (p.head.kind == FILTER_HIT)
		record_hit(k, r, &p);
	/* Without a relay: its client has closed it. */
	if (!r || !(r->filtered.open >> stream & 1))
		return 0;
	if (p.head.taken > r->filtered.inside[stream])
		return -EBADMSG;
	r->filtered.inside[stream] -= p.head.taken;
	if (p.head.kind == FILTER_DATA)
		pass(r, stream, p.bytes, p.head.n, p.head.taken);
	else if (p.head.kind == FILTER_END && r->filtered.ended >> stream & 1)
		close_stream(r, stream);
	return 0;
}

static void on_filter(struct loop_fd *src, uint32_t events)
{
	struct keeper *k = src->arg;
	int r = 0;

	for (int i = 0; i < TURN_MAX && r == 0; i++)
		r = take_one(k);
	if (r == -EPIPE)
		return lose(k, "hutch-filter ended");
	if (r < 0 && r != -EAGAIN)
		return lose(k, "hutch-filter sent an invalid message");
	if (events & EPOLLOUT)
		flush(k);
}

bool filtering_came(struct keeper *k, uint64_t error, const int *files, size_t n)
{
	struct filtering *f = &k->filtering;

	if (!f->asked || (n > 0) != (error == 0))
		return false;
	f->asked = false;
	if (n == 0) {
		lose(k, "hutch-filter could not be started");
		return true;
	}
	f->src = (struct loop_fd){ .cb = on_filter, .arg = k };
	if (loop_add_fd(k->loop, &f->src, files[0], EPOLLIN) < 0) {
		f->src.fd = -EBADF;
		return false;
	}
	flush(k);
	return true;
}
