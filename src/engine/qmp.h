/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What QEMU says on its monitor: lines of JSON, of which we take few, by how they begin. A QEMU
 * that was broken into may say anything: nothing of it is interpreted beyond this list. No system
 * call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum qmp_line {
	QMP_RETURN, /* of the command that was sent first and is not answered */
	QMP_ERROR,
	QMP_GREETING,
	QMP_RESUME, /* events */
	QMP_STOP,
	QMP_MIGRATED, /* MIGRATION: completed */
	QMP_MIGRATION_FAILED,
	QMP_PORT_OPEN, /* the guest's agent has opened the channel */
	QMP_SHUTDOWN,
	QMP_OTHER, /* another event: nothing follows from it */
	QMP_WRONG, /* not what QEMU says */
};

enum {
	QMP_LINE_MAX = 16 * 1024,
};

/* A line without its newline; QEMU has a carriage return before it. */
enum qmp_line qmp_read_line(const char *line, size_t n);
