/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to one keeper, shared by many operations at once, on somebody's loop: what hutchd
 * and `hutch mcp` have, where the command line has a session for each command. Each operation is a
 * call, with callbacks of its own.
 *
 * Callbacks come from the loop only, never from inside a function called here. They may call
 * anything here, also peer_free() and peer_close() of the call that they are for.
 */
#pragma once

#include "link.h"
#include "loop.h"

struct peer;
struct call;

struct call_ops {
	void (*accepted)(struct call *c, const struct fields *f, void *arg);
	/* Counts against our credit until peer_consumed(). NULL: it is dropped, and credit given.
	 */
	void (*data)(struct call *c, unsigned int stream, const char *data, size_t n, void *arg);
	void (*eof)(struct call *c, unsigned int stream, void *arg);
	void (*credit)(struct call *c, unsigned int stream, void *arg);
	void (*msg)(struct call *c, enum wire_msg kind, const struct fields *f, void *arg);
	/*
	 * The end, once, and the last callback: how the other side closed it (`text` may be ""), or
	 * WIRE_GONE where the connection ended. Not called after peer_close(). The text is the
	 * other side's: escape it. The call is gone afterwards.
	 */
	void (*closed)(struct call *c, enum wire_code code, const char *text, void *arg);
};

/* `fd` is a connection to a keeper's socket (sandbox_connect()), and the peer's from here on, also
 * on failure. ended(), if not NULL, is called after every call has been told, and the peer may only
 * be freed then. */
int peer_new(struct loop *loop, int fd, void (*ended)(struct peer *p, void *arg), void *arg,
	     struct peer **ret, struct err *e);
/* Drops all calls without a word: their commands go on. */
struct peer *peer_free(struct peer *p);

/*
 * Asks for an operation, with fields in the order of their tags; trace_request() goes with them.
 * -EINVAL with a message for fields that break the rules, -EAGAIN when too many are open, -EPIPE
 * when the connection has ended.
 */
int peer_call(struct peer *p, enum wire_op op, const struct buf *fields, const struct call_ops *ops,
	      void *arg, struct call **ret, struct err *e);

/* Sends as much as credit allows; how much that was, or -errno. credit() tells when there is more.
 */
ssize_t peer_send(struct call *c, unsigned int stream, const void *data, size_t n);
void peer_eof(struct call *c, unsigned int stream);
void peer_msg(struct call *c, enum wire_msg kind, const struct buf *fields);
void peer_consumed(struct call *c, unsigned int stream, size_t n);

/* Ends a call from our side: a command that was not detached is killed. No callback follows. */
void peer_close(struct call *c);
