/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connect RPC with JSON, as in E2B's envd: unary calls, or streams of messages in envelopes. A
 * stream reports an error in its last envelope, after status 200; a unary call by the status and a
 * code in words.
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
	RPC_HEADER = 5,			/* envelope header: flags, length */
	RPC_OUT_MAX = 16 * 1024 * 1024, /* size of collected messages */
	RPC_USER_MAX = 64,
};

#define RPC_JSON   "application/json"
#define RPC_STREAM "application/connect+json"

/* Reads the single message of the request into r->body: a JSON object, in an envelope if the
 * content type says so (then r is a stream from here on). Answers an invalid one, and ends it. */
void rpc_read(struct request *r, void (*have)(struct request *r));

/* The same for a method that answers with a stream: a unary request gets 415. */
void rpc_read_stream(struct request *r, void (*have)(struct request *r));

/* For a method that reads its messages itself: r is a stream from here on. False: r was not a
 * stream, or memory is short, and r has ended. */
bool rpc_begin_stream(struct request *r);

/*
 * Reads the user from the field Authorization, "" without one. -EINVAL: not Basic with a name of 1
 * to RPC_USER_MAX bytes.
 */
int rpc_user(const struct request *r, char user[static RPC_USER_MAX + 1]);

/* Converts a keeper's or guest's code for a client. */
enum rpc_code rpc_of_wire(enum wire_code code);

/* All of these except send end the request. They take the message; NULL: out of memory. */
void rpc_answer(struct request *r, json_t *message);
void rpc_fail(struct request *r, enum rpc_code code, const char *fmt, ...) _printf_(3, 4);
/* The same with an error of a lower layer, filtered by request_reason(). */
void rpc_fail_err(struct request *r, enum rpc_code code, const struct err *e);
void rpc_send(struct request *r, json_t *message); /* the first one begins the stream */
void rpc_end(struct request *r);

/* Reports the error by the HTTP status, also for a stream that has not begun: 401. */
void rpc_fail_status(struct request *r, enum rpc_code code, const char *fmt, ...) _printf_(3, 4);

/*
 * Messages that the caller writes as text and sends together: kept until rpc_flush() or the end of
 * the stream. The caller appends to the buffer between rpc_open() and rpc_close(); an error stays
 * in the buffer and cuts the stream later.
 */
struct buf *rpc_open(struct request *r);
void rpc_close(struct request *r);
void rpc_put(struct request *r, json_t *message); /* taken; NULL: out of memory */
size_t rpc_waiting(const struct request *r);	  /* bytes put and not flushed */
void rpc_flush(struct request *r);

/*
 * Starts the timers of a stream, from the fields of its request: Connect-Timeout-Ms ends it with
 * deadline_exceeded (after calling expired(), if given), Keepalive-Ping-Interval sends `keepalive`
 * after that long without a message. Call it when the stream begins.
 */
int rpc_clocks(struct request *r, const char *keepalive, void (*expired)(struct request *r));
/* Connect-Timeout-Ms, or 0. */
uint64_t rpc_timeout(const struct request *r);
