/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects to one of several addresses of a host: Happy Eyeballs, RFC 8305. Alternates IPv6 and
 * IPv4, IPv6 first; tries the next address when the one before has failed or 250 ms have passed.
 * Keeps the first connection and closes the others. Dials only the given addresses.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"
#include "names/addr.h"

enum {
	DIAL_ADDRS_MAX = 8, /* tried at most */
	DIAL_AT_ONCE = 3,
	DIAL_STAGGER_MS = 250,
	DIAL_TIMEOUT_MS = 15000, /* for all attempts together */
};

struct dial;

struct dial_attempt {
	struct loop_fd src;
	uint8_t addr; /* index */
};

struct dial {
	/*
	 * Called last: a connected socket, which the callee owns, and its address; or fd = -errno
	 * of the last failure, -EXDEV for an address of this host. May free or reuse the dial.
	 */
	void (*done)(struct dial *d, int fd, const struct addr *a);
	void *arg;
	/* Refuse addresses of this host: those equal to the socket's own source address. */
	bool not_here;
	/* private */
	struct loop *loop;
	struct addr addrs[DIAL_ADDRS_MAX];
	size_t n, next;
	uint16_t port;
	int last_err;
	struct dial_attempt attempts[DIAL_AT_ONCE];
	struct loop_timer stagger, timeout;
};

/*
 * Starts. The caller has set done, arg and not_here, the rest is zero. 0, or -errno if no attempt
 * could be made: then done() is not called.
 */
int dial_start(struct dial *d, struct loop *l, const struct addr *v, size_t n, uint16_t port);

/* Stops without calling done(); also allowed after the end or before the start. */
void dial_stop(struct dial *d);
