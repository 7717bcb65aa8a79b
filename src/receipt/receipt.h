/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receipt of a sandbox: each layer, whether it was asked for and required, and its state as
 * read from outside on the running PID 1. A row that was not checked counts as not enforced.
 */
#pragma once

#include <stdint.h>

#include "base/json-util.h"
#include "receipt/layer.h"

enum {
	RECEIPT_SEEN_MAX = 160,
	RECEIPT_FILE_MAX = 64 * 1024,
};

/* Why a layer on the programs inside is not enforced. */
#define RECEIPT_NESTED "not inside: isolation.nested, the VM is the boundary"

struct receipt_row {
	bool asked;    /* wanted, where engine and host support it */
	bool required; /* the sandbox must not start without it */
	bool explicit; /* enforces a limit from the command line, not only from the policy */
	bool enforced;
	char seen[RECEIPT_SEEN_MAX];   /* text read, such as "Seccomp: 2", or why it is missing */
	char advice[RECEIPT_SEEN_MAX]; /* how to get a missing layer; may be empty */
};

struct receipt {
	struct receipt_row row[RECEIPT_ROWS];
	const char *pause; /* mechanism of pause, such as "freezer"; NULL: none */
	char pause_seen[RECEIPT_SEEN_MAX];
};

/*
 * Initializes a receipt with no row enforced. `require`: bits of enum layer. All rows are asked
 * for; apparmor and kvm only if required. The rows from EXTRA_MOUNT_NAMESPACE on are always
 * required, except EXTRA_AUDIT with HUTCH_AUDIT=off (witness.c).
 */
void receipt_init(struct receipt *r, uint64_t require);

/*
 * Marks the layers (bits of enum layer) that enforce limits from the command line. If such a layer
 * is not required, it is used as far as the host supports it (--best-effort), and its row has
 * "best_effort".
 */
void receipt_explicit(struct receipt *r, uint64_t asked);

void receipt_yes(struct receipt *r, unsigned int row, const char *fmt, ...) _printf_(3, 4);
void receipt_no(struct receipt *r, unsigned int row, const char *fmt, ...) _printf_(3, 4);
void receipt_advise(struct receipt *r, unsigned int row, const char *fmt, ...) _printf_(3, 4);

/* Sets the mechanism of pause (NULL: none), and a description or the reason. */
void receipt_pause(struct receipt *r, const char *by, const char *fmt, ...) _printf_(3, 4);

/*
 * Returns 0 if all required layers are enforced, else -EPERM: "isolation.require: not enforced on
 * this host: cgroup-cpu, cgroup-memory (REASON of the first); ADVICE of the first that has one". If
 * all missing layers are explicit: "--memory cannot be enforced on this host (REASON); ADVICE; or
 * use --best-effort".
 */
int receipt_check(const struct receipt *r, struct err *e);

/* Describes a sandbox without promising anything: versions, origin. */
struct receipt_fact {
	const char *name, *value;
};

/* {"schema":"hutch.receipt/1", "sandbox", "level", "engine", "policy", "image", "time",
 * "facts":{NAME: TEXT...}, "pause":{"by","seen"}, "layers":[{"name","asked",
 * "required","enforced","seen"[,"advice"]
 * [,"best_effort"]}...]}. NULL without memory. */
struct receipt_head {
	const char *sandbox, *level, *engine, *policy, *image;
	const struct receipt_fact *facts; /* those with an empty value are left out */
	size_t n_facts;
};
json_t *receipt_json(const struct receipt *r, const struct receipt_head *head);
