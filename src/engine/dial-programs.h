/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The programs of the dial guard, which the kernel runs for every socket that the keeper makes, and
 * for each of its packets. They ask one trie, which dial-rules.c fills:
 *
 *	(DIAL_KIND, address)		what kind of place it is: one DIAL_* bit
 *	(protocol and port, address)	which kinds may be reached there: DIAL_* bits
 *
 * Both are found by the longest prefix of the address, and both must have a bit in common. IPv4
 * addresses are in the trie as ::ffff:a.b.c.d. What is not found is denied.
 */
#pragma once

#include "base/buf.h"
#include "engine/bpf.h"

enum {
	DIAL_PUBLIC = 1,
	DIAL_PRIVATE = 2, /* ADDR_PRIVATE: names with /private may have such an address */
	DIAL_SHARED = 4,  /* carrier-grade NAT */
	DIAL_NAMED = 8,	  /* loopback, link-local, reserved: only where a rule names the address */
	DIAL_NEVER = 16,  /* metadata, multicast, embedded IPv4: only where the host's own
			     configuration names the address */
	DIAL_HERE = 32,	  /* of a port: also by the loopback device, whatever the address */

	DIAL_KIND = 1 << 24, /* no dial_what(): a protocol has 8 bits */
	DIAL_KEY_BITS = 32,  /* before the address */
	DIAL_CODE_MAX = 4096 * sizeof(struct bpf_insn),
};

struct dial_key {
	uint32_t prefix; /* DIAL_KEY_BITS and those of the address */
	uint32_t what;	 /* dial_what(), or DIAL_KIND */
	uint8_t addr[16];
};

/* IPPROTO_TCP or IPPROTO_UDP, and a port. */
static inline uint32_t dial_what(unsigned int protocol, uint16_t port)
{
	return protocol << 16 | port;
}

struct dial_program {
	const char *name;
	enum bpf_prog_type type;
	enum bpf_attach_type at;
	void (*write)(struct buf *b, int map); /* appends its instructions */
};

enum {
	DIAL_PROGRAMS = 9
};
extern const struct dial_program dial_programs[DIAL_PROGRAMS];
