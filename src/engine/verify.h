/* SPDX-License-Identifier: Apache-2.0 */
/* Between verify.c, which has the table of the rows, and the files that look. */
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
	struct buf status; /* what of /proc/PID more than one row needs */
	struct buf mountinfo;
	struct text_mounts mounts;   /* of mountinfo; none where it could not be read */
	struct cgroup_limits limits; /* what its groups were to be given */
};

/* What a look has found. */
struct sight {
	char seen[RECEIPT_SEEN_MAX];
	char advice[RECEIPT_SEEN_MAX]; /* of a layer that is missing; may be empty */
};

/* One for each row of the table. 0: it is enforced, and sight->seen says what was seen. An error:
 * it is not, or nobody can know; the message is the reason. */
typedef int verify_look(const struct verify *v, unsigned int row, struct sight *ret, struct err *e);

/* Notes what was seen; 0. */
int sight_set(struct sight *s, const char *fmt, ...) _printf_(2, 3);

struct verify_row {
	unsigned int row;
	verify_look *look;
};

/* What an engine looks at: VERIFY_ROWS of them, every row but landlock, dial-guard, keeper-locked
 * and audit. */
enum {
	VERIFY_ROWS = RECEIPT_ROWS - 4
};
struct verify_table {
	const struct verify_row *rows;
	bool (*runs)(const struct verify *v); /* PID 1 is what it has to become */
	const char *program;		      /* its name */
};

extern const struct verify_table verify_of_container, verify_of_machine;

/* Fills the receipt once PID 1 has become its program, which may take until `deadline`
 * (clock_mono()). 0, for tests: looks at any process, at once. */
void verify_process(const struct verify_table *t, const struct engine_start *s,
		    const struct engine_sandbox *b, uint64_t deadline, struct receipt *r);

/* verify.c: rows of every engine. */
verify_look verify_user_namespace, verify_pid_namespace, verify_network, verify_no_new_privileges,
	verify_namespace, verify_rlimits;

/* The sandbox's ids are its own, and PID 1 runs as the one that is `offset` above the first. */
int verify_ids(const struct verify *v, uint32_t offset, struct sight *ret, struct err *e);

/* Nothing but `may` in what PID 1 has and can get of capabilities; *ret: what it has. */
int verify_capabilities(const struct verify *v, uint64_t may, uint64_t *ret, struct err *e);

/* As many filters of system calls at least. */
int verify_seccomp(const struct verify *v, uint64_t filters, struct sight *ret, struct err *e);

/* A descriptor (O_PATH) of what PID 1 has as "/", or an error. */
int verify_open_root(const struct verify *v, struct err *e);

/* verify-mount.c */
verify_look verify_root, verify_disk, verify_masked_proc, verify_mounts, verify_devices;

/* verify-cgroup.c */
verify_look verify_cgroup;
verify_look verify_pause; /* no layer, and so no row: how it would be paused, or why not */
