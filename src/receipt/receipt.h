/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receipt of a sandbox: each layer, whether it was asked for and required, and what was seen of
 * it from outside, on the running PID 1. A row that nobody has looked at is not enforced: fail
 * closed.
 */
#pragma once

#include <stdint.h>

#include "json-util.h"
#include "layer.h"

enum {
	RECEIPT_SEEN_MAX = 160,
	RECEIPT_FILE_MAX = 64 * 1024,
};

struct receipt_row {
	bool asked;    /* this engine gives it where the host lets it */
	bool required; /* the sandbox must not start without it */
	bool explicit; /* for a limit that was asked for by name, not by the policy */
	bool enforced;
	char seen[RECEIPT_SEEN_MAX];   /* what was read: "Seccomp: 2"; or why not */
	char advice[RECEIPT_SEEN_MAX]; /* of one that is not enforced: what to do; may be empty */
};

struct receipt {
	struct receipt_row row[RECEIPT_ROWS];
	const char *pause; /* what it can be paused by: "freezer"; NULL: by nothing */
	char pause_seen[RECEIPT_SEEN_MAX];
};

/* Nothing enforced. `require`: bits of enum layer. Everything is asked for but apparmor and kvm,
 * unless required. The rows from EXTRA_MOUNT_NAMESPACE on are required always (but
 * for EXTRA_AUDIT where the log is switched off: witness.c). */
void receipt_init(struct receipt *r, uint64_t require);

/*
 * Marks the layers (bits of enum layer) that enforce limits which the command line names. One of
 * them that is not required is there for as much as the host can do (--best-effort), and its row
 * says so.
 */
void receipt_explicit(struct receipt *r, uint64_t asked);

void receipt_yes(struct receipt *r, unsigned int row, const char *fmt, ...) _printf_(3, 4);
void receipt_no(struct receipt *r, unsigned int row, const char *fmt, ...) _printf_(3, 4);
void receipt_advise(struct receipt *r, unsigned int row, const char *fmt, ...) _printf_(3, 4);

/* What it can be paused by (NULL: nothing), and what that does or why not. */
void receipt_pause(struct receipt *r, const char *by, const char *fmt, ...) _printf_(3, 4);

/*
 * 0 if all that is required is enforced, else -EPERM: "isolation.require: not enforced on this
 * host: cgroup-cpu, cgroup-memory (REASON of the first); ADVICE of the first that has one". Where
 * all that is missing is explicit: "--memory cannot be enforced on this host (REASON); ADVICE; or
 * use --best-effort".
 */
int receipt_check(const struct receipt *r, struct err *e);

/* {"schema":"hutch.receipt/1", "sandbox", "level", "engine", "policy", "image", "time",
 * "pause":{"by","seen"}, "layers":[{"name","asked", "required","enforced","seen"[,"advice"]
 * [,"best_effort"]}...]}. NULL without memory. */
struct receipt_head {
	const char *sandbox, *level, *engine, *policy, *image;
};
json_t *receipt_json(const struct receipt *r, const struct receipt_head *head);
