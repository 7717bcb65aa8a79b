/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connects to one of several addresses of a host: Happy Eyeballs, RFC 8305. IPv6 and IPv4 in turn,
 * IPv6 first; the next address is tried when the one before it has failed or has had a quarter of a
 * second. The first that answers is taken, the others are closed. Nothing but the addresses given
 * is ever dialled.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "addr.h"
#include "loop.h"

enum {
	DIAL_ADDRS_MAX = 8, /* tried at most */
	DIAL_AT_ONCE = 3,
	DIAL_STAGGER_MS = 250,
	DIAL_TIMEOUT_MS = 15000, /* for all of it */
};

struct dial;

struct dial_attempt {
	struct loop_fd src;
	uint8_t addr; /* index */
};

struct dial {
	/*
	 * The last call: a connected socket, which is the callee's, and the address it is connected
	 * to; or fd = -errno of the last failure, -EXDEV for an address of this host. The dial may
	 * be freed or used again in it.
	 */
	void (*done)(struct dial *d, int fd, const struct addr *a);
	void *arg;
	/*
	 * Refuses an address to which a socket got the same address of its own: that is this host.
	 */
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
 * Begins. done, arg and not_here are set, the rest is zero. 0, or -errno when no attempt could be
 * made: then done() is not called.
 */
int dial_start(struct dial *d, struct loop *l, const struct addr *v, size_t n, uint16_t port);

/* Gives up without a call of done(); also for one that has ended or was never started. */
void dial_stop(struct dial *d);
