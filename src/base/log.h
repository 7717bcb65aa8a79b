/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines on stderr, one write(2) each, so that lines of several processes do not mix.
 *
 * On a terminal: "hutch: message". Under systemd (stderr is the stream of JOURNAL_STREAM): a
 * journal entry with fields; if journald's socket cannot be used, "<4>message", from which journald
 * reads the priority. Otherwise with a timestamp. Text is escaped, so bytes from a guest cannot
 * forge a line. Library code below the top level of a program does not log; it returns errors.
 *
 * HUTCH_LOG=debug adds trace lines (trace.h).
 */
#pragma once

#include <stdbool.h>

#include "base/util.h"

/* The numbers of syslog(3), which journald uses too. */
enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

/*
 * Sets the program's name, the level and the form; HUTCH_LOG=debug|info|warning|error overrides
 * `level`. With debug, trace lines go to stderr.
 */
void log_open(const char *program, enum log_level level);

/* Sends entries to journald's socket at `path`, which the caller keeps alive; log_open() calls this
 * under systemd. */
void log_to_journal(const char *path);

/* Reconnects to journald's socket in a forked process that has closed its parent's descriptors. */
void log_forked(void);

/*
 * Returns true if a message of that level would be written; for arguments that are expensive to
 * compute.
 */
bool log_wants(enum log_level level);

/* Additional fields of a journal entry. */
struct log_where {
	const char *file;
	int line;
	const char *sandbox, *request; /* NULL: none */
};

void log_write(enum log_level level, const struct log_where *where, const char *fmt, ...)
	_printf_(3, 4);

/* Writes trace lines to stderr or the journal, too. */
void log_trace(bool on);

#define LOG_HERE(sandbox_, request_) \
	(&(const struct log_where){ __FILE__, __LINE__, (sandbox_), (request_) })
#define log_error(...)	 log_write(LOG_LEVEL_ERROR, LOG_HERE(NULL, NULL), __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, LOG_HERE(NULL, NULL), __VA_ARGS__)
#define log_info(...)	 log_write(LOG_LEVEL_INFO, LOG_HERE(NULL, NULL), __VA_ARGS__)

/* Same for a request in a sandbox; either may be NULL. */
#define log_error_of(sandbox, request, ...) \
	log_write(LOG_LEVEL_ERROR, LOG_HERE(sandbox, request), __VA_ARGS__)
