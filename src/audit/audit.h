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
 * An intent is appended first; only if that succeeds, the operation is done; then its outcome is
 * appended. A record is in the page cache when the call returns, so it survives the death of any
 * process; it is on disk after the next audit_sync(), or when the kernel writes it, after 30
 * seconds.
 */
#pragma once

#include "audit-record.h"
#include "buf.h"
#include "err.h"

enum {
	AUDIT_ID_MAX = 32,		  /* letters and digits of a sandbox's id */
	AUDIT_HOST_FILE_MAX = 256 * 1024, /* a file of the host chain is rotated at this size */
	AUDIT_SANDBOX_FILE_MAX = 8 * 1024 * 1024, /* a sandbox's file is rotated at this size */
	AUDIT_PUBLIC = 32,
	AUDIT_SIGNATURE = 64,
	AUDIT_NAME_MAX = 64, /* file name, with its NUL */
	AUDIT_PATH_MAX = 512,
};

#define AUDIT_DIR_MAX (UINT64_C(1024) * 1024 * 1024) /* bytes; $HUTCH_AUDIT_MAX */

/* ---- payloads: one line of JSON; texts are escaped for any reader ---- */

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
#define _cleanup_audit_chain_ _cleanup_(audit_chain_close)

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

/* ---- the log, for processes that may open files ---- */

struct audit_log {
	bool off;		  /* HUTCH_AUDIT=off: nothing is recorded, everything succeeds */
	int dir, sandboxes, lock; /* -EBADF when off */
	uint8_t boot[AUDIT_BOOT];
	uint64_t max; /* bytes */
	char path[AUDIT_PATH_MAX];
	/* private: the last known end of the host chain, where the next search starts */
	struct audit_head head;
	uint32_t number;
	uint64_t offset;
	bool check; /* it has grown: check the cap */
};

#define AUDIT_LOG_INIT                                                           \
	{                                                                        \
		.off = true, .dir = -EBADF, .sandboxes = -EBADF, .lock = -EBADF, \
	}
#define _cleanup_audit_log_ _cleanup_(audit_close)

/*
 * Opens the log, and creates the directory (0700) and the key if missing: $HUTCH_AUDIT_DIR, as root
 * /var/lib/hutch/audit, else $XDG_STATE_HOME/hutch/audit or ~/.local/state/hutch/audit. -EPERM if
 * other users have access. Call before entering a user namespace.
 */
int audit_open(struct audit_log *ret, struct err *e);
void audit_close(struct audit_log *l);

/* Appends to the host chain, under the lock, and rotates it. -ENOSPC also at the cap. */
int audit_host(struct audit_log *l, enum audit_kind kind, const struct audit_payload *p,
	       struct err *e);

/*
 * Starts a sandbox's chain: its first file with its first record, and a record of that in the host
 * chain. Fails if the log has reached its cap. *ret can go to an unprivileged process.
 */
int audit_sandbox_begin(struct audit_log *l, const char *id, struct audit_chain *ret,
			struct err *e);

/* Creates the next file of a running sandbox's chain (`number` is c->number + 1), for
 * audit_chain_switch().
 */
int audit_sandbox_next(struct audit_log *l, const char *id, uint32_t number, int *ret_fd,
		       struct err *e);

/*
 * Ends a sandbox's chain. Called when its writer is dead, by the warden or by the process that
 * cleans up after a killed warden. Reads the chain, replaces half a record of a killed writer by a
 * record of that, and writes the end of the chain to the host chain, with a checkpoint. 0 also if
 * that was done before, or the log has no such sandbox.
 */
int audit_sandbox_seal(struct audit_log *l, const char *id, struct err *e);

/* Has the chain begun without a seal? Only for the owner of the sandbox, since no other process
 * begins or seals it.
 */
bool audit_sandbox_open(const struct audit_log *l, const char *id);

/* Syncs the host chain and, if `c` is not NULL, a sandbox's chain. 0 or -errno. */
int audit_sync(struct audit_log *l, const struct audit_chain *c);

/* ---- checkpoints ---- */

