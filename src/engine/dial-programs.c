/* SPDX-License-Identifier: Apache-2.0 */
/* The BPF programs as instructions: the build needs only a C compiler, and no compiler comes
 * between the source and the code. Registers: r6 context, r7 protocol and port, r8 whether the
 * packet stays on this host, r9 kind of place. The stack holds, from the top, the trie's key and
 * the packet's headers.
 *
 * A program ends with "deny", unless an instruction before has allowed. Jumps to "deny" go forward
 * to the end; they are written with the offset TO_DENY and fixed up when the end is known. */
#include "engine/dial-programs.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

enum {
	KEY = -24, /* struct dial_key */
	KEY_WHAT = KEY + 4,
	KEY_ADDR = KEY + 8,
	HEADS = KEY - 48, /* 40 bytes of IPv6 header, and the ports */

	V4_HEADS = 24,
	V6_HEADS = 44,
	V4_FLAGS = 20 + 13, /* TCP flags */
	V6_FLAGS = 40 + 13,
	SYN_ACK = 0x12,
	SYN = 0x02,

	LOOPBACK_DEVICE = 1, /* in every network namespace */
	TO_DENY = -1,
};

static void put(struct buf *b, struct bpf_insn i)
{
	(void)buf_put(b, &i, sizeof(i));
}

/* clang-format off */
#define INSN(c, d, s, o, i) put(b, (struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (int16_t)(o), .imm = (i) })
#define MOV(d, s)           INSN(BPF_ALU64 | BPF_MOV | BPF_X, d, s, 0, 0)
#define SET(d, i)           INSN(BPF_ALU64 | BPF_MOV | BPF_K, d, 0, 0, i)
#define ADD(d, i)           INSN(BPF_ALU64 | BPF_ADD | BPF_K, d, 0, 0, i)
#define AND(d, i)           INSN(BPF_ALU64 | BPF_AND | BPF_K, d, 0, 0, i)
#define AND_REG(d, s)       INSN(BPF_ALU64 | BPF_AND | BPF_X, d, s, 0, 0)
#define OR(d, i)            INSN(BPF_ALU64 | BPF_OR | BPF_K, d, 0, 0, i)
#define OR_REG(d, s)        INSN(BPF_ALU64 | BPF_OR | BPF_X, d, s, 0, 0)
#define SHIFT_LEFT(d, i)    INSN(BPF_ALU64 | BPF_LSH | BPF_K, d, 0, 0, i)
#define TO_HOST16(d)        INSN(BPF_ALU | BPF_END | BPF_TO_BE, d, 0, 0, 16)
#define LOAD(size, d, s, o) INSN(BPF_LDX | BPF_MEM | (size), d, s, o, 0)
#define STORE(size, o, s)   INSN(BPF_STX | BPF_MEM | (size), BPF_REG_10, s, o, 0)
#define STORE_NUMBER(o, i)  INSN(BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0, o, i)
#define IF(op, d, i, o)     INSN(BPF_JMP | (op) | BPF_K, d, 0, o, i)
#define GO(o)               INSN(BPF_JMP | BPF_JA, 0, 0, o, 0)
#define CALL(f)             INSN(BPF_JMP | BPF_CALL, 0, 0, 0, f)
#define EXIT()              INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)
/* clang-format on */

/* Ends every program and fixes up the jumps to its end. */
static void put_end(struct buf *b)
{
	size_t n = b->len / sizeof(struct bpf_insn);
	struct bpf_insn *code = (struct bpf_insn *)(void *)b->data;

	if (b->err)
		return;
	for (size_t i = 0; i < n; i++)
		if (BPF_CLASS(code[i].code) == BPF_JMP && code[i].off == TO_DENY)
			code[i].off = (int16_t)(n - i - 1);
	SET(BPF_REG_0, 0);
	EXIT();
}

/* r0 = the entry for the key on the stack; denies if there is none. */
static void put_lookup(struct buf *b, int map)
{
	INSN(BPF_LD | BPF_DW | BPF_IMM, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map);
	INSN(0, 0, 0, 0, 0);
	MOV(BPF_REG_2, BPF_REG_10);
	ADD(BPF_REG_2, KEY);
	CALL(BPF_FUNC_map_lookup_elem);
	IF(BPF_JEQ, BPF_REG_0, 0, TO_DENY);
	LOAD(BPF_B, BPF_REG_0, BPF_REG_0, 0);
}

/* Expects the address in the key, and r7 and r8 set. */
static void put_verdict(struct buf *b, int map)
{
	STORE_NUMBER(KEY, DIAL_KEY_BITS + 128);
	STORE_NUMBER(KEY_WHAT, DIAL_KIND);
	put_lookup(b, map);
	MOV(BPF_REG_9, BPF_REG_0);
	STORE(BPF_W, KEY_WHAT, BPF_REG_7);
	put_lookup(b, map);
	AND_REG(BPF_REG_9, BPF_REG_0);
	IF(BPF_JEQ, BPF_REG_9, 0, TO_DENY);
	IF(BPF_JEQ, BPF_REG_8, 0, 2);
	AND(BPF_REG_0, DIAL_HERE);
	IF(BPF_JEQ, BPF_REG_0, 0, TO_DENY);
	SET(BPF_REG_0, 1);
	EXIT();
	put_end(b);
}

