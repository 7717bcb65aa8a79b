/* SPDX-License-Identifier: Apache-2.0 */
/* Interface between verify.c and the other verify-*.c files. */
#pragma once

#include "base/buf.h"
#include "engine/engine.h"
#include "engine/verify-text.h"

enum {
	VERIFY_FILE_MAX = 1024 * 1024
};

/* PID 1, as seen from outside. */
struct verify {
	const struct engine_start *s;
	const struct engine_sandbox *b;
	int proc;	   /* /proc/PID */
	struct buf status; /* files of /proc/PID that several rows need */
	struct buf mountinfo;
	struct text_mounts mounts;   /* parsed mountinfo */
	struct cgroup_limits limits; /* the limits requested for its groups */
};

/* The result of a check. */
struct sight {
	char seen[RECEIPT_SEEN_MAX];
	char advice[RECEIPT_SEEN_MAX]; /* for a missing layer; may be empty */
};

/* Checks one row of the receipt. 0: enforced, and sight->seen says what was seen. An error: not
 * enforced or unknown; its message is the reason. */
typedef int verify_look(const struct verify *v, unsigned int row, struct sight *ret, struct err *e);

/* Stores what was seen; returns 0. */
int sight_set(struct sight *s, const char *fmt, ...) _printf_(2, 3);

struct verify_row {
	unsigned int row;
	verify_look *look;
};

/* An engine checks VERIFY_ROWS rows: all but landlock, dial-guard, keeper-locked and audit. */
enum {
	VERIFY_ROWS = RECEIPT_ROWS - 4
};
struct verify_table {
	const struct verify_row *rows;
	bool (*runs)(const struct verify *v); /* PID 1 runs its final program */
	const char *program;		      /* the program's name */
};

extern const struct verify_table verify_of_container, verify_of_machine;

/* `verify-machine.c`: changes the rows that do not hold inside a VM with isolation.nested. */
void verify_nested(struct receipt *r);

/* Fills in the receipt after PID 1 has executed its program, at most until `deadline`
 * (clock_mono()). `deadline` 0, for tests, checks any process at once. */
void verify_process(const struct verify_table *t, const struct engine_start *s,
		    const struct engine_sandbox *b, uint64_t deadline, struct receipt *r);

/* verify.c: rows of all engines. */
verify_look verify_user_namespace, verify_pid_namespace, verify_network, verify_no_new_privileges,
	verify_namespace, verify_rlimits;

/* Checks that the sandbox's ids are its own, and that PID 1 runs as the first one plus `offset`. */
int verify_ids(const struct verify *v, uint32_t offset, struct sight *ret, struct err *e);

/* Checks that no capability set of PID 1 exceeds `may`; *ret: the permitted set. */
int verify_capabilities(const struct verify *v, uint64_t may, uint64_t *ret, struct err *e);

/* Checks that at least `filters` seccomp filters are active. */
int verify_seccomp(const struct verify *v, uint64_t filters, struct sight *ret, struct err *e);

/* Opens the root directory of PID 1 (O_PATH), or fails. */
int verify_open_root(const struct verify *v, struct err *e);

/* verify-mount.c */
verify_look verify_root, verify_disk, verify_masked_proc, verify_mounts, verify_devices;

/* verify-cgroup.c */
verify_look verify_cgroup;
/* Appends the limits of disk I/O to `ret`, or fails if they are asked for and missing. */
int verify_io(const struct verify *v, char *ret, size_t n, struct err *e);
verify_look verify_pause; /* not a layer, so without a row: how to pause, or why not */
