/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines on stderr, one write(2) each, so that lines of several processes do not mix.
 *
 * On a terminal: "hutch: message". Under systemd (stderr is what JOURNAL_STREAM says):
 * "<4>message", the form that journald reads priorities from; otherwise with a timestamp. Text is
 * escaped: a guest's bytes cannot forge a line. Library code below the top of a program does not
 * log; it returns errors.
 */
#pragma once

#include <stdbool.h>

#include "util.h"

/* The numbers of syslog(3), which journald uses too. */
enum log_level {
	LOG_LEVEL_ERROR = 3,
	LOG_LEVEL_WARNING = 4,
	LOG_LEVEL_INFO = 6,
	LOG_LEVEL_DEBUG = 7,
};

/*
 * Sets the program's name, the level and the form; HUTCH_LOG=debug|info|warning|error overrides
 * `level`.
 */
void log_open(const char *program, enum log_level level);

/*
 * True where a message of that level would be written; for arguments that cost something to
 * compute.
 */
bool log_wants(enum log_level level);

void log_write(enum log_level level, const char *fmt, ...) _printf_(2, 3);

#define log_error(...)	 log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)	 log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)	 log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)
