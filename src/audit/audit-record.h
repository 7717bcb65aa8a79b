/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One record, as bytes: a header of a fixed size and a payload. hutch-audit(5) has the table. Pure:
 * no system call, no allocation.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "util.h"

enum {
	AUDIT_HASH = 32, /* SHA-256 */
	AUDIT_BOOT = 16,
	AUDIT_HEADER = 152,
	AUDIT_PAYLOAD_MAX = 64 * 1024,
	AUDIT_RECORD_MAX = AUDIT_HEADER + AUDIT_PAYLOAD_MAX,
};

/* The numbers stand in files: they never change, new ones are added. */
enum audit_kind {
	/* of the log itself */
	AUDIT_BEGIN = 1,      /* a chain begins; in the host chain also: a sandbox's chain does */
	AUDIT_SEAL = 2,	      /* host chain: a sandbox's chain has ended here */
	AUDIT_CHECKPOINT = 3, /* host chain: a signature over everything before it */
	AUDIT_TORN = 4,	      /* half a record of a writer that was killed was taken away */
	AUDIT_ROTATE = 5,     /* the first record of a later file */
	AUDIT_DROPPED = 6,    /* host chain: files were removed, because of the cap */
	/* of what is done; intents first, outcomes behind them */
	AUDIT_CREATE = 16,
	AUDIT_POLICY = 17,
	AUDIT_START = 18,
	AUDIT_END = 19,
	AUDIT_EXEC = 20,
	AUDIT_EXEC_END = 21,
	AUDIT_SIGNAL = 22,
	AUDIT_LIMIT = 23,
	AUDIT_FILE_READ = 24,
	AUDIT_FILE_WRITE = 25,
	AUDIT_FILE_END = 26,
	AUDIT_EGRESS = 27,
	AUDIT_EGRESS_SUM = 28,
	AUDIT_IMAGE = 29,
	AUDIT_REFUSED = 30,
	AUDIT_KILL = 31,
	AUDIT_GC = 32,
	AUDIT_LIFE = 33,
	AUDIT_LIFE_END = 34,
	AUDIT_API_KEY = 40, /* host chain: 35 to 39 are left to what happens to sandboxes */
	AUDIT_KINDS
};

/* "exec-end"; NULL for a number that this version does not know. */
const char *audit_kind_name(unsigned int kind);

/* Where a chain has got to: the last record. All zero: nothing yet. */
struct audit_head {
	uint64_t count; /* records so far; the next one has this sequence number */
	uint8_t hash[AUDIT_HASH];
};

struct audit_record {
	unsigned int kind;
	uint64_t seq, wall, mono;
	uint8_t boot[AUDIT_BOOT], payload_hash[AUDIT_HASH], prev[AUDIT_HASH], hash[AUDIT_HASH];
	const char *payload; /* not NUL-terminated */
	size_t n_payload;
};

/*
 * Encodes `r` (kind, times, boot id and payload are given) as the record behind `head`, which is
 * moved on. The payload has at most AUDIT_PAYLOAD_MAX bytes. Returns its size.
 */
size_t audit_record_write(struct audit_head *head, const struct audit_record *r,
			  uint8_t out[static AUDIT_RECORD_MAX]);

/*
 * Reads the record at the beginning of `n` bytes of a chain that has got to `head`, checks all of
 * it, and moves `head` on. Gives its size; 0 if the bytes are the beginning of the right record and
 * end before it does (a writer is in the middle of it, or was killed there); -EBADMSG, and *ret_why
 * says what is wrong with it.
 */
ssize_t audit_record_read(struct audit_head *head, const uint8_t *data, size_t n,
			  struct audit_record *ret, const char **ret_why);

/* Where a chain was before the record at `data`, by that record's own word. False: no whole header.
 */
bool audit_record_before(const uint8_t *data, size_t n, struct audit_head *ret);
