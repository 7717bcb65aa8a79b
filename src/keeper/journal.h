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

#define JOURNAL_HASHED (UINT64_C(64) << 20) /* bytes of what a client sends */

struct journal {
	struct audit_chain *chain; /* NULL, or without a file: the log is off */
	uint64_t operations;	   /* on files, so far */
	uint64_t lost;		   /* outcomes that could not be written */
	uint64_t dirty_until;	   /* the warden knows that there is something to sync */
	int error;		   /* of the last try */
	bool asked;		   /* for the next file */
};

/* What a relay has in the journal. */
struct entry {
	bool open; /* its intent stands there, its outcome does not yet */
	uint64_t number, bytes;
	crypto_generichash_state hash; /* of what the client sends */
};

/* Records what the guest is about to be asked for, `open`. On an error it must not be asked. */
int journal_begin(struct relay *r, const struct buf *open);

/* What a client sends along. */
void journal_data(struct relay *r, const void *data, size_t n);
void journal_signal(struct relay *r, uint64_t number);
void journal_limit(struct relay *r, const char *what);

/* What came of it; nothing if nothing was recorded. */
void journal_end(struct relay *r, enum wire_code code, const char *text);

/* Records something else: before it is done, or when it has happened. */
int journal_append(struct keeper *k, enum audit_kind kind, struct audit_payload *p);
void journal_outcome(struct keeper *k, enum audit_kind kind, struct audit_payload *p);
void journal_tally(struct keeper *k, struct audit_tally *t, struct audit_payload *scratch);

bool journal_is_on(const struct keeper *k);

/* Could the last record be written? Tries again if not. */
bool journal_works(struct keeper *k);

/* The warden's answer: the next file. Takes it if it returns true. */
bool journal_file(struct keeper *k, uint64_t number, const int *files, size_t n);
