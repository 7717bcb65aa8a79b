/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs commands in a sandbox one after the other and waits for each, over its own loop and
 * connection. For jobs, which may block.
 */
#pragma once

#include "client/peer.h"

struct runner;

/* Called for each line of output, without its newline; stream 1 or 2. The text is untrusted. */
typedef void runner_line_fn(void *arg, unsigned int stream, const char *line);

/* Called for each piece of output as it arrives. */
typedef void runner_data_fn(void *arg, unsigned int stream, const char *data, size_t n);

struct runner_command {
	const char *script;	 /* for /bin/bash -l -c, or /bin/sh -c if there is no bash */
	const char *const *argv; /* instead of a script; NULL-terminated */
	const char *const *env;	 /* NAME=value, NULL-terminated; may be NULL */
	const char *user, *cwd;	 /* NULL: the sandbox's default */
	uint64_t timeout;	 /* ms; 0: the sandbox's default */
	bool detach;		 /* keeps running, is not waited for */
	int stop;		 /* a signal to us that cancels the command (-ECANCELED); 0: none */
	runner_line_fn *line;
	runner_data_fn *data; /* instead of lines */
	void *arg;
};

enum {
	RUNNER_OPEN_MAX = 1024 * 1024,
	RUNNER_PAUSE_MS = 500, /* before a ready command is tried again */
};

/* Appends the fields of an EXEC of this command; -E2BIG if they are longer than the buffer. */
int runner_put_command(struct buf *b, const struct runner_command *c, struct err *e);

/* `fd` is a connection to a keeper's socket; the runner owns it, also on failure. */
int runner_new(int fd, struct runner **ret, struct err *e);
struct runner *runner_free(struct runner *r);

/* Runs a command until it exits; *ret_status is its exit status, or 128 + signal. Fails if the
 * command could not be run. */
int runner_exec(struct runner *r, const struct runner_command *c, int *ret_status, struct err *e);

/* Runs `ready` every half second until it exits with 0, for at most `limit_ms` (-ETIME). */
int runner_wait(struct runner *r, const char *ready, uint64_t limit_ms, struct err *e);

/* Source of contents: returns the number of bytes, 0 at the end, or -errno with `e` set. */
typedef ssize_t runner_read_fn(void *arg, char *out, size_t n, struct err *e);

/* Unpacks a tar archive below a directory of the sandbox. */
int runner_unpack(struct runner *r, const char *dir, const char *user, runner_read_fn *read,
		  void *arg, struct err *e);

/* runner_write() creates missing parent directories. runner_read() reads `length` bytes from
 * `offset`, or up to the end of the file. */
int runner_write(struct runner *r, const char *path, const char *user, runner_read_fn *read,
		 void *arg, struct err *e);
int runner_read(struct runner *r, const char *path, const char *user, uint64_t offset,
		uint64_t length, struct buf *out, struct err *e);

/* runner_list() calls `entry` for each entry of a directory, runner_stat() for one path, with
 * symbolic links followed. */
typedef void runner_entry_fn(void *arg, const struct fields *f);
int runner_stat(struct runner *r, const char *path, const char *user, runner_entry_fn *entry,
		void *arg, struct err *e);
int runner_list(struct runner *r, const char *path, const char *user, uint64_t depth,
		runner_entry_fn *entry, void *arg, struct err *e);
