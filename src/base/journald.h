/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native protocol of systemd-journald: one datagram per entry, with NAME=value lines; a value
 * with a newline is sent in binary form. systemd's docs/JOURNAL_NATIVE_PROTOCOL describes it.
 * Entries are short (JOURNALD_MAX), so passing a memfd is not needed.
 */
#pragma once

#include <stddef.h>

#define JOURNALD_SOCKET "/run/systemd/journal/socket"

enum {
	JOURNALD_MAX = 32 * 1024, /* bytes of an entry; -EMSGSIZE beyond */
};

struct journald_field {
	const char *name;  /* [A-Z0-9_]+, a constant of ours */
	const char *value; /* NULL or "": the field is left out */
};

/* Connects a socket to `path`; the caller owns *ret. 0 or -errno. */
int journald_open(const char *path, int *ret);

/* Sends one entry, without waiting. 0 or -errno. */
int journald_send(int fd, const struct journald_field *fields, size_t n);
