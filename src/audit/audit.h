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
 */
#pragma once

#include "audit-record.h"
#include "buf.h"
#include "err.h"

enum {
	AUDIT_ID_MAX = 32,			  /* letters and digits of a sandbox's id */
	AUDIT_HOST_FILE_MAX = 256 * 1024,	  /* a file of the host chain is rotated here */
	AUDIT_SANDBOX_FILE_MAX = 8 * 1024 * 1024, /* so is a sandbox's */
	AUDIT_PUBLIC = 32,
	AUDIT_SIGNATURE = 64,
	AUDIT_NAME_MAX = 64, /* of a file, with its NUL */
	AUDIT_PATH_MAX = 512,
};

#define AUDIT_DIR_MAX                                                              \
	(UINT64_C(1024) * 1024 * 1024) /* bytes in the directory; $HUTCH_AUDIT_MAX \
					*/

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

/* ---- the log, for whoever may open files ---- */

struct audit_log {
	bool off;		  /* HUTCH_AUDIT=off: nothing is recorded, everything succeeds */
	int dir, sandboxes, lock; /* -EBADF when off */
	uint8_t boot[AUDIT_BOOT];
	uint64_t max; /* bytes */
	char path[AUDIT_PATH_MAX];
	/* private: the end of the host chain as it was last seen, to begin looking from there */
	struct audit_head head;
	uint32_t number;
	uint64_t offset;
	bool check; /* it has grown: is it over the cap? */
};

#define AUDIT_LOG_INIT                                                           \
	{                                                                        \
		.off = true, .dir = -EBADF, .sandboxes = -EBADF, .lock = -EBADF, \
	}
#define _cleanup_audit_log_ _cleanup_(audit_close)

/*
 * Opens the log, and makes the directory (0700) and the key if they are not there:
 * $HUTCH_AUDIT_DIR, as root /var/lib/hutch/audit, else $XDG_STATE_HOME/hutch/audit or
 * ~/.local/state/hutch/audit. -EPERM if it is not ours alone. To be called before a user namespace
 * is entered.
 */
int audit_open(struct audit_log *ret, struct err *e);
void audit_close(struct audit_log *l);

/* Appends to the host chain, under the lock, and rotates it. -ENOSPC also at the cap. */
int audit_host(struct audit_log *l, enum audit_kind kind, const struct audit_payload *p,
	       struct err *e);

/*
 * Begins the chain of a sandbox: its first file with its first record, and the record of that in
 * the host chain. Fails if the log has reached its cap. *ret can go to a process without rights.
 */
int audit_sandbox_begin(struct audit_log *l, const char *id, struct audit_chain *ret,
			struct err *e);

/* The next file of a running sandbox's chain (`number` is c->number + 1), for audit_chain_switch().
 */
int audit_sandbox_next(struct audit_log *l, const char *id, uint32_t number, int *ret_fd,
		       struct err *e);

/*
 * The end of a sandbox's chain: called when its writer is dead, by the warden or by whoever takes
 * back what a killed one left. Reads the chain, replaces half a record of a killed writer by a
 * record of that, and writes where it ends into the host chain, with a checkpoint. 0 also if that
 * was done before, or the log has no such sandbox.
 */
int audit_sandbox_seal(struct audit_log *l, const char *id, struct err *e);

/* It has begun and has no seal yet. For those who own the sandbox: nobody else begins or seals it.
 */
bool audit_sandbox_open(const struct audit_log *l, const char *id);

/* To disk: the host chain and, if `c` is not NULL, a sandbox's. 0 or -errno. */
int audit_sync(struct audit_log *l, const struct audit_chain *c);

/* ---- checkpoints ---- */

struct audit_mark {
	uint64_t seq; /* the host chain up to and with this record */
	uint8_t hash[AUDIT_HASH], key[AUDIT_PUBLIC], signature[AUDIT_SIGNATURE];
};

/* Appends a checkpoint to the host chain, and syncs; *ret, if not NULL, is what it says. */
int audit_checkpoint(struct audit_log *l, struct audit_mark *ret, struct err *e);

/* Reads the text that `hutch audit checkpoint` prints, and checks its signature. */
int audit_mark_read(const char *text, size_t n, struct audit_mark *ret, struct err *e);
int audit_mark_print(const struct audit_mark *m, struct buf *b);

int audit_public_key(const struct audit_log *l, uint8_t ret[static AUDIT_PUBLIC], struct err *e);

/* ---- reading; files are not trusted ---- */

/* A file of the log, or a part of an export. */
struct audit_file {
	char name[AUDIT_NAME_MAX]; /* "host-00000003.log", "ID-00000000.log" */
	char id[AUDIT_ID_MAX + 1]; /* "" for the host chain */
	uint32_t number;
	uint64_t base, size;
};

/* All files: those of the host chain first, then by id; each chain in its order. */
struct audit_set {
	int dir, sandboxes; /* of a log, borrowed */
	int stream;	    /* of an export, owned; else -EBADF */
	struct audit_file *files;
	size_t n;
	bool has_key;
	uint8_t key[AUDIT_PUBLIC]; /* what the directory or the export says is its key */
};

#define AUDIT_SET_INIT                                                \
	{                                                             \
		.dir = -EBADF, .sandboxes = -EBADF, .stream = -EBADF, \
	}
#define _cleanup_audit_set_ _cleanup_(audit_set_done)

/* What there is now, under the shared lock. */
int audit_set_open(const struct audit_log *l, struct audit_set *ret, struct err *e);

/* An export: a regular file. Takes `fd` over. */
int audit_set_import(int fd, struct audit_set *ret, struct err *e);
void audit_set_done(struct audit_set *s);

/* Writes all of it to `out`. */
int audit_export(const struct audit_set *s, int out, struct err *e);

/* Reads a chain's files one record after the other. */
struct audit_scan {
	const struct audit_set *set;
	size_t file, until; /* of set->files */
	int fd;
	bool own_fd;
	uint64_t offset; /* of the next record in its file */
	struct audit_head head;
	uint64_t at; /* of data[] in the file */
	size_t have;
	uint8_t data[2 * AUDIT_RECORD_MAX];
};

void audit_scan_init(struct audit_scan *s, const struct audit_set *set, size_t first, size_t until);
void audit_scan_done(struct audit_scan *s);

/* For a host chain whose first files are gone: believes the first record's word on what was before.
 */
int audit_scan_adopt(struct audit_scan *s);

/* 1 and a record (valid until the next call), 0 at the end, -EBADMSG with *ret_why, or -errno. Half
 * a record at the end of the last file is the end: *ret_torn says how many bytes. */
int audit_scan_next(struct audit_scan *s, struct audit_record *ret, uint64_t *ret_torn,
		    const char **ret_why);

struct audit_report {
	uint64_t records, chains, checkpoints;
	uint64_t live, torn,
		missing; /* chains: not sealed, with half a record, removed at the cap */
	bool from_gone;	 /* what the checkpoint is about was removed at the cap */
	bool bad;	 /* and this is the first record that is: */
	char file[AUDIT_NAME_MAX];
	uint64_t seq, offset;
	char what[160];
};

/*
 * Checks everything: every record, every chain from where the host chain says it begins to where it
 * says it ends, every signature with `key`, and that the host chain contains `from`, a checkpoint
 * that was kept elsewhere (or NULL). 0 and a report, also a bad one; or -errno if it could not
 * look.
 */
int audit_verify(const struct audit_set *s, const uint8_t key[static AUDIT_PUBLIC],
		 const struct audit_mark *from, struct audit_report *ret, struct err *e);
