/* SPDX-License-Identifier: Apache-2.0 */
#include "api/wake.h"

#include "api/box.h"
#include "api/suspend.h"
#include "base/clock.h"

enum {
	SAME_DEADLINE_MS = 5000,
};

struct life_call {
	struct request *request;
	struct box *box;
	struct call *call;
	void (*then)(struct request *r, struct box *b, enum wire_code code, const char *text);
};

static void life_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct life_call *l = arg;
	struct request *r = l->request;
	struct box *b = box_find(r->api, l->box->sandbox.id);

	l->call = NULL;
	if (!b || code == WIRE_GONE) {
		request_fail(r, 404, "the sandbox has ended");
		return;
	}
	box_refresh(b);
	r->drop = NULL;
	r->data = NULL;
	l->then(r, b, code, text);
	free(l);
}

static const struct call_ops life_ops = { .closed = life_closed };

static void life_drop(struct request *r)
{
	struct life_call *l = r->data;

	if (l->call)
		peer_close(l->call);
	free(l);
}

static void put_life(struct buf *b, uint64_t timeout_ms, unsigned int want)
{
	if (timeout_ms > 0)
		fields_put_number(b, TAG_TIMEOUT, timeout_ms);
	if (want > 0)
		fields_put_number(b, TAG_WANT, want);
}

void box_life(struct request *r, struct box *b, uint64_t timeout_ms, unsigned int want,
	      void (*then)(struct request *r, struct box *b, enum wire_code code, const char *text))
{
	_cleanup_buf_ struct buf fields = BUF_INIT(64);
	struct life_call *l = calloc(1, sizeof(*l));
	struct peer *p = NULL;
	struct err e = ERR_INIT;
	int rc = l ? box_peer(b, &p, &e) : err_oom(&e);

	if (rc == 0) {
		put_life(&fields, timeout_ms, want);
		*l = (struct life_call){ .request = r, .box = b, .then = then };
		rc = peer_call(p, WIRE_OP_LIFE, &fields, &life_ops, l, &l->call, &e);
	}
	if (rc < 0) {
		free(l);
		if (rc == -EPIPE) /* it has ended since the lookup */
			request_no_box(r);
		else
			request_fail_err(r, &e);
		return;
	}
	r->data = l;
	r->drop = life_drop;
	if (r->box != b)
		request_join(r, b);
}

bool box_is_as_late(const struct box *b, uint64_t seconds)
{
	return b->deadline > 0 &&
	       clock_wall() / NSEC_PER_MSEC + seconds * 1000 <= b->deadline + SAME_DEADLINE_MS;
}

static void woken(struct request *r, struct box *b, enum wire_code code, const char *text)
{
	void (*then)(struct request * r) = r->then;

	r->then = NULL;
	if (code == WIRE_DONE || code == WIRE_EXISTS)
		then(r);
	else
		request_gone(r);
}

static void woken_from_disk(struct request *r, struct box *b)
{
	if (box_is_as_late(b, WAKE_TIMEOUT_S)) {
		request_join(r, b);
		woken(r, b, WIRE_DONE, "");
		return;
	}
	box_life(r, b, WAKE_TIMEOUT_S * 1000, 0, woken);
}

void box_wake(struct request *r, struct box *b, void (*then)(struct request *r))
{
	r->then = then;
	if (b->suspended)
		box_unsuspend(r, b, WAKE_TIMEOUT_S * 1000, woken_from_disk);
	else
		box_life(r, b, WAKE_TIMEOUT_S * 1000, WIRE_RUNNING, woken);
}
