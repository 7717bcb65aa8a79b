/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests a stream from an HTTP proxy on a connected socket: CONNECT, RFC 9110. Reads exactly the
 * head of the answer from the socket; the bytes behind it are the server's.
 */
#pragma once

#include "base/buf.h"
#include "base/loop.h"
#include "http-lex/http-lex.h"
#include "names/rule.h"

enum {
	UPSTREAM_HEAD_MAX = 8192,
	UPSTREAM_TIMEOUT_MS = 15000, /* until the answer is complete */
	UPSTREAM_WHY_MAX = 64,
};

struct upstream {
	/*
	 * Called last: the socket, which the callee owns and which carries the stream; or -errno
	 * with the reason in `why`, which holds no bytes from the proxy. May free the upstream.
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
 * Starts. The caller has set done and arg, the rest is zero. 0: `fd` is taken; or -errno: the
 * caller still owns `fd`, and done() is not called.
 */
int upstream_start(struct upstream *u, struct loop *l, int fd, const struct target *t);

/* Stops without calling done(), and closes the socket; also allowed after the end. */
void upstream_stop(struct upstream *u);

/*
 * Reads the `n` bytes of an answer's head so far; `scan` starts zeroed. 0: more is needed; the
 * length of the head with its last line if the proxy has said yes; or -errno with `why`.
 */
ssize_t upstream_parse(struct http_scan *scan, const char *s, size_t n,
		       char why[static UPSTREAM_WHY_MAX]);
