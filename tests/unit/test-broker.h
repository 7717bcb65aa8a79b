/* SPDX-License-Identifier: Apache-2.0 */
/* A broker in the world of test-egress.h, with a log of its reports. */
#pragma once

#include "test-egress.h"

#include "egress/broker.h"
#include "fail.h"

enum {
	SEEN_MAX = 64,
};

struct seen {
	enum broker_what what;
	enum broker_reason reason;
	uint64_t stream, out, in;
	char rule[RULE_TEXT_MAX], detail[128], addr[ADDR_TEXT_MAX];
};

struct desk {
	struct world *w;
	struct broker *b;
	struct seen seen[SEEN_MAX]; /* the first ones */
	size_t n_seen, ended;
	size_t replies;
	bool reply_ok;
};

static inline void desk_report(void *arg, const struct broker_event *ev)
{
	struct desk *d = arg;
	struct seen *s = &d->seen[MIN(d->n_seen, (size_t)SEEN_MAX - 1)];

	d->n_seen++;
	d->ended += ev->what == BROKER_END;
	*s = (struct seen){ .what = ev->what,
			    .reason = ev->reason,
			    .stream = ev->stream,
			    .out = ev->bytes_out,
			    .in = ev->bytes_in };
	(void)snprintf(s->rule, sizeof(s->rule), "%s", ev->rule);
	(void)snprintf(s->detail, sizeof(s->detail), "%s", ev->detail);
	if (ev->addr)
		addr_format(ev->addr, s->addr);
}

static inline void desk_reply(void *arg, void *cookie, int fd, bool ok, enum broker_reason reason)
{
	struct desk *d = arg;
	const char *text = ok ? "200\n" : "403\n";

	d->replies++;
	d->reply_ok = ok;
	assert_int_equal(send(fd, text, 4, MSG_NOSIGNAL), 4);
}

static const struct broker_ops desk_ops = { .report = desk_report, .reply = desk_reply };

static inline struct ruleset *desk_rules(const char *const *rules)
{
	struct ruleset_entry entries[32] = { 0 };
	struct ruleset *s = NULL;
	uint32_t n = 0;

	for (; rules[n]; n++) {
		struct err e = ERR_INIT;

		entries[n].deny = rules[n][0] == '-';
		entries[n].id = n;
		if (rule_parse(rules[n] + 1, strlen(rules[n] + 1), &entries[n].rule, &e) < 0)
			fail_msg("'%s': %s", rules[n], e.msg);
	}
	assert_int_equal(ruleset_new(entries, n, &s), 0);
	return s;
}

#define RULES(...) desk_rules((const char *const[]){ __VA_ARGS__, NULL })

static inline struct broker_conf desk_conf(struct desk *d, struct world *w)
{
	d->w = w;
	return (struct broker_conf){
		.loop = w->loop,
		.ops = &desk_ops,
		.arg = d,
		.limits = { UINT64_MAX / 2, UINT64_MAX / 2, 100000, 100000, 100000 },
		.resolver = WORLD_RESOLVER,
	};
}

static inline void desk_start(struct desk *d, const struct broker_conf *c, struct ruleset *rules)
{
	struct err e = ERR_INIT;

	if (broker_new(c, rules, &d->b, &e) < 0)
		fail_msg("%s", e.msg);
}

/* Opens a stream to `what`; returns the client's end of the socket. */
static inline int desk_open(struct desk *d, const char *what)
{
	struct broker_request req = { 0 };
	struct err e = ERR_INIT;
	int fds[2];

	if (target_parse(what, strlen(what), &req.target, &e) < 0)
		fail_msg("'%s': %s", what, e.msg);
	world_pair(fds);
	req.fd = fds[1];
	broker_open(d->b, &req);
	return fds[0];
}

static inline const struct seen *desk_last(const struct desk *d)
{
	assert_in_range(d->n_seen, 1, SEEN_MAX);
	return &d->seen[d->n_seen - 1];
}

static inline void desk_put(int fd, const void *data, size_t n)
{
	assert_int_equal(send(fd, data, n, MSG_NOSIGNAL), n);
}

/* A ClientHello for `name` (NULL: none), in records of at most `fragment` bytes. */
static inline size_t desk_hello(const char *name, bool ech, size_t fragment, uint8_t out[2048])
{
	_cleanup_buf_ struct buf m = BUF_INIT(2048), exts = BUF_INIT(2048);
	size_t n = 0, at = 0;

	if (name) {
		(void)buf_put_be(&exts, 0, 2);
		(void)buf_put_be(&exts, strlen(name) + 5, 2);
		(void)buf_put_be(&exts, strlen(name) + 3, 2);
		(void)buf_put_be(&exts, 0, 1);
		(void)buf_put_be(&exts, strlen(name), 2);
		(void)buf_puts(&exts, name);
	}
	(void)buf_put(&exts, "\x00\x2b\x00\x03\x02\x03\x04", 7);
	if (ech)
		(void)buf_put(&exts, "\xfe\x0d\x00\x01\x00", 5);
	(void)buf_put_be(&m, 1, 1);
	(void)buf_put_be(&m, 2 + 32 + 1 + 4 + 2 + 2 + exts.len, 3);
	(void)buf_put_be(&m, 0x0303, 2);
	for (int i = 0; i < 4; i++)
		(void)buf_put_be(&m, 0x0123456789abcdef, 8);
	(void)buf_put(&m, "\x00\x00\x02\x13\x01\x01\x00", 7);
	(void)buf_put_be(&m, exts.len, 2);
	(void)buf_put(&m, buf_text(&exts), exts.len);
	while (at < m.len) {
		size_t part = MIN(fragment, m.len - at);

		out[n++] = 22;
		out[n++] = 3;
		out[n++] = 1;
		out[n++] = (uint8_t)(part >> 8);
		out[n++] = (uint8_t)part;
		memcpy(out + n, m.data + at, part);
		n += part;
		at += part;
		assert_true(n < 2000);
	}
	return n;
}
