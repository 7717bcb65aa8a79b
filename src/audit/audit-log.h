/* SPDX-License-Identifier: Apache-2.0 */
/* The audit log for processes that may open files: the host chain, and the beginnings and ends of
 * sandboxes' chains. */
#pragma once

#include "audit/audit.h"

enum {
	AUDIT_ID_MAX = 32,		  /* length of a sandbox's id: letters and digits */
	AUDIT_HOST_FILE_MAX = 256 * 1024, /* a larger file of the host chain is rotated */
	AUDIT_PUBLIC = 32,
	AUDIT_SIGNATURE = 64,
	AUDIT_PATH_MAX = 512,
};

#define AUDIT_DIR_MAX (UINT64_C(1) << 30) /* size of the directory; $HUTCH_AUDIT_MAX */

struct audit_log {
	bool off;		  /* HUTCH_AUDIT=off: nothing is recorded, everything succeeds */
	int dir, sandboxes, lock; /* -EBADF when off */
	uint8_t boot[AUDIT_BOOT];
	uint64_t max; /* bytes */
	char path[AUDIT_PATH_MAX];
	/* private: the last known end of the host chain, to continue from there */
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
 * other users can access it. Call it before entering a user namespace.
 */
int audit_open(struct audit_log *ret, struct err *e);
void audit_close(struct audit_log *l);

/* Appends to the host chain, under the lock, and rotates it. -ENOSPC also at the cap. */
int audit_host(struct audit_log *l, enum audit_kind kind, const struct audit_payload *p,
	       struct err *e);

/*
 * Begins the chain of a sandbox: creates its first file and record, and records that in the host
 * chain. Fails if the log has reached its cap. *ret can be passed to an unprivileged process.
 */
int audit_sandbox_begin(struct audit_log *l, const char *id, struct audit_chain *ret,
			struct err *e);

/* Creates the next file of a running sandbox's chain (`number`: c->number + 1) for
 * audit_chain_switch(). */
int audit_sandbox_next(struct audit_log *l, const char *id, uint32_t number, int *ret_fd,
		       struct err *e);

/*
 * Ends a sandbox's chain when its writer is dead: called by the warden, or by the process that
 * reclaims a killed warden's sandbox. Reads the chain, replaces a torn last record by a record of
 * that, and writes the chain's end into the host chain, with a checkpoint. 0 also if it is sealed
 * already, or the log has no such sandbox.
 */
int audit_sandbox_seal(struct audit_log *l, const char *id, struct err *e);

/* Whether the chain has begun and has no seal. Only the sandbox's owner may begin or seal it. */
bool audit_sandbox_open(const struct audit_log *l, const char *id);

/* Syncs the host chain and, if `c` is not NULL, a sandbox's. 0 or -errno. */
int audit_sync(struct audit_log *l, const struct audit_chain *c);

/* ---- checkpoints ---- */

struct audit_mark {
	uint64_t seq; /* covers the host chain up to and including this record */
	uint8_t hash[AUDIT_HASH], key[AUDIT_PUBLIC], signature[AUDIT_SIGNATURE];
};

/* Appends a checkpoint to the host chain, and syncs; stores it in *ret unless NULL. */
int audit_checkpoint(struct audit_log *l, struct audit_mark *ret, struct err *e);

/* Reads the text that `hutch audit checkpoint` prints, and checks its signature. */
int audit_mark_read(const char *text, size_t n, struct audit_mark *ret, struct err *e);
int audit_mark_print(const struct audit_mark *m, struct buf *b);

int audit_public_key(const struct audit_log *l, uint8_t ret[static AUDIT_PUBLIC], struct err *e);
