/* SPDX-License-Identifier: Apache-2.0 */
/* The sandbox's chain of the audit log. */
#pragma once

#include <sodium.h>

#include "audit/audit.h"
#include "wire/wire.h"

struct keeper;
struct relay;

enum {
	JOURNAL_HASH = 32, /* BLAKE2b, bytes */
};

#define JOURNAL_HASHED (UINT64_C(64) << 20) /* at most this many bytes of input are hashed */

struct journal {
	struct audit_chain *chain; /* NULL or without a file: auditing is off */
	uint64_t operations;	   /* file operations so far */
	uint64_t lost;		   /* outcomes not written since the last record */
	uint64_t dirty_until;	   /* no NOTE_DIRTY is sent before then */
	int error;		   /* errno of the last write, negative; 0: it worked */
	bool asked;		   /* the next file was asked for */
};

/* A relay's operation in the journal. */
struct entry {
	bool open; /* the request is recorded, its outcome is not */
	uint64_t number, bytes;
	crypto_generichash_state hash; /* over the client's input */
};

/* Records the request `open` before the guest is asked. On an error it must not be asked. */
int journal_begin(struct relay *r, const struct buf *open);

/* Input, signals and limits of a recorded operation; ignored for operations without a record. */
void journal_data(struct relay *r, const void *data, size_t n);
void journal_signal(struct relay *r, uint64_t number);
void journal_limit(struct relay *r, const char *what);

/* Records the outcome of an operation, if its request was recorded. */
void journal_end(struct relay *r, enum wire_code code, const char *text);

/* Records other events: journal_append() before an action, which must not happen on an error;
 * journal_outcome() afterwards. */
int journal_append(struct keeper *k, enum audit_kind kind, struct audit_payload *p);
void journal_outcome(struct keeper *k, enum audit_kind kind, struct audit_payload *p);
void journal_tally(struct keeper *k, struct audit_tally *t, struct audit_payload *scratch);

bool journal_is_on(const struct keeper *k);

/* True if the log can be written. Tries again if the last write failed. */
bool journal_works(struct keeper *k);

/* The warden sent the next file, or none. Takes it if it returns true. */
bool journal_file(struct keeper *k, uint64_t number, const int *files, size_t n);
