/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses of a name, asked of the host's resolvers with c-ares on our loop. Queries A and AAAA
 * for the name as it stands: no search list, no hosts file, no cache.
 *
 * resolver_new() reads /etc/resolv.conf and the kernel's random numbers; afterwards no file is
 * opened. Calls made later: socket, connect, sendto, recvfrom, writev, read, close.
 */
#pragma once

#include "addr.h"
#include "loop.h"
#include "rule.h"

enum {
	RESOLVE_ADDRS_MAX = 16, /* of each family; more are left out */
	RESOLVE_TRY_MS = 1000,	/* for one server, the first time */
	RESOLVE_TRIES = 2,	/* of each server */
	RESOLVE_DELAY_MS = 50,	/* for the other family, RFC 8305 section 3 */
	RESOLVE_TIMEOUT_MS = 6000,
	RESOLVE_AT_ONCE = 4096, /* lookups; -EBUSY beyond */
	RESOLVE_SERVERS_MAX = 8,
};

struct resolver;
struct lookup;

struct answer {
	const char *why; /* NULL, or what went wrong if there is no address */
	size_t n;
	struct addr v[2 * RESOLVE_ADDRS_MAX];
};

/* Called once, unless the lookup was cancelled. */
typedef void resolve_cb(void *arg, const struct answer *a);

/* `server`: "ADDRESS:PORT" to ask instead of what /etc/resolv.conf says; NULL as a rule. */
int resolver_new(struct loop *l, const char *server, struct resolver **ret, struct err *e);
struct resolver *resolver_free(struct resolver *r); /* every lookup is answered or cancelled */

/* The servers that resolver_new() would ask, at most RESOLVE_SERVERS_MAX: addresses with ports. */
int resolver_servers(const char *server, struct target ret[static RESOLVE_SERVERS_MAX],
		     size_t *ret_n, struct err *e);

/* Never calls back before it has returned. 0 or -errno; *ret is valid until the call or cancel. */
int resolve_start(struct resolver *r, const struct name *name, resolve_cb *cb, void *arg,
		  struct lookup **ret);
void resolve_cancel(struct lookup *l);

/* The addresses in one reply to a query for `family` (4 or 6), added to `a`. For the fuzzer, too.
 */
int resolve_parse(const unsigned char *reply, int n, int family, struct answer *a);
