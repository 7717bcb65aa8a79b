/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program says to a proxy before the bytes that are its own: HTTP CONNECT (RFC 9110) or
 * SOCKS5 (RFC 1928; a user name and a password, RFC 1929, are read and mean nothing), told apart by
 * the first byte. Read piece by piece, in constant memory: of HTTP only the first line is kept.
 */
#pragma once

#include "buf.h"
#include "http-lex.h"
#include "rule.h"

enum {
	FRONT_LINE_MAX = 3 + 255 + 255, /* the longest message of SOCKS5: a password */
	FRONT_HEAD_MAX = 16 * 1024,	/* of HTTP, with all header fields */
	FRONT_REPLY_MAX = 768,
	FRONT_REASON_MAX = 200,
};

enum front_kind {
	FRONT_UNKNOWN, /* no byte came yet */
	FRONT_CONNECT,
	FRONT_SOCKS5,
};

enum front_state {
	FRONT_MORE, /* wants more bytes */
	FRONT_DONE, /* `target` is what they want */
	FRONT_BAD,  /* `result` and `reason` say why; to be told and closed */
};

/* How it went, for the program that asked. */
enum front_result {
	FRONT_OK,
	FRONT_DENIED,	   /* by the policy */
	FRONT_UNREACHABLE, /* no address, or none that answers */
	FRONT_REFUSED,
	FRONT_TIMEOUT,
	FRONT_BUSY,	   /* a budget or our own limits */
	FRONT_MALFORMED,   /* not understood */
	FRONT_UNSUPPORTED, /* understood, and not done by us: GET, BIND */
	FRONT_RESULT_MAX,
};

struct front {
	enum front_kind kind;
	enum front_state state;
	enum front_result result;
	const char *reason;
	struct target target;
	/* private */
	unsigned int step;     /* of SOCKS5 */
	struct http_scan scan; /* of HTTP */
	size_t n;	       /* bytes in `line` */
	uint8_t line[FRONT_LINE_MAX];
};

/*
 * Takes as many of the `n` bytes as belong to the head, and says how many: all of them but where
 * the state becomes FRONT_DONE or FRONT_BAD. What is to be said at once, a word of SOCKS5, is
 * appended to `out`. `f` starts zeroed.
 */
size_t front_feed(struct front *f, const void *data, size_t n, struct buf *out);

/* Appends the last word to the program, at most FRONT_REPLY_MAX bytes; `reason` may be NULL. */
void front_put_reply(struct buf *b, enum front_kind kind, enum front_result result,
		     const char *reason);
