/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One end of a guest channel: frames in, frames out, and a table of channels with their states and
 * credit. Makes no system calls: its owner feeds it received bytes and writes its output. Both ends
 * use this code.
 *
 * After the first error (-EPROTO, -ENOMEM, -ENOBUFS) the link is dead: every call fails with the
 * same number, and the owner ends the sandbox. Callbacks may call any function here except
 * link_free() and link_feed().
 */
#pragma once

#include <sys/uio.h>

#include "wire/message.h"

struct link;

enum link_role {
	LINK_KEEPER,
	LINK_GUEST,
};

/* Events from the other side. Fields and data are valid during the call. Callbacks may be NULL. */
struct link_ops {
	void (*hello)(struct link *l, const struct fields *f, void *arg);
	/* The other side requests an operation: answer with link_accept() or link_close(), now or
	 * later. */
	void (*opened)(struct link *l, uint32_t ch, enum wire_op op, const struct fields *f,
		       void *arg);
	void (*accepted)(struct link *l, uint32_t ch, const struct fields *f, void *arg);
	/* The bytes use our credit until link_consumed() returns it. */
	void (*data)(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		     void *arg);
	void (*eof)(struct link *l, uint32_t ch, unsigned int stream, void *arg);
	/* More may be sent on this stream now. Not called after link_eof(). */
	void (*credit)(struct link *l, uint32_t ch, unsigned int stream, void *arg);
	void (*msg)(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		    void *arg);
	/* The other side closed; the channel is gone after the call. Not called for channels that
	 * we closed first. */
	void (*closed)(struct link *l, uint32_t ch, const struct fields *f, void *arg);
	void (*pong)(struct link *l, uint64_t token, void *arg);
	/* Guest only: a snapshot is about to be taken. Answer with link_asleep(), now or later. */
	void (*sleep)(struct link *l, void *arg);
	/* Keeper only: no frame of the guest is on its way any more. */
	void (*asleep)(struct link *l, void *arg);
	/* Guest only: the same sandbox continues after some time. The guest may have been awake. */
	void (*wake)(struct link *l, const struct fields *f, void *arg);
	/* Guest only: there is a new keeper, and every channel is gone. hello() follows. */
	void (*reset)(struct link *l, void *arg);
	/* For trace lines: the request id of a channel, or NULL. */
	const char *(*request)(struct link *l, uint32_t ch, void *arg);
};

enum {
	LINK_OUT_SOFT = 1024 * 1024,	/* no DATA is accepted above this; see link_ready() */
	LINK_OUT_MAX = 8 * 1024 * 1024, /* maximum output waiting; above it the link is dead */
};

int link_new(enum link_role role, const struct link_ops *ops, void *arg, struct link **ret);
struct link *link_free(struct link *l);

/*
 * For both ends of a client's connection to the keeper, which has more fields and operations than a
 * guest's. Call it before anything else.
 */
void link_with_client(struct link *l);

/* For the keeper's end: the guest has its own kernel and requests its outgoing connections. */
void link_guest_asks(struct link *l);

/* Processes received bytes. 0 or -errno; `e` says which rule was broken. */
int link_feed(struct link *l, const void *data, size_t n, struct err *e);

/* Output waiting to be written; link_wrote() removes it. */
const void *link_pending(const struct link *l, size_t *ret_n);
void link_wrote(struct link *l, size_t n);

/*
 * Writes for link_flush(): both pieces in order, without waiting; the second may be empty. Returns
 * how many bytes it accepted, or -errno (-EAGAIN: none now). Large DATA is also written this way,
 * directly and without a copy, if no output waits.
 */
typedef ssize_t link_write_fn(void *arg, const struct iovec pieces[static 2]);
void link_set_output(struct link *l, link_write_fn *write, void *arg);

/* Writes waiting output without blocking. 0, or the error of the write. */
int link_flush(struct link *l);

/* Is there room in the output for DATA? */
bool link_ready(const struct link *l);

/*
 * Sends the first frame: nothing can be sent before it, and only HELLO is accepted before it. So a
 * guest must answer inside the hello callback, or the next frame ends the link (-EPROTO).
 */
int link_hello(struct link *l, const struct buf *fields);
int link_ping(struct link *l, uint64_t token);

/*
 * Keeper only: puts the guest to sleep. Until link_wake(), which may be called after the asleep
 * callback, frames wait in the link and count as output: see link_ready(). link_wake() of an awake
 * guest sends it a seed and the time.
 */
int link_sleep(struct link *l);
int link_wake(struct link *l, const struct buf *fields);

/* Guest only: the last frame until WAKE. Later frames wait. */
int link_asleep(struct link *l);

/* Requests an operation. -EAGAIN: WIRE_CHANNELS_MAX are open. `cookie` is the caller's:
 * link_cookie(). */
int link_open(struct link *l, enum wire_op op, const struct buf *fields, void *cookie,
	      uint32_t *ret_ch);
int link_accept(struct link *l, uint32_t ch, const struct buf *fields); /* NULL: no fields */
int link_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct buf *fields);

/* Sends as much as credit and output allow and returns how much: 0 to n, or -errno. */
ssize_t link_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n);
int link_eof(struct link *l, uint32_t ch, unsigned int stream);

/* The caller has passed on `n` bytes of DATA: returns that much credit to the other side. */
int link_consumed(struct link *l, uint32_t ch, unsigned int stream, size_t n);

/*
 * Closes a channel; text may be NULL, and is shortened and made UTF-8 if needed. No callbacks of
 * this channel follow. Does nothing if the channel is gone.
 */
int link_close(struct link *l, uint32_t ch, enum wire_code code, const char *text);

/* How much DATA may be sent on a stream now; 0 after EOF and if the channel is not open. */
size_t link_credit(const struct link *l, uint32_t ch, unsigned int stream);

/* A pointer stored with the channel. */
void *link_cookie(const struct link *l, uint32_t ch);
void link_set_cookie(struct link *l, uint32_t ch, void *cookie);

/* Number of channels that are not gone. */
size_t link_channels(const struct link *l);

static inline void cleanup_link(struct link **l)
{
	(void)link_free(*l);
}

#define _cleanup_link_ _cleanup_(cleanup_link)
