/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of this directory. */
#pragma once

#include "audit/audit-read.h"

#define AUDIT_KEY    "key"
#define AUDIT_PUBKEY "key.pub"

/* Can this id be part of a file name? */
bool audit_id_valid(const char *id);

/* Builds "host-00000003.log" (id "") or "ID-00000000.log"; and parses it, false for other names. */
void audit_file_name(const char *id, uint32_t number, char out[static AUDIT_NAME_MAX]);
bool audit_file_parse(const char *name, struct audit_file *ret);

/* flock(2) on the log, until audit_unlock(). */
int audit_lock(const struct audit_log *l, int how, struct err *e);
void audit_unlock(const struct audit_log *l);

/* Call with the lock held. */
int audit_host_locked(struct audit_log *l, enum audit_kind kind, const struct audit_payload *p,
		      struct err *e);
int audit_checkpoint_locked(struct audit_log *l, struct audit_mark *ret, struct err *e);
int audit_set_list(const struct audit_log *l, struct audit_set *ret, struct err *e);

/* Enforces the log's cap, if l->check asks for it. -ENOSPC if nothing more can be removed. */
int audit_gc_locked(struct audit_log *l, struct err *e);

int audit_key_make(const struct audit_log *l, struct err *e); /* unless it exists */
int audit_sign(const struct audit_log *l, const struct audit_head *head, struct audit_mark *ret,
	       struct err *e);
bool audit_mark_valid(const struct audit_mark *m);

/* Read the member `key` of an object in `n` bytes of text; false if the object is invalid. */
bool audit_get_number(const char *text, size_t n, const char *key, uint64_t *ret);
bool audit_get_hex(const char *text, size_t n, const char *key, uint8_t *out, size_t bytes);
bool audit_get_id(const char *text, size_t n, char ret[static AUDIT_ID_MAX + 1]);
bool audit_get_mark(const char *text, size_t n, struct audit_mark *ret);

/* A sandbox's chain, as the host chain describes it. */
struct audit_life {
	char id[AUDIT_ID_MAX + 1];
	uint32_t number; /* the beginning: file of the host chain, offset in it, record */
	uint64_t offset, seq;
	uint8_t first[AUDIT_HASH], last[AUDIT_HASH];
	bool begun, sealed, dropped;
	uint64_t count, sealed_seq, dropped_seq;
};

/* A removed file of the host chain. */
struct audit_gone {
	uint64_t seq; /* the record about it */
	struct audit_head head;
};

struct audit_lives {
	struct audit_life *v; /* sorted by id after audit_lives_fold() */
	size_t n, cap;
	struct audit_gone *gone;
	size_t n_gone, cap_gone;
};

void audit_lives_done(struct audit_lives *l);

/* Adds a record of the host chain. NULL, or the fault; *ret_r is -ENOMEM or 0. */
const char *audit_lives_add(struct audit_lives *l, const struct audit_file *f, uint64_t offset,
			    const struct audit_record *rec, int *ret_r);

/* Merges the entries of each id and sorts them. NULL, or the fault of the entry *ret_at. */
const char *audit_lives_fold(struct audit_lives *l, size_t *ret_at);

static inline void cleanup_scan(struct audit_scan **s)
{
	if (*s)
		audit_scan_done(*s);
	free(*s);
}

#define _cleanup_scan_ _cleanup_(cleanup_scan)
