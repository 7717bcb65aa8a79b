/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native protocol of systemd-journald: one datagram for each entry, NAME=value lines, a value
 * with a newline in binary form. systemd's docs/JOURNAL_NATIVE_PROTOCOL describes it. Entries are
 * short (JOURNALD_MAX), so the form that passes a memfd is not needed.
 */
#pragma once

#include <stddef.h>

#define JOURNALD_SOCKET "/run/systemd/journal/socket"

enum {
	JOURNALD_MAX = 32 * 1024, /* bytes of an entry; more is -EMSGSIZE */
};

struct journald_field {
	const char *name;  /* [A-Z0-9_]+, ours */
	const char *value; /* NULL or "": the field is left out */
};

/* A socket that is connected to `path`; the caller owns *ret. 0 or -errno. */
int journald_open(const char *path, int *ret);

/* Sends one entry, without waiting. 0 or -errno. */
int journald_send(int fd, const struct journald_field *fields, size_t n);
