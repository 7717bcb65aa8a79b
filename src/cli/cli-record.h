/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of sandboxes, found and read by their records. */
#pragma once

#include "cli/cli-sandbox.h"
#include "client/session.h"
#include "state/record.h"

struct handle {
	struct sandbox b;
	int fd; /* the record */
	struct record_info info;
	bool lost; /* it did not end, and nobody is left who runs it */
};

#define HANDLE_INIT                             \
	{                                       \
		.b = SANDBOX_INIT, .fd = -EBADF \
	}
#define _cleanup_handle_ _cleanup_(handle_close)

/*
 * ID/NUMBER or ID/NAME; of several of one name the one that lives, else the last. -ENOENT with
 * advice.
 */
int handle_open(const struct state_root *root, const char *text, struct handle *ret, struct err *e);
void handle_close(struct handle *h);

/* Reads the record anew. */
int handle_refresh(struct handle *h, struct err *e);

static inline bool handle_lives(const struct handle *h)
{
	return h->info.slot.state != RECORD_ENDED && !h->lost;
}

/* All records of a sandbox that were used, by number. The caller frees both. `ret_dropped`: how
 * many there were before and are no more. */
int record_list(const struct sandbox *b, struct handle **ret, size_t *ret_n, uint64_t *ret_dropped,
		struct err *e);
/* The last that was used; its directory stays the caller's, `fd` is to be closed. -ENOENT: none. */
int record_newest(const struct sandbox *b, struct handle *ret, struct err *e);
void record_list_free(struct handle *list, size_t n);

/* Waits for the record to be written or for its sandbox to end. */
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

/* How it stands with a command, in a word or two: "running", "exit 0", "signal 9", "lost". */
const char *record_outcome(const struct handle *h, char out[static 32]);
json_t *record_json(const struct handle *h);

/* hutch's exit status for it, and a message where there is something to say. */
int cli_report(const struct invocation *inv, const struct spec *spec, const struct sandbox *b,
	       const struct session_result *result, bool memory);

/* The status alone, without a word. */
int cli_exit_code(const struct session_result *result);

/* hutch ps -e */
int cli_list_commands(struct invocation *inv);

/* Starts a command in a sandbox without waiting for its end; with `s` filled in but descriptors,
 * environment and options of the command line. */
int cli_exec(struct invocation *inv, const struct state_root *root, const struct spec *spec,
	     const struct sandbox *b, struct session_spec *s, struct session_result *result);
