/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of a link, for link.c (output) and link-in.c (input). */
#pragma once

#include "base/trace.h"
#include "wire/link.h"

enum state {
	STATE_NEW, /* not in the channel table: never opened, or gone */
	STATE_ASKING,
	STATE_ASKED,
	STATE_OPEN,
	STATE_CLOSING,	      /* we closed an open channel, or one that the other side requested */
	STATE_CLOSING_ASKING, /* we closed a channel before the answer: an ACCEPT may be on its way
			       */
	STATE_MAX,
};

struct stream {
	uint32_t send;	  /* bytes that we may send */
	uint32_t receive; /* bytes that the other side may send */
	bool sent_eof, got_eof;
};

struct channel {
	uint32_t id;
	uint8_t op;
	uint8_t state;
	struct stream streams[WIRE_STREAMS];
	void *cookie;
	struct channel *next; /* in its slot */
};

enum {
	SLOTS = 256,
};

/* The sleep state of a link. */
enum sleep {
	AWAKE,
	FALLING, /* SLEEP was sent; the guest may still send, the keeper may not */
	ASLEEP,	 /* ASLEEP was sent, too: only the keeper may send, WAKE or HELLO */
};

struct link {
	enum link_role role;
	const struct link_ops *ops;
	void *arg;
	int err;	/* sticky */
	struct buf in;	/* part of one frame */
	struct buf out; /* output waiting to be written, from out_done on */
	size_t out_done;
	struct buf held; /* frames sent while this side must be silent: written after WAKE */
	enum sleep sleep;
	link_write_fn *write;
	void *write_arg;
	bool sent_hello, got_hello;
	bool guest_asks;      /* the guest may open channels: it has its own kernel */
	bool client;	      /* the other side is a client of the keeper */
	uint32_t next_own;    /* the lowest number for the next channel */
	uint64_t next_theirs; /* the same; 64 bits, so that it can exceed the last number */
	size_t n_own, n_theirs;
	struct channel *slots[SLOTS];
};

static inline bool link_is_own(const struct link *l, uint32_t id)
{
	return (id % 2 == 0) == (l->role == LINK_KEEPER);
}

/* Numbers of one opener differ by two. */
static inline struct channel **link_slot(struct link *l, uint32_t id)
{
	return &l->slots[id / 2 % SLOTS];
}

/* NULL: never opened, or gone. */
static inline struct channel *link_find(const struct link *l, uint32_t id)
{
	struct channel *c = *link_slot((struct link *)l, id);

	while (c && c->id != id)
		c = c->next;
	return c;
}

/* NULL: out of memory. */
struct channel *link_add(struct link *l, uint32_t id, uint8_t op, enum state state);
void link_drop(struct link *l, struct channel *c);

/* link_release(): the guest wakes, held frames are sent. link_forget(): the guest gets another
 * keeper, everything but the link is reset. */
int link_release(struct link *l);
void link_forget(struct link *l);

/* Is there output that may be written? */
bool link_has_output(const struct link *l);

/* Ends the link with this error; returns the first error, if the link has already ended. */
int link_dead(struct link *l, int err);

/* Writes a frame as a trace line; use LINK_TRACE() where a frame is sent or received. */
void link_trace(struct link *l, bool out, uint8_t type, uint32_t ch, uint8_t sub, size_t n);
#define LINK_TRACE(l, out, type, ch, sub, n)                             \
	do {                                                             \
		if (__builtin_expect(trace_on, false))                   \
			link_trace(l, out, (uint8_t)(type), ch, sub, n); \
	} while (0)

int link_put_token(struct link *l, enum wire_type type, uint64_t token);
int link_put_close(struct link *l, uint32_t ch, enum wire_code code, const char *text);
