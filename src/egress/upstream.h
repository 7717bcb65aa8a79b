/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks an HTTP proxy, to which a socket is connected, for a stream: CONNECT, RFC 9110. Takes
 * exactly the head of the answer from the socket, so that what follows is the server's first bytes.
 */
#pragma once

#include "buf.h"
#include "http-lex.h"
#include "loop.h"
#include "rule.h"

enum {
	UPSTREAM_HEAD_MAX = 8192,
	UPSTREAM_TIMEOUT_MS = 15000, /* until the answer is complete */
	UPSTREAM_WHY_MAX = 64,
};

struct upstream {
	/*
	 * The last call: the socket, which is the callee's and carries the stream; or -errno, and
	 * `why` in words that hold no bytes of the proxy's. The upstream may be freed in it.
	 */
	void (*done)(struct upstream *u, int fd);
	void *arg;
	char why[UPSTREAM_WHY_MAX];
	/* private */
	struct loop_fd src;
	struct loop_timer timer;
	struct buf head;
	struct http_scan scan;
};

/*
 * Begins. done and arg are set, the rest is zero. 0, and `fd` is taken; or -errno, `fd` stays the
 * caller's, and done() is not called.
 */
int upstream_start(struct upstream *u, struct loop *l, int fd, const struct target *t);

/* Gives up without a call of done(), and closes the socket; also for one that has ended. */
void upstream_stop(struct upstream *u);

/*
 * Reads the `n` bytes of an answer's head so far; `scan` starts zeroed. 0: more is needed; the
 * length of the head with its last line if the proxy has said yes; or -errno with `why`.
 */
ssize_t upstream_parse(struct http_scan *scan, const char *s, size_t n,
		       char why[static UPSTREAM_WHY_MAX]);
