/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/2 through an exchange. The first byte selects the configuration. Segments follow: a byte
 * that says whose, two bytes of length, and frames. The client's preface comes before them.
 *
 *	c  the client sends		C  it closes
 *	s  the server sends		S  it closes
 *	a  a server of libnghttp2 answers all requests so far
 *
 * Unless the input has bytes of the server, that server reads all that hutch-tap sends: it must
 * find no error, and in each request the right host, the right credential and an allowed path.
 */
#include <strings.h>

#include "../unit/tap-h2-world.h"
#include "fuzz.h"

#define VALUE "secret-value-0123456789"

enum {
	MODE_BEARER = 1, /* else X-Api-Key */
	MODE_RULES = 2,
	MODE_RAW = 4, /* the input has bytes of the server */
	MODE_PATHS = 8,
	MODE_AWS = 16,
	SEGMENT_HEAD = 3,
};

static const char *const paths[] = { "/v1/**" };
static const char *const methods[] = { "GET", "POST" };
static size_t reports, in_use;

static void count_report(void *arg, const struct tap_request *r)
{
	reports++;
}

static void configure(struct h2_world *w, unsigned int mode)
{
	struct tap_secret *s;
	struct l7_rule *r;

	world_init(&w->base);
	w->base.conf.report = count_report;
	w->base.conf.n_requests = &in_use;
	w->base.conf.max_requests = 64;
	s = world_secret(&w->base, "KEY", mode & MODE_BEARER ? SECRET_BEARER : SECRET_HEADER,
			 VALUE);
	s->header = "X-Api-Key";
	if (mode & MODE_AWS) {
		s->form = SECRET_AWS;
		s->value = "AKID:" VALUE;
	}
	if (mode & MODE_PATHS)
		s->paths = (struct l7_list){ paths, 1 };
	if (!(mode & MODE_RULES))
		return;
	r = world_rule(&w->base, "f:1");
	r->methods = (struct l7_list){ methods, 2 };
	r->paths = (struct l7_list){ paths, 1 };
	r->max_body = 1000;
}

/* ---- the server's side ---- */

static size_t count_lines(const char *head, const char *begin)
{
	size_t count = 0;

	for (const char *p = head; p; p = strchr(p, '\n')) {
		p += *p == '\n';
		count += strncasecmp(p, begin, strlen(begin)) == 0;
		if (*p == '\0')
			break;
	}
	return count;
}

static void check_request(const struct h2_seen *s, unsigned int mode)
{
	const char *head = buf_text(&s->head);

	assert(count_lines(head, ":authority: " WORLD_HOST "\n") == 1);
	assert(count_lines(head, "host:") == 0 && count_lines(head, "transfer-encoding") == 0);
	if (mode & MODE_RULES)
		assert(strstr(head, "\n:path: /v1") &&
		       (strstr(head, ":method: GET\n") || strstr(head, ":method: POST\n")));
	if (mode & (MODE_PATHS | MODE_AWS))
		return;
	assert(count_lines(head, "authorization:") + count_lines(head, "x-api-key:") == 1);
	assert(strstr(head, mode & MODE_BEARER ? "\nauthorization: Bearer " VALUE "\n"
					       : "\nx-api-key: " VALUE "\n"));
}

static void check_server(struct h2_world *w, unsigned int mode)
{
	assert(!w->server.failed);
	for (size_t i = 0; i < w->server.n; i++)
		if (w->server.seen[i].n_heads > 0)
			check_request(&w->server.seen[i], mode);
}

static void answer_all(struct h2_world *w)
{
	static const char *const fields[] = { ":status", "200", "x-echo", VALUE, NULL };

	for (size_t i = 0; i < w->server.n; i++) {
		struct h2_seen *s = &w->server.seen[i];

		if (s->n_heads == 0 || s->sent.len > 0 || s->closed)
			continue;
		s->trailers = "sum";
		h2_reply(w, s->id, fields, "body " VALUE, STRLEN("body " VALUE), false);
	}
}

/* ---- running ---- */

static void feed(struct h2_world *w, bool client, const uint8_t *data, size_t n)
{
	size_t at = 0, used = 1;

	while (at < n && used > 0) {
		size_t piece = world_piece(&w->base, n - at);
		char *copy = malloc(piece); /* exactly as long, for the sanitizer */

		assert(copy);
		memcpy(copy, data + at, piece);
		assert((client ? exchange_from_client : exchange_from_server)(w->base.x, copy,
									      piece, &used) == 0);
		free(copy);
		at += used;
	}
}

static void drain(struct h2_world *w, unsigned int mode)
{
	static struct buf kept = BUF_INIT(64 * 1024 * 1024);
	bool moved = true;

	while (moved) {
		struct buf *c = exchange_to_client(w->base.x);

		moved = c->len > 0;
		/* The secret that every request carries never returns. */
		assert((mode & (MODE_PATHS | MODE_AWS)) ||
		       !memmem(buf_text(c), c->len, VALUE, STRLEN(VALUE)));
		buf_consume(c, c->len);
		if (mode & MODE_RAW) {
			buf_consume(exchange_to_server(w->base.x),
				    exchange_to_server(w->base.x)->len);
			continue;
		}
		moved |= tap_to_peer(w, &w->server);
		moved |= peer_to_tap(w, &w->server, &kept);
	}
	buf_reset(&kept);
}

static void run(struct h2_world *w, unsigned int mode, const uint8_t *data, size_t size)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";

	h2_world_begin(w);
	feed(w, true, (const uint8_t *)preface, sizeof(preface) - 1);
	while (size >= SEGMENT_HEAD) {
		size_t n = MIN((size_t)data[1] << 8 | data[2], size - SEGMENT_HEAD);
		const uint8_t *bytes = data + SEGMENT_HEAD;

		if (data[0] == 'c')
			feed(w, true, bytes, n);
		else if (data[0] == 's' && (mode & MODE_RAW))
			feed(w, false, bytes, n);
		else if (data[0] == 'C')
			exchange_client_eof(w->base.x);
		else if (data[0] == 'S')
			exchange_server_eof(w->base.x);
		else if (data[0] == 'a' && !(mode & MODE_RAW))
			answer_all(w);
		drain(w, mode);
		data = bytes + n;
		size -= SEGMENT_HEAD + n;
	}
	if (!(mode & MODE_RAW))
		check_server(w, mode);
	exchange_abort(w->base.x, TAP_TIME, "the end");
	assert(exchange_over(w->base.x));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct h2_world w = { 0 };

	if (size < 2 || size > 64 * 1024)
		return 0;
	configure(&w, data[0]);
	/* Whole, and in pieces. */
	for (uint32_t seed = 0; seed < 3; seed++) {
		w.base.seed = seed;
		run(&w, data[0], data + 1, size - 1);
	}
	h2_world_done(&w);
	assert(in_use == 0);
	return 0;
}
