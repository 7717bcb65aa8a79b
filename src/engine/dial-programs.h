/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of the dial guard. The kernel runs them for every socket that the keeper makes and
 * for each of its packets. They look up two entries in one trie, which dial-rules.c fills:
 *
 *	(DIAL_KIND, address)		kind of the address: one DIAL_* bit
 *	(protocol and port, address)	kinds that this port may reach: DIAL_* bits
 *
 * The longest prefix of the address wins in both, and the two values must share a bit. IPv4
 * addresses are stored as ::ffff:a.b.c.d. A missing entry denies. */
#pragma once

#include "base/buf.h"
#include "engine/bpf.h"

enum {
	DIAL_PUBLIC = 1,
	DIAL_PRIVATE = 2, /* ADDR_PRIVATE: allowed for names with /private */
	DIAL_SHARED = 4,  /* carrier-grade NAT */
	DIAL_NAMED = 8,	  /* loopback, link-local, reserved: only if a rule names the address */
	DIAL_NEVER = 16,  /* metadata, multicast, embedded IPv4: only for the host's own
			   * configuration */
	DIAL_HERE = 32,	  /* for ports: also through the loopback device, any address */

	DIAL_KIND = 1 << 24, /* never a dial_what(): a protocol has 8 bits */
	DIAL_KEY_BITS = 32,  /* bits before the address */
	DIAL_CODE_MAX = 4096 * sizeof(struct bpf_insn),
};

struct dial_key {
	uint32_t prefix; /* DIAL_KEY_BITS plus the address's prefix */
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
	void (*write)(struct buf *b, int map); /* appends the instructions */
};

enum {
	DIAL_PROGRAMS = 9
};
extern const struct dial_program dial_programs[DIAL_PROGRAMS];
