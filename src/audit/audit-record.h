/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes and decodes one record: a header of fixed size and a payload. hutch-audit(5) has the
 * format. Pure: no system call, no allocation.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"

enum {
	AUDIT_HASH = 32, /* SHA-256 */
	AUDIT_BOOT = 16,
	AUDIT_HEADER = 152,
	AUDIT_PAYLOAD_MAX = 64 * 1024,
	AUDIT_RECORD_MAX = AUDIT_HEADER + AUDIT_PAYLOAD_MAX,
};

/* Numbers are stored in files: they never change, new ones are added. */
enum audit_kind {
	/* about the log itself */
	AUDIT_BEGIN = 1,      /* start of a chain; in the host chain also of a sandbox's chain */
	AUDIT_SEAL = 2,	      /* host chain: end of a sandbox's chain */
	AUDIT_CHECKPOINT = 3, /* host chain: a signature over everything before it */
	AUDIT_TORN = 4,	      /* half a record of a killed writer was removed */
	AUDIT_ROTATE = 5,     /* first record of a later file */
	AUDIT_DROPPED = 6,    /* host chain: files were removed because of the cap */
	/* about operations; an intent comes before its outcome */
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
	AUDIT_HTTP = 35,
	AUDIT_LLM = 36,
	AUDIT_OUTPUT = 37,
	AUDIT_API_KEY = 40, /* host chain; 38 and 39 are reserved for events of sandboxes */
	AUDIT_SECRET = 41,  /* host chain */
	AUDIT_KINDS
};

/* "exec-end"; NULL for an unknown number. */
const char *audit_kind_name(unsigned int i);

/* The end of a chain: its last record. All zero: empty. */
struct audit_head {
	uint64_t count; /* records so far, and the next sequence number */
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
 * Encodes `r` (kind, times, boot id and payload are set) as the record after `head`, and advances
 * `head`. The payload has at most AUDIT_PAYLOAD_MAX bytes. Returns the record's size.
 */
size_t audit_record_write(struct audit_head *head, const struct audit_record *r,
			  uint8_t out[static AUDIT_RECORD_MAX]);

/*
 * Reads and checks the first record in `n` bytes of a chain that continues `head`, and advances
 * `head`. Returns its size; 0 if the bytes are the start of a valid record that is incomplete
 * (being written, or its writer was killed); -EBADMSG with the reason in *ret_why.
 */
ssize_t audit_record_read(struct audit_head *head, const uint8_t *data, size_t n,
			  struct audit_record *ret, const char **ret_why);

/* Where a chain was before the record at `data`, by that record's own word. False: no whole header.
 */
bool audit_record_before(const uint8_t *data, size_t n, struct audit_head *ret);
