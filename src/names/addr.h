/* SPDX-License-Identifier: Apache-2.0 */
/* IP addresses and networks as policies write them, and what kind of place an address is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

enum {
	ADDR_TEXT_MAX = 64
};

struct addr {
	uint8_t family; /* 4 or 6 */
	uint8_t prefix; /* 32 or 128 for one address */
	uint8_t bytes[16];
};

enum addr_class {
	ADDR_PUBLIC,
	ADDR_LOOPBACK,
	ADDR_PRIVATE, /* RFC 1918, unique local */
	ADDR_SHARED,  /* carrier-grade NAT, 100.64.0.0/10 */
	ADDR_LINK_LOCAL,
	ADDR_METADATA, /* cloud metadata services, also those in public ranges */
	ADDR_MULTICAST,
	ADDR_RESERVED, /* unspecified, documentation, benchmarking, future use */
	ADDR_EMBEDDED, /* IPv6 that carries an IPv4 address: mapped, NAT64, 6to4, Teredo */
	ADDR_CLASS_MAX,
};

/*
 * One spelling each: IPv4 as four decimal numbers without leading zeros, IPv6 as RFC 5952 writes
 * it, without brackets; "/N" behind either makes a network, whose host bits must be zero. Anything
 * else is -EINVAL.
 */
int addr_parse(const char *s, size_t n, struct addr *ret, struct err *e);

/* The canonical text; IPv6 in brackets, as in a rule. */
const char *addr_format(const struct addr *a, char out[static ADDR_TEXT_MAX]);

/*
 * Where an address belongs; a network belongs to the first special range that it touches, metadata
 * services first.
 */
enum addr_class addr_classify(const struct addr *a);
const char *addr_class_name(enum addr_class c);

/*
 * Row `i` of the table behind addr_classify(); false behind the last. Of the rows that hold an
 * address the one with the longest prefix counts; an address in none is public if it is of IPv4,
 * and else reserved.
 */
bool addr_class_row(size_t i, struct addr *ret, enum addr_class *ret_class);

/* True if `a` lies in network `net` of the same family. */
bool addr_within(const struct addr *a, const struct addr *net);

/* `a` with everything behind the first `prefix` bits cleared. */
struct addr addr_network(const struct addr *a, uint8_t prefix);
