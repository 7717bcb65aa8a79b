/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses a proxy request, HTTP CONNECT (RFC 9110) or SOCKS5 (RFC 1928; user name and password of
 * RFC 1929 are read and ignored); the first byte decides which. Reads piece by piece in constant
 * memory: of HTTP it keeps only the first line.
 */
#pragma once

#include "base/buf.h"
#include "http-lex/http-lex.h"
#include "names/rule.h"

enum {
	FRONT_LINE_MAX = 3 + 255 + 255, /* the longest SOCKS5 message: a password */
	FRONT_HEAD_MAX = 16 * 1024,	/* HTTP, with all header fields */
	FRONT_REPLY_MAX = 768,
	FRONT_REASON_MAX = 200,
};

enum front_kind {
	FRONT_UNKNOWN, /* no byte yet */
	FRONT_CONNECT,
	FRONT_SOCKS5,
};

enum front_state {
	FRONT_MORE, /* needs more bytes */
	FRONT_DONE, /* `target` is set */
	FRONT_BAD,  /* `result` and `reason` say why; reply and close */
};

/* The result, as the program sees it. */
enum front_result {
	FRONT_OK,
	FRONT_DENIED,	   /* by the policy */
	FRONT_UNREACHABLE, /* no address, or no address answers */
	FRONT_REFUSED,
	FRONT_TIMEOUT,
	FRONT_BUSY,	   /* a budget or one of our limits */
	FRONT_MALFORMED,   /* cannot be parsed */
	FRONT_UNSUPPORTED, /* valid, but not supported: GET, BIND */
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
 * Consumes the bytes that belong to the request and returns how many: all `n`, unless the state
 * becomes FRONT_DONE or FRONT_BAD. Appends what must be sent at once (SOCKS5 method selection) to
 * `out`. `f` starts zeroed.
 */
size_t front_feed(struct front *f, const void *data, size_t n, struct buf *out);

/* Appends the final reply, at most FRONT_REPLY_MAX bytes; `reason` may be NULL. */
void front_put_reply(struct buf *b, enum front_kind kind, enum front_result result,
		     const char *reason);
