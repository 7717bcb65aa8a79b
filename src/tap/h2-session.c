/* SPDX-License-Identifier: Apache-2.0 */
#include <malloc.h>
#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "tap/h2-inner.h"

enum {
	HEAD_SENT_MAX = 4 * EXCHANGE_HEAD_MAX,
	KEPT_STREAMS_MAX = 2 * H2_STREAMS_MAX, /* with those that the server has not closed yet */
};

/* ---- memory of libnghttp2, which holds secrets: wiped before it is freed ---- */

static void *allocate(size_t n, void *arg)
{
	return malloc(n);
}

static void *allocate_many(size_t n, size_t size, void *arg)
{
	return calloc(n, size);
}

static void release(void *p, void *arg)
{
	if (p)
		sodium_memzero(p, malloc_usable_size(p));
	free(p);
}

static void *reallocate(void *p, size_t n, void *arg)
{
	const size_t had = p ? malloc_usable_size(p) : 0;
	void *q = malloc(n);

	if (!q)
		return NULL;
	if (p)
		memcpy(q, p, MIN(had, n));
	release(p, arg);
	return q;
}

nghttp2_mem *h2_memory(void)
{
	static nghttp2_mem m = { NULL, allocate, release, allocate_many, reallocate };

	return &m;
}

/* ---- sessions ---- */

nghttp2_option *h2_options(void)
{
	nghttp2_option *o;

	if (nghttp2_option_new(&o) < 0)
		return NULL;
	nghttp2_option_set_no_auto_window_update(o, 1);
	nghttp2_option_set_no_closed_streams(o, 1);
	nghttp2_option_set_max_send_header_block_length(o, HEAD_SENT_MAX);
	nghttp2_option_set_max_outbound_ack(o, H2_ACKS_MAX);
	nghttp2_option_set_max_settings(o, H2_SETTINGS_MAX);
	nghttp2_option_set_max_continuations(o, H2_CONTINUATIONS_MAX);
	nghttp2_option_set_stream_reset_rate_limit(o, H2_CUTS_MAX, H2_CUTS_RATE);
	return o;
}

int h2_greet(nghttp2_session *s, const nghttp2_settings_entry *settings, size_t n)
{
	if (nghttp2_submit_settings(s, NGHTTP2_FLAG_NONE, settings, n) < 0 ||
	    nghttp2_session_set_local_window_size(s, NGHTTP2_FLAG_NONE, 0, H2_CONNECTION_WINDOW) <
		    0)
		return -ENOMEM;
	return 0;
}

/* ---- limits ---- */

bool h2_has_room(const struct h2 *h)
{
	const struct exchange_conf *c = h->conf;

	return !h->is_closing && h->n_streams < KEPT_STREAMS_MAX &&
	       (!c->n_requests || *c->n_requests < c->max_requests);
}

bool h2_note_cut(struct h2 *h)
{
	const uint64_t now = clock_mono(), each = NSEC_PER_SEC / H2_CUTS_RATE;

	h->cuts = MAX(h->cuts, now) + each;
	return h->cuts <= now + H2_CUTS_MAX * each;
}

void h2_close(struct h2 *h)
{
	if (h->is_closing)
		return;
	h->is_closing = true;
	(void)nghttp2_submit_goaway(h->in, NGHTTP2_FLAG_NONE,
				    nghttp2_session_get_last_proc_stream_id(h->in),
				    NGHTTP2_NO_ERROR, NULL, 0);
}
