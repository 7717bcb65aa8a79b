/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a guest channel: frames in, frames out, and a table of channels with their states and
 * credit. Does no system call: its owner feeds it the bytes that came and writes out what it has to
 * say. Both ends are this code.
 *
 * After the first error (-EPROTO, -ENOMEM, -ENOBUFS) the link is dead: every call fails with the
 * same number, and the owner ends the sandbox. Callbacks may call anything here but link_free() and
 * link_feed().
 */
#pragma once

#include <sys/uio.h>

#include "message.h"

struct link;

enum link_role {
	LINK_KEEPER,
	LINK_GUEST,
};

/* What the other side says. Fields and data are valid during the call. NULL callbacks are allowed.
 */
struct link_ops {
	void (*hello)(struct link *l, const struct fields *f, void *arg);
	/* The other side asks for an operation: answer with link_accept() or link_close(), now or
	 * later. */
	void (*opened)(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
		       void *arg);
	void (*accepted)(struct link *l, uint32_t ch, const struct fields *f, void *arg);
	/* The bytes count against our credit until link_consumed() gives it back. */
	void (*data)(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		     void *arg);
	void (*eof)(struct link *l, uint32_t ch, unsigned int stream, void *arg);
	/* More may be sent on this stream than a moment ago. Not called after link_eof(). */
	void (*credit)(struct link *l, uint32_t ch, unsigned int stream, void *arg);
	void (*msg)(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		    void *arg);
	/* The other side closed; the channel is gone after the call. Not called for what we closed
	 * first. */
	void (*closed)(struct link *l, uint32_t ch, const struct fields *f, void *arg);
	void (*pong)(struct link *l, uint64_t token, void *arg);
	/* The guest's: a snapshot is about to be taken. Answer with link_asleep(), now or later. */
	void (*sleep)(struct link *l, void *arg);
	/* The keeper's: nothing of the guest's is on its way any more. */
	void (*asleep)(struct link *l, void *arg);
	/* The guest's: nothing has happened but that time went by. It may have been awake. */
	void (*wake)(struct link *l, const struct fields *f, void *arg);
	/* The guest's: the keeper is another one, and every channel is gone. Then comes hello. */
	void (*reset)(struct link *l, void *arg);
	/* For trace lines: the id of the request that a channel serves, or NULL. */
	const char *(*request)(struct link *l, uint32_t ch, void *arg);
};

enum {
	LINK_OUT_SOFT = 1024 * 1024, /* no more DATA is taken over that; see link_ready() */
	LINK_OUT_MAX =
		8 * 1024 * 1024, /* what waits to be written, at most; over that the link is dead */
};

int link_new(enum link_role role, const struct link_ops *ops, void *arg, struct link **ret);
struct link *link_free(struct link *l);

/*
 * For both ends of a client's connection to the keeper, which has more fields and operations than
 * a guest's. To be called before anything else.
 */
void link_with_client(struct link *l);

/* For the keeper's end: the guest has a kernel of its own, and asks for what goes out. */
void link_guest_asks(struct link *l);

/* Bytes that came from the other side. 0 or -errno; `e` says which rule was broken. */
int link_feed(struct link *l, const void *data, size_t n, struct err *e);

/* What waits to be written; link_wrote() takes it away. */
const void *link_pending(const struct link *l, size_t *ret_n);
void link_wrote(struct link *l, size_t n);

/*
 * How link_flush() writes: both pieces, of which the second may be empty, in order and without
 * waiting. Returns how many bytes it took, or -errno (-EAGAIN: none now). Large DATA goes out that
 * way too, at once and without being copied, where nothing waits before it.
 */
typedef ssize_t link_write_fn(void *arg, const struct iovec pieces[static 2]);
void link_set_output(struct link *l, link_write_fn *write, void *arg);

/* Writes what waits, as far as it goes without waiting. 0, or what the write failed with. */
int link_flush(struct link *l);

/* May DATA be sent, as far as the output is concerned? */
bool link_ready(const struct link *l);

/*
 * The first frame: nothing can be sent before it, and nothing but HELLO is taken before it. So a
 * guest answers inside the hello callback, or the link ends with the next frame (-EPROTO).
 */
int link_hello(struct link *l, const struct buf *fields);
int link_ping(struct link *l, uint64_t token);

/*
 * The keeper's: the guest is to fall asleep. From here to link_wake(), which may be called after
 * the asleep callback, what is sent waits in the link and counts as output: see link_ready(). One
 * that is awake can be woken too: that tells it a seed and the time.
 */
int link_sleep(struct link *l);
int link_wake(struct link *l, const struct buf *fields);

/* The guest's: the last frame until it is woken. What is sent after it waits. */
int link_asleep(struct link *l);

/* Asks for an operation. -EAGAIN: WIRE_CHANNELS_MAX are open. `cookie` is yours: link_cookie(). */
int link_open(struct link *l, enum wire_op op, const struct buf *fields, void *cookie,
	      uint32_t *ret_ch);
int link_accept(struct link *l, uint32_t ch, const struct buf *fields); /* NULL: no fields */
int link_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct buf *fields);

/* Sends as much as credit and output allow, and returns how much that was: 0 to n, or -errno. */
ssize_t link_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n);
int link_eof(struct link *l, uint32_t ch, unsigned int stream);

/* `n` bytes of DATA have been passed on: the other side may send as many again. */
int link_consumed(struct link *l, uint32_t ch, unsigned int stream, size_t n);

/*
 * Closes; text may be NULL, and is cut and made UTF-8 if it has to be. The channel is ours no
 * longer: its callbacks end here. No-op when it is gone.
 */
int link_close(struct link *l, uint32_t ch, enum wire_code code, const char *text);

/* How much DATA may be sent on a stream now; 0 after EOF and for a channel that is not open. */
size_t link_credit(const struct link *l, uint32_t ch, unsigned int stream);

/* A pointer that travels with the channel. */
void *link_cookie(const struct link *l, uint32_t ch);
void link_set_cookie(struct link *l, uint32_t ch, void *cookie);

/* Channels that are not gone. */
size_t link_channels(const struct link *l);

static inline void cleanup_link(struct link **l)
{
	(void)link_free(*l);
}

#define _cleanup_link_ _cleanup_(cleanup_link)
