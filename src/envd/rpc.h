/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connect RPC with JSON, as E2B's envd speaks it: one message for another, or a stream of messages
 * in envelopes. Errors of a stream travel in its last envelope, behind status 200; those of a
 * single message in the status and a code in words.
 */
#pragma once

#include "api/request.h"

enum rpc_code {
	RPC_CANCELED,
	RPC_UNKNOWN,
	RPC_INVALID_ARGUMENT,
	RPC_DEADLINE_EXCEEDED,
	RPC_NOT_FOUND,
	RPC_ALREADY_EXISTS,
	RPC_PERMISSION_DENIED,
	RPC_RESOURCE_EXHAUSTED,
	RPC_FAILED_PRECONDITION,
	RPC_ABORTED,
	RPC_UNIMPLEMENTED,
	RPC_INTERNAL,
	RPC_UNAVAILABLE,
	RPC_UNAUTHENTICATED,
	RPC_CODE_MAX,
};

enum {
	RPC_HEADER = 5,			/* of an envelope: flags, length */
	RPC_OUT_MAX = 16 * 1024 * 1024, /* of messages that are put together before they are sent */
	RPC_USER_MAX = 64,
};

#define RPC_JSON   "application/json"
#define RPC_STREAM "application/connect+json"

/* Reads the one message of the request into r->body: a JSON object, in an envelope if the content
 * type says so (then r is a stream from here on). What is wrong is answered and ends it. */
void rpc_read(struct request *r, void (*have)(struct request *r));

/* The same for a method whose answer is a stream: a request that is none gets 415. */
void rpc_read_stream(struct request *r, void (*have)(struct request *r));

/* For a method that reads its messages itself: r is a stream from here on. False: it was none, or
 * there is no memory, and r has ended. */
bool rpc_begin_stream(struct request *r);

/*
 * The user that the field Authorization names, "" without one. -EINVAL: it is there and not Basic
 * with a name of 1 to RPC_USER_MAX bytes.
 */
int rpc_user(const struct request *r, char user[static RPC_USER_MAX + 1]);

/* What a keeper's or guest's code means to a client. */
enum rpc_code rpc_of_wire(enum wire_code code);

/* All of these but send end the request. A message is taken; NULL: out of memory. */
void rpc_answer(struct request *r, json_t *message);
void rpc_fail(struct request *r, enum rpc_code code, const char *fmt, ...) _printf_(3, 4);
/* The same with an error of a lower layer, as request_reason() shows it. */
void rpc_fail_err(struct request *r, enum rpc_code code, const struct err *e);
void rpc_send(struct request *r, json_t *message); /* begins the stream with the first one */
void rpc_end(struct request *r);

/* Where the status has to say it, also of a stream that has not begun: 401. */
void rpc_fail_status(struct request *r, enum rpc_code code, const char *fmt, ...) _printf_(3, 4);

/*
 * Messages that somebody has written as text, and that go out together: kept until rpc_flush(), or
 * sent with what ends the stream. rpc_open() and rpc_close() go around what is appended to the
 * buffer between them; an error stays in it and cuts the stream later.
 */
struct buf *rpc_open(struct request *r);
void rpc_close(struct request *r);
void rpc_put(struct request *r, json_t *message); /* taken; NULL: out of memory */
size_t rpc_waiting(const struct request *r);	  /* bytes put and not flushed */
void rpc_flush(struct request *r);

/*
 * The clocks of a stream, from the fields of its request: Connect-Timeout-Ms ends it with
 * deadline_exceeded (expired(), if given, is called before), Keepalive-Ping-Interval has
 * `keepalive` sent after that long without a message. To be called when the stream begins.
 */
int rpc_clocks(struct request *r, const char *keepalive, void (*expired)(struct request *r));
/* Connect-Timeout-Ms, 0 without one. */
uint64_t rpc_timeout(const struct request *r);
