/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The audit log: what was done, as records in hash chains on the host. hutch-audit(5) tells the
 * format and what is promised.
 *
 *   lock                      flock: exclusive to append to the host chain, shared to read it all
 *   key, key.pub              Ed25519, made by the first who opens the log
 *   host-NNNNNNNN.log         the host chain: life cycles, seals, checkpoints; any hutch process
 *                             appends to it under the lock
 *   sandbox/ID-NNNNNNNN.log   a sandbox's chain: one writer, which needs no right but to write to a
 *                             descriptor. Where it begins and where it ends are records of the host
 *                             chain, so nobody can take one away or cut it.
 *
 * The order is: an intent is appended, and only if that worked, done; then its outcome is appended.
 * A record is in the page cache when the call returns, so it outlives every process, and on disk
 * with the next audit_sync(), or 30 seconds later as the kernel does it.
 *
 * This header is for a chain's one writer, such as a keeper, which opens no file. audit-log.h opens
 * the log and appends to the host chain; audit-read.h reads and verifies it.
 */
#pragma once

#include "audit-record.h"
#include "buf.h"
#include "err.h"

enum {
	AUDIT_SANDBOX_FILE_MAX = 8 * 1024 * 1024, /* a file of a sandbox's chain is rotated here */
};

/* ---- payloads: one line of JSON, made of texts that are escaped for any reader ---- */

/* Values that must not be recorded: wherever a text has one in it, it says [redacted] instead. */
struct audit_secrets {
	const char *const *values;
	size_t n;
};

enum {
	AUDIT_TEXT_MAX = 4096, /* bytes of one text that are kept; then comes "..." */
	AUDIT_ARGS_MAX = 64,   /* arguments of a command that are kept */
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
 * Members, in the order of the calls. Control bytes, bidirectional and invisible marks, and what is
 * not UTF-8 become visible escapes (str_escape()). Errors stick to p->text.err and are told by
 * audit_append().
 */
void audit_put_text(struct audit_payload *p, const char *key, const char *s);
void audit_put_bytes(struct audit_payload *p, const char *key, const void *s, size_t n);
void audit_put_number(struct audit_payload *p, const char *key, uint64_t n);
void audit_put_hex(struct audit_payload *p, const char *key, const void *data, size_t n);

/*
 * A command: "argv" with as much of it as is kept, "argc" with how many there are, "argv_sha256"
 * over all of them, each with its NUL, secrets taken out before.
 */
void audit_put_argv(struct audit_payload *p, const char *const *argv, size_t n);

/* ---- a chain, for its one writer ---- */

struct audit_chain {
	int fd; /* O_WRONLY | O_APPEND; -EBADF: the log is switched off, and appending does nothing
		 */
	struct audit_head head;
	uint8_t boot[AUDIT_BOOT];
	uint32_t number;    /* of the file */
	uint64_t bytes;	    /* in the file */
	size_t n_out, done; /* of a record that a full disk has cut: what is still to be written */
	uint8_t out[AUDIT_RECORD_MAX];
};

#define AUDIT_CHAIN_INIT      \
	{                     \
		.fd = -EBADF, \
	}

void audit_chain_close(struct audit_chain *c);

/*
 * Appends a record. Calls write(2) and clock_gettime(2) only. On any error nothing may be done of
 * what the record says: -ENOSPC, -EIO and the like of write(2), -EFBIG when the file is full and no
 * other was given, -ENOBUFS or -ENOMEM of the payload. What was written of a record is completed by
 * the next call, so the chain stays whole (the record then tells of an intent that came to
 * nothing).
 */
int audit_append(struct audit_chain *c, enum audit_kind kind, const struct audit_payload *p);

/* True once a file of the chain should be followed by another (at half of its size). */
bool audit_chain_wants_file(const struct audit_chain *c);

/* Goes on in the file that audit_sandbox_next() has opened. The chain owns `fd` from then on. */
int audit_chain_switch(struct audit_chain *c, int fd);

/* ---- floods ---- */

enum {
	AUDIT_TALLY_KEYS = 32,
	AUDIT_TALLY_TEXT = 128,
	AUDIT_TALLY_SINGLE = 8, /* events in a window that get a record of their own */
};

#define AUDIT_TALLY_WINDOW UINT64_C(1000000000) /* ns */

/*
 * Events that can come in millions. The first few of a second are recorded one by one, the rest is
 * counted by kind and text, exactly, and recorded once, when the second is over. What does not fit
 * into the table is counted too, as "others". Pure: the clock is handed in.
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

/* True: the caller records this event itself. False: it has been counted. */
bool audit_tally_add(struct audit_tally *t, enum audit_kind kind, const char *text, uint64_t now);

/* When audit_tally_record() is to be called (clock_mono()); 0: there is nothing to record. */
uint64_t audit_tally_due(const struct audit_tally *t);

/*
 * Appends one record of kind `sum` with all counts: {"since": mono, "until": mono, "events": all of
 * them, "keys": [{"kind", "text", "count"}...], "others": n}; and starts anew. On an error the
 * counts stay, for the next try.
 */
int audit_tally_record(struct audit_tally *t, struct audit_chain *c, enum audit_kind sum,
		       uint64_t now, struct audit_payload *scratch);
