/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between a sandbox's keeper and its hutch-filter, over SOCK_SEQPACKET: one message a
 * packet, a head and `n` bytes. Both programs are of one build. Each side checks what it receives;
 * the keeper trusts hutch-filter with nothing but the bytes that leave and the records of matches.
 *
 *	keeper to filter	FILTER_DATA with output of a stream; FILTER_END: no more comes
 *	filter to keeper	FILTER_DATA with bytes that may leave; FILTER_HIT with a rule's
 *name; FILTER_END, once for each FILTER_END, after everything else
 *
 * A stream begins with its first message. The warden has a socket of its own to hutch-filter. It
 * sends FILTER_CONFIG with a file: a memfd with JSON (filter/filter-config.h). The first packet on
 * that socket is a FILTER_CONFIG; later ones are for streams that begin after them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	FILTER_FD_WARDEN = 3, /* descriptors of hutch-filter when it starts */
	FILTER_FD_KEEPER = 4,
	FILTER_BYTES_MAX = 32 * 1024,
	FILTER_STREAMS_MAX = 4096,
	FILTER_CONFIG_MAX = 4 * 1024 * 1024,
	FILTER_RULE_NAME_MAX = 80,
	FILTER_COUNT_MAX = 1 << 30,
};

enum filter_kind {
	FILTER_DATA = 1,
	FILTER_END,
	FILTER_HIT,
	FILTER_CONFIG,
	FILTER_KINDS,
};

struct filter_head {
	uint32_t kind;
	uint32_t n; /* bytes after the head */
	uint64_t stream;
	uint32_t taken; /* FILTER_DATA to the keeper: input bytes that this message answers */
	uint32_t count; /* FILTER_HIT: matches */
	uint32_t late;	/* FILTER_HIT: matches of which a part had left before */
	uint32_t unused;
};

struct filter_packet {
	struct filter_head head;
	char bytes[FILTER_BYTES_MAX];
};

/* Bytes of the packet. */
static inline size_t filter_packet_size(const struct filter_packet *p)
{
	return sizeof(p->head) + p->head.n;
}

/*
 * Sends a packet by write(2), which a keeper's syscall filter allows. Never blocks: -EAGAIN;
 * -EPIPE: the other process has ended.
 */
int filter_send(int fd, const struct filter_packet *p);

/* Receives a packet and checks it. 0, -EAGAIN, -EPIPE (the other process has ended), -EBADMSG. */
int filter_receive(int fd, struct filter_packet *ret);

/* The packet with the file, from the warden. The receiver owns the file. */
int filter_send_config(int fd, int file);
int filter_receive_config(int fd, int *ret_file);