/* The first twelve bytes of ::ffff:a.b.c.d. */
static void put_mapped(struct buf *b)
{
	STORE_NUMBER(KEY_ADDR, 0);
	STORE_NUMBER(KEY_ADDR + 4, 0);
	STORE_NUMBER(KEY_ADDR + 8, (int32_t)htonl(0xffff));
}

/* ---- sockets ---- */

static void put_wanted(struct buf *b, int protocol)
{
	MOV(BPF_REG_6, BPF_REG_1);
	LOAD(BPF_W, BPF_REG_7, BPF_REG_6, offsetof(struct bpf_sock_addr, user_port));
	TO_HOST16(BPF_REG_7);
	OR(BPF_REG_7, protocol << 16);
	SET(BPF_REG_8, 0); /* only packets have a device */
}

static void put_v4_socket(struct buf *b, int map, int protocol)
{
	put_wanted(b, protocol);
	put_mapped(b);
	LOAD(BPF_W, BPF_REG_1, BPF_REG_6, offsetof(struct bpf_sock_addr, user_ip4));
	STORE(BPF_W, KEY_ADDR + 12, BPF_REG_1);
	put_verdict(b, map);
}

static void put_v6_socket(struct buf *b, int map, int protocol)
{
	put_wanted(b, protocol);
	for (int i = 0; i < 16; i += 4) {
		LOAD(BPF_W, BPF_REG_1, BPF_REG_6,
		     (int)offsetof(struct bpf_sock_addr, user_ip6) + i);
		STORE(BPF_W, KEY_ADDR + i, BPF_REG_1);
	}
	put_verdict(b, map);
}

/* UDP sockets may connect wherever TCP sockets may: connecting sends nothing, and shows which local
 * address the host would use (src/egress/dial.c). write_out() checks the packets. */
static void write_connect4(struct buf *b, int map)
{
	put_v4_socket(b, map, IPPROTO_TCP);
}

static void write_connect6(struct buf *b, int map)
{
	put_v6_socket(b, map, IPPROTO_TCP);
}

static void write_sendmsg4(struct buf *b, int map)
{
	put_v4_socket(b, map, IPPROTO_UDP);
}

static void write_sendmsg6(struct buf *b, int map)
{
	put_v6_socket(b, map, IPPROTO_UDP);
}

/* A keeper only dials and never binds. */
static void write_nothing(struct buf *b, int map)
{
	put_end(b);
}

/* Allows TCP and UDP: no raw sockets, no SCTP, no MPTCP, which opens connections on its own. */
static void write_socket(struct buf *b, int map)
{
	LOAD(BPF_W, BPF_REG_2, BPF_REG_1, offsetof(struct bpf_sock, type));
	LOAD(BPF_W, BPF_REG_3, BPF_REG_1, offsetof(struct bpf_sock, protocol));
	IF(BPF_JNE, BPF_REG_2, SOCK_STREAM, 2);
	IF(BPF_JEQ, BPF_REG_3, IPPROTO_TCP, 3);
	GO(TO_DENY);
	IF(BPF_JNE, BPF_REG_2, SOCK_DGRAM, TO_DENY);
	IF(BPF_JNE, BPF_REG_3, IPPROTO_UDP, TO_DENY);
	SET(BPF_REG_0, 1);
	EXIT();
	put_end(b);
}

/* ---- packets ---- */

/* Copies `n` bytes at `from` to the stack; denies a shorter packet. */
static void put_read(struct buf *b, int from, int n)
{
	MOV(BPF_REG_1, BPF_REG_6);
	SET(BPF_REG_2, from);
	MOV(BPF_REG_3, BPF_REG_10);
	ADD(BPF_REG_3, HEADS);
	SET(BPF_REG_4, n);
	CALL(BPF_FUNC_skb_load_bytes);
	IF(BPF_JNE, BPF_REG_0, 0, TO_DENY);
}

static void put_copy(struct buf *b, int from, int n)
{
	for (int i = 0; i < n; i += 4) {
		LOAD(BPF_W, BPF_REG_1, BPF_REG_10, HEADS + from + i);
		STORE(BPF_W, KEY_ADDR + 16 - n + i, BPF_REG_1);
	}
}

/* Sets r7 from the offsets of protocol and port in the headers. */
static void put_port(struct buf *b, int protocol, int port)
{
	LOAD(BPF_B, BPF_REG_7, BPF_REG_10, HEADS + protocol);
	SHIFT_LEFT(BPF_REG_7, 16);
	LOAD(BPF_H, BPF_REG_1, BPF_REG_10, HEADS + port);
	TO_HOST16(BPF_REG_1);
	OR_REG(BPF_REG_7, BPF_REG_1);
}

/* Denies IPv4 options, which can hold a source route with the real destination, and fragments,
 * since later ones have no ports. The keeper needs neither. */
