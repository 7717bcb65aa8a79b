/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a link, for link.c (what is sent) and link-in.c (what comes). */
#pragma once

#include "link.h"
#include "trace.h"

enum state {
	STATE_NEW, /* not in the table of channels: never opened, or gone */
	STATE_ASKING,
	STATE_ASKED,
	STATE_OPEN,
	STATE_CLOSING,	      /* we closed an open channel, or one that we were asked for */
	STATE_CLOSING_ASKING, /* we closed what was not answered yet: an ACCEPT may be on its way */
	STATE_MAX,
};

struct stream {
	uint32_t send;	  /* bytes that we may send */
	uint32_t receive; /* bytes that they may send */
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

/* Where a link is between SLEEP and what ends it. */
enum sleep {
	AWAKE,
	FALLING, /* SLEEP went over; the guest may still speak, the keeper may not */
	ASLEEP,	 /* so did ASLEEP: nobody speaks but the keeper, with WAKE or HELLO */
};

struct link {
	enum link_role role;
	const struct link_ops *ops;
	void *arg;
	int err;	/* sticky */
	struct buf in;	/* part of one frame */
	struct buf out; /* what waits, from out_done on */
	size_t out_done;
	struct buf held; /* what would be sent by one who may not: it goes out after WAKE */
	enum sleep sleep;
	link_write_fn *write;
	void *write_arg;
	bool sent_hello, got_hello;
	bool guest_asks;      /* the guest may open channels: it has its own kernel */
	bool client;	      /* the other side is a client of the keeper */
	uint32_t next_own;    /* the least number that may be opened next */
	uint64_t next_theirs; /* the same, and after the last one there is none */
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

/* NULL without memory. */
struct channel *link_add(struct link *l, uint32_t id, uint8_t op, enum state state);
void link_drop(struct link *l, struct channel *c);

/* The guest wakes: what was held goes out. Or it is another's: there is nothing but the link. */
int link_release(struct link *l);
void link_forget(struct link *l);

/* Does something of ours wait that may go out? */
bool link_has_output(const struct link *l);

/* The link ends with this error, or has ended with an earlier one, which is returned. */
int link_dead(struct link *l, int err);

/* A frame as a trace line; LINK_TRACE() where one is sent or has come. */
void link_trace(struct link *l, bool out, uint8_t type, uint32_t ch, uint8_t sub, size_t n);
#define LINK_TRACE(l, out, type, ch, sub, n)                             \
	do {                                                             \
		if (__builtin_expect(trace_on, false))                   \
			link_trace(l, out, (uint8_t)(type), ch, sub, n); \
	} while (0)

int link_put_token(struct link *l, enum wire_type type, uint64_t token);
int link_put_close(struct link *l, uint32_t ch, enum wire_code code, const char *text);
