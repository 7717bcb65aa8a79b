/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit log: records of all operations in hash chains on the host. hutch-audit(5) describes the
 * format and the guarantees.
 *
 *   lock                      flock: exclusive to append to the host chain, shared to read
 *   key, key.pub              Ed25519, created by the first process that opens the log
 *   host-NNNNNNNN.log         the host chain: life cycles, seals, checkpoints; any hutch process
 *                             appends to it under the lock
 *   sandbox/ID-NNNNNNNN.log   a sandbox's chain: one writer, which needs only a writable
 *                             descriptor. The host chain records where it begins and ends, so
 *                             removing or truncating one is detected.
 *
 * The order is: an intent is appended, and only if that worked, done; then its outcome is appended.
 * A record is in the page cache when the call returns, so it outlives every process, and on disk
 * with the next audit_sync(), or 30 seconds later as the kernel does it.
 *
 * This header is for a chain's one writer, such as a keeper, which opens no file. audit-log.h opens
 * the log and appends to the host chain; audit-read.h reads and verifies it.
 */
#pragma once

#include "audit/audit-record.h"
#include "base/buf.h"
#include "base/err.h"

enum {
	AUDIT_SANDBOX_FILE_MAX = 8 * 1024 * 1024, /* a file of a sandbox's chain is rotated here */
};

/* ---- payloads: one line of JSON, made of texts that are escaped for any reader ---- */

/* Values that must not be recorded: replaced by [redacted] in every text. */
struct audit_secrets {
	const char *const *values;
	size_t n;
};

enum {
	AUDIT_TEXT_MAX = 4096, /* longest text recorded; then comes "..." */
	AUDIT_ARGS_MAX = 64,   /* maximum number of arguments recorded */
	AUDIT_ARGS_BYTES = 16 * 1024,
};

struct audit_payload {
	struct buf text;
	const struct audit_secrets *secrets; /* or NULL */
};

#define AUDIT_PAYLOAD_INIT(hidden)                                       \
	{                                                                \
		.text = BUF_INIT(AUDIT_PAYLOAD_MAX), .secrets = (hidden) \
	}
#define _cleanup_audit_payload_ _cleanup_(audit_payload_done)

void audit_payload_done(struct audit_payload *p);
void audit_payload_reset(struct audit_payload *p);

/*
 * Add members, in the order of the calls. Control bytes, bidirectional and invisible marks, and
 * invalid UTF-8 become visible escapes (str_escape()). Errors stay in p->text.err; audit_append()
 * returns them.
 */
void audit_put_text(struct audit_payload *p, const char *key, const char *s);
void audit_put_bytes(struct audit_payload *p, const char *key, const void *s, size_t n);
void audit_put_number(struct audit_payload *p, const char *key, uint64_t n);
void audit_put_hex(struct audit_payload *p, const char *key, const void *data, size_t n);

/*
 * Adds a command: "argv" with the recorded part, "argc" with the number of arguments, and
 * "argv_sha256" over all arguments with their NULs, after redaction.
 */
void audit_put_argv(struct audit_payload *p, const char *const *argv, size_t n);

/* ---- a chain, for its only writer ---- */

struct audit_chain {
	int fd; /* O_WRONLY | O_APPEND; -EBADF: the log is off, and appending does nothing */
	struct audit_head head;
	uint8_t boot[AUDIT_BOOT];
	uint32_t number;    /* number of the file */
	uint64_t bytes;	    /* size of the file */
	size_t n_out, done; /* rest of a record that a full disk cut off: still to be written */
	uint8_t out[AUDIT_RECORD_MAX];
};

#define AUDIT_CHAIN_INIT      \
	{                     \
		.fd = -EBADF, \
	}

void audit_chain_close(struct audit_chain *c);

/*
 * Appends a record. Calls only write(2) and clock_gettime(2). After an error the caller must not do
 * what the record says: errors of write(2) such as -ENOSPC and -EIO, -EFBIG if the file is full and
 * there is no next one, -ENOBUFS or -ENOMEM of the payload. The next call completes a partly
 * written record, so the chain stays valid (that record then names an intent that was not carried
 * out).
 */
int audit_append(struct audit_chain *c, enum audit_kind kind, const struct audit_payload *p);

/* True if the chain should get its next file (at half of the maximum size). */
bool audit_chain_wants_file(const struct audit_chain *c);

/* Continues in the file from audit_sandbox_next(). The chain owns `fd` from then on. */
int audit_chain_switch(struct audit_chain *c, int fd);

/* ---- floods ---- */

enum {
	AUDIT_TALLY_KEYS = 32,
	AUDIT_TALLY_TEXT = 128,
	AUDIT_TALLY_SINGLE = 8, /* events per window that get their own record */
};

#define AUDIT_TALLY_WINDOW UINT64_C(1000000000) /* ns */

/*
 * Events that may occur in millions. The first few per second are recorded one by one; the rest is
 * counted exactly, by kind and text, and recorded once when the second is over. Events that do not
 * fit into the table are counted as "others". Pure: the caller passes the time.
 */
struct audit_tally {
	struct {
		unsigned int kind;
		char text[AUDIT_TALLY_TEXT];
		uint64_t count;
	} keys[AUDIT_TALLY_KEYS];
	size_t n_keys;
	unsigned int single;
	uint64_t others, counted, since; /* clock_mono() of the window's first event; 0: none */
};

/* True: the caller records this event itself. False: it was counted. */
bool audit_tally_add(struct audit_tally *t, enum audit_kind kind, const char *text, uint64_t now);

/* When to call audit_tally_record() (clock_mono()); 0: nothing to record. */
uint64_t audit_tally_due(const struct audit_tally *t);

/*
 * Appends one record of kind `sum` with all counts: {"since": mono, "until": mono, "events": total,
 * "keys": [{"kind", "text", "count"}...], "others": n}; then starts over. After an error the counts
 * stay for the next call.
 */
int audit_tally_record(struct audit_tally *t, struct audit_chain *c, enum audit_kind sum,
		       uint64_t now, struct audit_payload *scratch);
