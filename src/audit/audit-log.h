/* SPDX-License-Identifier: Apache-2.0 */
/* The audit log for processes that may open files: the host chain, and where the chains of
 * sandboxes begin and end. */
#pragma once

#include "audit/audit.h"

enum {
	AUDIT_ID_MAX = 32,		  /* letters and digits of a sandbox's id */
	AUDIT_HOST_FILE_MAX = 256 * 1024, /* a file of the host chain is rotated here */
	AUDIT_PUBLIC = 32,
	AUDIT_SIGNATURE = 64,
	AUDIT_PATH_MAX = 512,
};

#define AUDIT_DIR_MAX (UINT64_C(1) << 30) /* bytes in the directory; $HUTCH_AUDIT_MAX */

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
