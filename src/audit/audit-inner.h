/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this directory share. */
#pragma once

#include "audit-read.h"

#define AUDIT_KEY    "key"
#define AUDIT_PUBKEY "key.pub"

/* Bytes of an id that can be part of a file's name. */
bool audit_id_valid(const char *id);

/* "host-00000003.log" (id ""), "ID-00000000.log"; and back, false for anything else. */
void audit_file_name(const char *id, uint32_t number, char out[static AUDIT_NAME_MAX]);
bool audit_file_parse(const char *name, struct audit_file *ret);

/* flock(2) on the log; released when *ret_fd is closed. */
int audit_lock(const struct audit_log *l, int how, struct err *e);
void audit_unlock(const struct audit_log *l);

/* With the lock held. */
int audit_host_locked(struct audit_log *l, enum audit_kind kind, const struct audit_payload *p,
		      struct err *e);
int audit_checkpoint_locked(struct audit_log *l, struct audit_mark *ret, struct err *e);
int audit_set_list(const struct audit_log *l, struct audit_set *ret, struct err *e);

/* Holds the log against its cap, if l->check says that it is time. -ENOSPC if nothing helps. */
int audit_gc_locked(struct audit_log *l, struct err *e);

int audit_key_make(const struct audit_log *l, struct err *e); /* unless it is there */
int audit_sign(const struct audit_log *l, const struct audit_head *head, struct audit_mark *ret,
	       struct err *e);
bool audit_mark_valid(const struct audit_mark *m);

/* The one member `key` of `n` bytes of text; false also if the text is no such object. */
bool audit_get_number(const char *text, size_t n, const char *key, uint64_t *ret);
bool audit_get_hex(const char *text, size_t n, const char *key, uint8_t *out, size_t bytes);
bool audit_get_id(const char *text, size_t n, char ret[static AUDIT_ID_MAX + 1]);
bool audit_get_mark(const char *text, size_t n, struct audit_mark *ret);

/* What the host chain says of a sandbox's chain. */
struct audit_life {
	char id[AUDIT_ID_MAX + 1];
	uint32_t number; /* the host chain's file with its beginning, where in it, which record */
	uint64_t offset, seq;
	uint8_t first[AUDIT_HASH], last[AUDIT_HASH];
	bool begun, sealed, dropped;
	uint64_t count, sealed_seq, dropped_seq;
};

/* A removed file of the host chain. */
struct audit_gone {
	uint64_t seq; /* of the record that says so */
	struct audit_head head;
};

struct audit_lives {
	struct audit_life *v; /* sorted by id after audit_lives_fold() */
	size_t n, cap;
	struct audit_gone *gone;
	size_t n_gone, cap_gone;
};

void audit_lives_done(struct audit_lives *l);

/* Takes in a record of the host chain. NULL, or what is wrong with it. -ENOMEM is told by *ret_r.
 */
const char *audit_lives_add(struct audit_lives *l, const struct audit_file *f, uint64_t offset,
			    const struct audit_record *rec, int *ret_r);

/* One entry for each id, sorted. NULL, or what is wrong with the entry *ret_at. */
const char *audit_lives_fold(struct audit_lives *l, size_t *ret_at);

static inline void cleanup_scan(struct audit_scan **s)
{
	if (*s)
		audit_scan_done(*s);
	free(*s);
}

#define _cleanup_scan_ _cleanup_(cleanup_scan)
