/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to one keeper, shared by many concurrent operations on the caller's loop. hutchd and
 * `hutch mcp` use it; the command line uses a session for each command. Each operation is a call
 * with its own callbacks.
 *
 * Callbacks come from the loop only, never from inside a function called here. They may call any
 * function here, including peer_free() and peer_close() of their own call.
 */
#pragma once

#include "base/loop.h"
#include "wire/link.h"

struct peer;
struct call;

struct call_ops {
	void (*accepted)(struct call *c, const struct fields *f, void *arg);
	/* Uses our credit until peer_consumed(). NULL: data is dropped and its credit returned. */
	void (*data)(struct call *c, unsigned int stream, const char *data, size_t n, void *arg);
	void (*eof)(struct call *c, unsigned int stream, void *arg);
	void (*credit)(struct call *c, unsigned int stream, void *arg);
	void (*msg)(struct call *c, enum wire_msg kind, const struct fields *f, void *arg);
	/*
	 * Called once, last: how the other side closed the call (`text` may be ""), or WIRE_GONE if
	 * the connection ended. Not called after peer_close(). The text is untrusted: escape it.
	 * The call is freed afterwards.
	 */
	void (*closed)(struct call *c, enum wire_code code, const char *text, void *arg);
};

/* `fd` is a connection to a keeper's socket (sandbox_connect()); the peer owns it, also on failure.
 * ended(), if not NULL, is called after closed() of every call; only peer_free() is allowed from
 * then on. */
int peer_new(struct loop *loop, int fd, void (*ended)(struct peer *p, void *arg), void *arg,
	     struct peer **ret, struct err *e);
/* Drops all calls without closing them: their commands continue. */
struct peer *peer_free(struct peer *p);

/*
 * Starts an operation, with fields in the order of their tags, and passes trace_request() on.
 * -EINVAL with a message for invalid fields, -EAGAIN if too many operations are open, -EPIPE if the
 * connection has ended.
 */
int peer_call(struct peer *p, enum wire_op op, const struct buf *fields, const struct call_ops *ops,
	      void *arg, struct call **ret, struct err *e);

/* Sends as much as credit allows and returns how much, or -errno. credit() is called when there is
 * more credit.
 */
ssize_t peer_send(struct call *c, unsigned int stream, const void *data, size_t n);
void peer_eof(struct call *c, unsigned int stream);
void peer_msg(struct call *c, enum wire_msg kind, const struct buf *fields);
void peer_consumed(struct call *c, unsigned int stream, size_t n);

/* Ends a call from our side; a command that is not detached is killed. No callback follows. */
void peer_close(struct call *c);
