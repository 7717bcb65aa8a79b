/* SPDX-License-Identifier: Apache-2.0 */
/* Parses, formats and classifies the IP addresses and networks of policies. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

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
	ADDR_METADATA, /* cloud metadata services, even in public ranges */
	ADDR_MULTICAST,
	ADDR_RESERVED, /* unspecified, documentation, benchmarking, future use */
	ADDR_EMBEDDED, /* IPv6 with an embedded IPv4 address: mapped, NAT64, 6to4, Teredo */
	ADDR_CLASS_MAX,
};

/*
 * Parses an address in its only accepted spelling: IPv4 as four decimal numbers without leading
 * zeros, IPv6 as in RFC 5952 without brackets. "/N" makes a network, whose host bits must be zero.
 * Anything else is -EINVAL.
 */
int addr_parse(const char *s, size_t n, struct addr *ret, struct err *e);

/* Writes the canonical text, with IPv6 in brackets as in a rule. */
const char *addr_format(const struct addr *a, char out[static ADDR_TEXT_MAX]);

/* Classifies an address; a network gets the class of the first special range that it overlaps. */
enum addr_class addr_classify(const struct addr *a);
const char *addr_class_name(enum addr_class i);

/*
 * Returns row `i` of addr_classify()'s table, or false past the end. If several rows contain an
 * address, the longest prefix wins. An address in no row is public (IPv4) or reserved (IPv6).
 */
bool addr_class_row(size_t i, struct addr *ret, enum addr_class *ret_class);

/* True if network `net` contains `a`, of the same family. */
bool addr_within(const struct addr *a, const struct addr *net);

/* Returns `a` with all bits after the first `prefix` cleared. */
struct addr addr_network(const struct addr *a, uint8_t prefix);