static void put_plain_v4(struct buf *b)
{
	LOAD(BPF_B, BPF_REG_1, BPF_REG_10, HEADS);
	IF(BPF_JNE, BPF_REG_1, 0x45, TO_DENY);
	LOAD(BPF_H, BPF_REG_1, BPF_REG_10, HEADS + 6);
	TO_HOST16(BPF_REG_1);
	AND(BPF_REG_1, 0x3fff); /* more fragments, offset */
	IF(BPF_JNE, BPF_REG_1, 0, TO_DENY);
}

/* Starts a block for IPv4 packets; put_else() sets where other packets continue. */
static size_t put_if_v4(struct buf *b)
{
	put_read(b, 0, V4_HEADS);
	LOAD(BPF_B, BPF_REG_1, BPF_REG_10, HEADS);
	AND(BPF_REG_1, 0xf0);
	IF(BPF_JNE, BPF_REG_1, 0x40, 0);
	return b->len;
}

static void put_else(struct buf *b, size_t since)
{
	struct bpf_insn *code = (struct bpf_insn *)(void *)b->data;

	if (b->err)
		return;
	code[since / sizeof(*code) - 1].off = (int16_t)((b->len - since) / sizeof(*code));
}

static void put_v6(struct buf *b)
{
	put_read(b, 0, V6_HEADS);
	LOAD(BPF_B, BPF_REG_1, BPF_REG_10, HEADS);
	AND(BPF_REG_1, 0xf0);
	IF(BPF_JNE, BPF_REG_1, 0x60, TO_DENY);
}

static void put_context(struct buf *b)
{
	MOV(BPF_REG_6, BPF_REG_1);
	SET(BPF_REG_8, 0);
}

/* The final check: a packet leaves only if a rule allows its destination, however it was made. The
 * first IPv6 header must be followed by TCP or UDP: extension headers, which can hold a route,
 * match no entry. */
static void write_out(struct buf *b, int map)
{
	size_t v4, v6;

	put_context(b);
	LOAD(BPF_W, BPF_REG_1, BPF_REG_6, offsetof(struct __sk_buff, ifindex));
	IF(BPF_JNE, BPF_REG_1, LOOPBACK_DEVICE, 1);
	SET(BPF_REG_8, 1);
	v4 = put_if_v4(b);
	put_plain_v4(b);
	put_port(b, 9, 22);
	put_mapped(b);
	put_copy(b, 16, 4);
	GO(0);
	v6 = b->len;
	put_else(b, v4);
	put_v6(b);
	put_port(b, 6, 42);
	put_copy(b, 24, 16);
	put_else(b, v6);
	put_verdict(b, map);
}

/* Incoming packets: only those of connections that the keeper opened, and DNS answers. */
static void put_unless_syn(struct buf *b, int protocol, int flags)
{
	size_t other;

	LOAD(BPF_B, BPF_REG_1, BPF_REG_10, HEADS + protocol);
	IF(BPF_JNE, BPF_REG_1, IPPROTO_TCP, 0);
	other = b->len;
	put_read(b, flags, 1);
	LOAD(BPF_B, BPF_REG_1, BPF_REG_10, HEADS);
	AND(BPF_REG_1, SYN_ACK);
	IF(BPF_JEQ, BPF_REG_1, SYN, TO_DENY);
	SET(BPF_REG_0, 1);
	EXIT();
	put_else(b, other);
}

static void write_in(struct buf *b, int map)
{
	size_t v4, v6;

	put_context(b);
	v4 = put_if_v4(b);
	put_plain_v4(b);
	put_unless_syn(b, 9, V4_FLAGS);
	put_port(b, 9, 20);
	put_mapped(b);
	put_copy(b, 12, 4);
	GO(0);
	v6 = b->len;
	put_else(b, v4);
	put_v6(b);
	put_unless_syn(b, 6, V6_FLAGS);
	put_port(b, 6, 40);
	put_copy(b, 8, 16);
	put_else(b, v6);
	put_verdict(b, map);
}

#define ADDR(at) BPF_PROG_TYPE_CGROUP_SOCK_ADDR, BPF_CGROUP_##at
const struct dial_program dial_programs[DIAL_PROGRAMS] = {
	{ "hutch_out", BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_EGRESS, write_out },
	{ "hutch_in", BPF_PROG_TYPE_CGROUP_SKB, BPF_CGROUP_INET_INGRESS, write_in },
	{ "hutch_socket", BPF_PROG_TYPE_CGROUP_SOCK, BPF_CGROUP_INET_SOCK_CREATE, write_socket },
	{ "hutch_connect4", ADDR(INET4_CONNECT), write_connect4 },
	{ "hutch_connect6", ADDR(INET6_CONNECT), write_connect6 },
	{ "hutch_sendmsg4", ADDR(UDP4_SENDMSG), write_sendmsg4 },
	{ "hutch_sendmsg6", ADDR(UDP6_SENDMSG), write_sendmsg6 },
	{ "hutch_bind4", ADDR(INET4_BIND), write_nothing },
	{ "hutch_bind6", ADDR(INET6_BIND), write_nothing },
};
