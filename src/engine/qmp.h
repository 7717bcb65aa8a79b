/* SPDX-License-Identifier: Apache-2.0 */
/* Reads QEMU's monitor messages: lines of JSON, of which we recognize a few by their beginning. A
 * compromised QEMU may send anything: nothing beyond this list is interpreted. No system calls. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum qmp_line {
	QMP_RETURN, /* answers the oldest unanswered command */
	QMP_ERROR,
	QMP_GREETING,
	QMP_RESUME, /* events */
	QMP_STOP,
	QMP_MIGRATED, /* MIGRATION: completed */
	QMP_MIGRATION_FAILED,
	QMP_NO_SPACE,  /* BLOCK_IO_ERROR: the host's disk is full; STOP follows */
	QMP_PORT_OPEN, /* hutch-guest has opened the channel */
	QMP_SHUTDOWN,
	QMP_OTHER, /* another event, ignored */
	QMP_WRONG, /* not a QMP message */
};

enum {
	QMP_LINE_MAX = 16 * 1024,
};

/* A line without its newline; may end with the carriage return that QEMU sends before it. */
enum qmp_line qmp_read_line(const char *line, size_t n);
