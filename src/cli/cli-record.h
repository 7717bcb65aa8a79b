/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and reads commands of sandboxes by their records. */
#pragma once

#include "cli/cli-sandbox.h"
#include "client/session.h"
#include "state/record.h"

struct handle {
	struct sandbox b;
	int fd; /* the record */
	struct record_info info;
	bool lost; /* the command did not end, and no process runs it */
};

#define HANDLE_INIT                             \
	{                                       \
		.b = SANDBOX_INIT, .fd = -EBADF \
	}
#define _cleanup_handle_ _cleanup_(handle_close)

/*
 * Opens ID/NUMBER or ID/NAME; if several have the name, the running one, else the last. -ENOENT
 * with advice.
 */
int handle_open(const struct state_root *root, const char *text, struct handle *ret, struct err *e);
void handle_close(struct handle *h);

/* Reads the record again. */
int handle_refresh(struct handle *h, struct err *e);

static inline bool handle_lives(const struct handle *h)
{
	return h->info.slot.state != RECORD_ENDED && !h->lost;
}

/* Lists all used records of a sandbox by number. record_list_free() frees the list. `ret_dropped`:
 * number of older records that were dropped. */
int record_list(const struct sandbox *b, struct handle **ret, size_t *ret_n, uint64_t *ret_dropped,
		struct err *e);
/* Opens the last used record; its directory still belongs to the caller, who closes `fd`. -ENOENT
 * if there is none. */
int record_newest(const struct sandbox *b, struct handle *ret, struct err *e);
void record_list_free(struct handle *list, size_t n);

/* Waits until the record is written or its sandbox ends. */
struct follow {
	int inotify, warden;
};
int follow_open(const struct handle *h, struct follow *ret, struct err *e);
int follow_wait(struct follow *f, struct err *e);
void follow_close(struct follow *f);

#define FOLLOW_INIT                                 \
	{                                           \
		.inotify = -EBADF, .warden = -EBADF \
	}
#define _cleanup_follow_ _cleanup_(follow_close)

/* Describes the state of a command: "running", "exit 0", "signal 9", "lost". */
const char *record_outcome(const struct handle *h, char out[static 32]);
json_t *record_json(const struct handle *h);

/* Returns hutch's exit status for the result, and prints a message if needed. */
int cli_report(const struct invocation *inv, const struct spec *spec, const struct sandbox *b,
	       const struct session_result *result, bool memory);

/* Returns the exit status only. */
int cli_exit_code(const struct session_result *result);

/* hutch ps -e */
int cli_list_commands(struct invocation *inv);

/* Starts a command in a sandbox without waiting for its end. The caller fills in `s` except
 * descriptors, environment and command line options. */
int cli_exec(struct invocation *inv, const struct state_root *root, const struct spec *spec,
	     const struct sandbox *b, struct session_spec *s, struct session_result *result);
