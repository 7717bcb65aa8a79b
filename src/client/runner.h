/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For jobs, which may wait: commands in a sandbox one after the other, over a loop and a connection
 * of the job's own.
 */
#pragma once

#include "peer.h"

struct runner;

/* Each line that a command prints, without its end; stream 1 or 2. Text from the sandbox. */
typedef void runner_line_fn(void *arg, unsigned int stream, const char *line);

/* What it prints, as it comes. */
typedef void runner_data_fn(void *arg, unsigned int stream, const char *data, size_t n);

struct runner_command {
	const char *script;	 /* for /bin/bash -l -c, or /bin/sh -c where there is no bash */
	const char *const *argv; /* instead of a script; NULL-terminated */
	const char *const *env;	 /* NAME=value, NULL-terminated; may be NULL */
	const char *user, *cwd;	 /* NULL: the sandbox's own */
	uint64_t timeout;	 /* ms; 0: the sandbox's own */
	bool detach;		 /* it goes on, and is not waited for */
	int stop;		 /* a signal to us that ends it: -ECANCELED; 0: none */
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

/* `fd` is a connection to a keeper's socket, and the runner's from here on, also on failure. */
int runner_new(int fd, struct runner **ret, struct err *e);
struct runner *runner_free(struct runner *r);

/* Runs a command to its end: *ret_status is its exit status, or 128 + signal. An error is one of
 * ours, or that it could not be run. */
int runner_exec(struct runner *r, const struct runner_command *c, int *ret_status, struct err *e);

/* Runs `ready` every half second until it ends with 0, for `limit_ms` at most (-ETIME). */
int runner_wait(struct runner *r, const char *ready, uint64_t limit_ms, struct err *e);

/* Where bytes come from: how many, 0 at the end, or -errno with `e` set. */
typedef ssize_t runner_read_fn(void *arg, char *out, size_t n, struct err *e);

/* Unpacks a tar archive below a directory of the sandbox. */
int runner_unpack(struct runner *r, const char *dir, const char *user, runner_read_fn *read,
		  void *arg, struct err *e);

/* Writes a file, with the directories above it; and reads `length` bytes of one from `offset` on,
 * or up to its end. */
int runner_write(struct runner *r, const char *path, const char *user, runner_read_fn *read,
		 void *arg, struct err *e);
int runner_read(struct runner *r, const char *path, const char *user, uint64_t offset,
		uint64_t length, struct buf *out, struct err *e);

/* The entries of a directory, each as the guest describes it; and one, with links followed. */
typedef void runner_entry_fn(void *arg, const struct fields *f);
int runner_stat(struct runner *r, const char *path, const char *user, runner_entry_fn *entry,
		void *arg, struct err *e);
int runner_list(struct runner *r, const char *path, const char *user, uint64_t depth,
		runner_entry_fn *entry, void *arg, struct err *e);
