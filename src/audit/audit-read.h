/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, exports and verifies the audit log. Its files are not trusted. */
#pragma once

#include "audit/audit-log.h"

enum {
	AUDIT_NAME_MAX = 64, /* file name with its NUL */
};

/* A file of the log, or a part of an export. */
struct audit_file {
	char name[AUDIT_NAME_MAX]; /* "host-00000003.log", "ID-00000000.log" */
	char id[AUDIT_ID_MAX + 1]; /* "" for the host chain */
	uint32_t number;
	uint64_t base, size;
};

/* All files: the host chain first, then by id; each chain in order. */
struct audit_set {
	int dir, sandboxes; /* borrowed from a log */
	int stream;	    /* an export, owned; else -EBADF */
	struct audit_file *files;
	size_t n;
	bool has_key;
	uint8_t key[AUDIT_PUBLIC]; /* as claimed by the directory or the export */
};

#define AUDIT_SET_INIT                                                \
	{                                                             \
		.dir = -EBADF, .sandboxes = -EBADF, .stream = -EBADF, \
	}
#define _cleanup_audit_set_ _cleanup_(audit_set_done)

/* Lists the current files, under the shared lock. */
int audit_set_open(const struct audit_log *l, struct audit_set *ret, struct err *e);

/* Opens an export, a regular file. Takes `fd`. */
int audit_set_import(int fd, struct audit_set *ret, struct err *e);
void audit_set_done(struct audit_set *s);

/* Writes the whole set to `out`. */
int audit_export(const struct audit_set *s, int out, struct err *e);

/* Reads the records of a chain, in order. */
struct audit_scan {
	const struct audit_set *set;
	size_t file, until; /* indexes of set->files */
	int fd;
	bool own_fd;
	uint64_t offset; /* next record's, in its file */
	struct audit_head head;
	uint64_t at; /* position of data[] in the file */
	size_t have;
	uint8_t data[2 * AUDIT_RECORD_MAX];
};

void audit_scan_init(struct audit_scan *s, const struct audit_set *set, size_t first, size_t until);
void audit_scan_done(struct audit_scan *s);

/* For a host chain whose first files are gone: trusts the first record's link to the past. */
int audit_scan_adopt(struct audit_scan *s);

/* 1 and a record (valid until the next call), 0 at the end, -EBADMSG with *ret_why, or -errno. A
 * torn record at the end of the last file counts as the end: *ret_torn is its size. */
int audit_scan_next(struct audit_scan *s, struct audit_record *ret, uint64_t *ret_torn,
		    const char **ret_why);

struct audit_report {
	uint64_t records, chains, checkpoints;
	uint64_t live, torn,
		missing; /* chains: not sealed, with a torn record, removed at the cap */
	bool from_gone;	 /* the record of the checkpoint `from` was removed at the cap */
	bool bad;	 /* verification failed; the first bad record: */
	char file[AUDIT_NAME_MAX];
	uint64_t seq, offset;
	char what[160];
};

/*
 * Verifies every record, every chain from its begin to its end as recorded in the host chain, every
 * signature with `key`, and that the host chain contains `from`, a checkpoint kept elsewhere (or
 * NULL). 0 and a report, also a bad one; or -errno if it could not read the set.
 */
int audit_verify(const struct audit_set *s, const uint8_t key[static AUDIT_PUBLIC],
		 const struct audit_mark *from, struct audit_report *ret, struct err *e);