struct audit_mark {
	uint64_t seq; /* covers the host chain up to and including this record */
	uint8_t hash[AUDIT_HASH], key[AUDIT_PUBLIC], signature[AUDIT_SIGNATURE];
};

/* Appends a checkpoint to the host chain and syncs; returns it in *ret, if not NULL. */
int audit_checkpoint(struct audit_log *l, struct audit_mark *ret, struct err *e);

/* Reads the output of `hutch audit checkpoint` and checks its signature. */
int audit_mark_read(const char *text, size_t n, struct audit_mark *ret, struct err *e);
int audit_mark_print(const struct audit_mark *m, struct buf *b);

int audit_public_key(const struct audit_log *l, uint8_t ret[static AUDIT_PUBLIC], struct err *e);

/* ---- reading; files are untrusted ---- */

/* A file of the log, or a part of an export. */
struct audit_file {
	char name[AUDIT_NAME_MAX]; /* "host-00000003.log", "ID-00000000.log" */
	char id[AUDIT_ID_MAX + 1]; /* "" for the host chain */
	uint32_t number;
	uint64_t base, size;
};

/* All files: those of the host chain first, then by id; each chain in order. */
struct audit_set {
	int dir, sandboxes; /* a log; borrowed */
	int stream;	    /* an export; owned; else -EBADF */
	struct audit_file *files;
	size_t n;
	bool has_key;
	uint8_t key[AUDIT_PUBLIC]; /* the key stored in the directory or the export */
};

#define AUDIT_SET_INIT                                                \
	{                                                             \
		.dir = -EBADF, .sandboxes = -EBADF, .stream = -EBADF, \
	}
#define _cleanup_audit_set_ _cleanup_(audit_set_done)

/* Lists the current files, under the shared lock. */
int audit_set_open(const struct audit_log *l, struct audit_set *ret, struct err *e);

/* Opens an export: a regular file. Takes ownership of `fd`. */
int audit_set_import(int fd, struct audit_set *ret, struct err *e);
void audit_set_done(struct audit_set *s);

/* Writes an export of everything to `out`. */
int audit_export(const struct audit_set *s, int out, struct err *e);

/* Reads the files of a chain record by record. */
struct audit_scan {
	const struct audit_set *set;
	size_t file, until; /* indexes into set->files */
	int fd;
	bool own_fd;
	uint64_t offset; /* next record in its file */
	struct audit_head head;
	uint64_t at; /* offset of data[] in the file */
	size_t have;
	uint8_t data[2 * AUDIT_RECORD_MAX];
};

void audit_scan_init(struct audit_scan *s, const struct audit_set *set, size_t first, size_t until);
void audit_scan_done(struct audit_scan *s);

/* For a host chain whose first files were removed: accepts the first record's claim about the end
 * before it.
 */
int audit_scan_adopt(struct audit_scan *s);

/* 1 and a record (valid until the next call), 0 at the end, -EBADMSG with *ret_why, or -errno. Half
 * a record at the end of the last file counts as the end: *ret_torn is its size. */
int audit_scan_next(struct audit_scan *s, struct audit_record *ret, uint64_t *ret_torn,
		    const char **ret_why);

struct audit_report {
	uint64_t records, chains, checkpoints;
	uint64_t live, torn, missing; /* chains that are not sealed, end in half a record, were
					 removed at the cap */
	bool from_gone; /* the records that the checkpoint covers were removed at the cap */
	bool bad;	/* the following fields describe the first bad record */
	char file[AUDIT_NAME_MAX];
	uint64_t seq, offset;
	char what[160];
};

/*
 * Verifies everything: every record, every chain from its beginning to its end as stated in the
 * host chain, every signature with `key`, and that the host chain contains `from`, a checkpoint
 * stored elsewhere (or NULL). 0 and a report, also a bad one; or -errno if it could not read.
 */
int audit_verify(const struct audit_set *s, const uint8_t key[static AUDIT_PUBLIC],
		 const struct audit_mark *from, struct audit_report *ret, struct err *e);
