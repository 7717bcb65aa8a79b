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

void receipt_yes(struct receipt *r, unsigned int row, const char *fmt, ...) _printf_(3, 4);
void receipt_no(struct receipt *r, unsigned int row, const char *fmt, ...) _printf_(3, 4);
void receipt_advise(struct receipt *r, unsigned int row, const char *fmt, ...) _printf_(3, 4);

/* What it can be paused by (NULL: nothing), and what that does or why not. */
void receipt_pause(struct receipt *r, const char *by, const char *fmt, ...) _printf_(3, 4);

/*
 * 0 if all that is required is enforced, else -EPERM: "isolation.require: not enforced on this
 * host: cgroup-cpu, cgroup-memory (REASON of the first); ADVICE of the first that has one".
 */
int receipt_check(const struct receipt *r, struct err *e);

/* {"schema":"hutch.receipt/1", "sandbox", "engine", "policy", "image", "time",
 * "pause":{"by","seen"}, "layers":[{"name","asked", "required","enforced","seen"[,"advice"]}...]}.
 * NULL without memory. */
struct receipt_head {
	const char *sandbox, *engine, *policy, *image;
};
json_t *receipt_json(const struct receipt *r, const struct receipt_head *head);
