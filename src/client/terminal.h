/* SPDX-License-Identifier: Apache-2.0 */
/* The terminal that hutch was started on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#include "base/util.h"

struct terminal {
	int fd; /* -EBADF: nothing to restore */
	struct termios before;
};

#define TERMINAL_INIT        \
	{                    \
		.fd = -EBADF \
	}
#define _cleanup_terminal_ _cleanup_(terminal_restore)

/* Sets raw mode: every key becomes a byte, output is not changed. 0 or -errno. */
int terminal_raw(struct terminal *t, int fd);
void terminal_restore(struct terminal *t);

/* Size of the terminal, or 80 by 24 if unknown. */
void terminal_size(int fd, uint16_t *ret_columns, uint16_t *ret_rows);
