/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks up the addresses of a name at the host's resolvers, with c-ares on our loop. Queries A and
 * AAAA for the name as given: no search list, no hosts file, no cache.
 *
 * resolver_new() reads /etc/resolv.conf and random numbers; later calls open no file. They use only
 * socket, connect, sendto, recvfrom, writev, read and close.
 */
#pragma once

#include "base/loop.h"
#include "names/addr.h"
#include "names/rule.h"

enum {
	RESOLVE_ADDRS_MAX = 16, /* per family; the rest is dropped */
	RESOLVE_TRY_MS = 1000,	/* per server, first try */
	RESOLVE_TRIES = 2,	/* per server */
	RESOLVE_DELAY_MS = 50,	/* wait for the other family, RFC 8305 section 3 */
	RESOLVE_TIMEOUT_MS = 6000,
	RESOLVE_AT_ONCE = 4096, /* lookups; -EBUSY beyond */
	RESOLVE_SERVERS_MAX = 8,
};

struct resolver;
struct lookup;

struct answer {
	const char *why; /* NULL, or why there is no address */
	size_t n;
	struct addr v[2 * RESOLVE_ADDRS_MAX];
};

/* Called once, unless the lookup was cancelled. */
typedef void resolve_cb(void *arg, const struct answer *a);

/* `server`: "ADDRESS:PORT" instead of /etc/resolv.conf; usually NULL. */
int resolver_new(struct loop *l, const char *server, struct resolver **ret, struct err *e);
struct resolver *resolver_free(struct resolver *r); /* no lookup may be waiting */

/* The servers that resolver_new() would use, at most RESOLVE_SERVERS_MAX: addresses with ports. */
int resolver_servers(const char *server, struct target ret[static RESOLVE_SERVERS_MAX],
		     size_t *ret_n, struct err *e);

/* Never calls back before it returns. 0 or -errno; *ret is valid until the callback or the cancel.
 */
int resolve_start(struct resolver *r, const struct name *name, resolve_cb *cb, void *arg,
		  struct lookup **ret);
void resolve_cancel(struct lookup *l);

/* Adds the addresses in one reply to a query for `family` (4 or 6) to `a`. Public for the fuzzer.
 */
int resolve_parse(const unsigned char *reply, int n, int family, struct answer *a);
