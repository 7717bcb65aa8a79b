/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded bytes. A buffer has a maximum size and fails to grow beyond it (-ENOBUFS); a reader walks
 * over bytes it does not own and fails to read past them (-EBADMSG).
 *
 * Errors are sticky: after the first failure every further call fails with the same number and
 * changes nothing, so a sequence of puts or gets needs one check at its end.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/util.h"

struct buf {
	char *data; /* NUL-terminated after the first put, for printf */
	size_t len;
	size_t cap;
	size_t max; /* maximum payload in bytes, without the NUL */
	int err;    /* 0, -ENOBUFS or -ENOMEM */
};

#define BUF_INIT(maximum)        \
	{                        \
		.max = (maximum) \
	}
#define _cleanup_buf_ _cleanup_(buf_done)

void buf_done(struct buf *b);

/* Clears contents and error, keeps the memory. */
void buf_reset(struct buf *b);

/*
 * Makes room for `n` more bytes and returns a pointer to it, or NULL; buf_commit() adds the bytes
 * written there.
 */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);

int buf_put(struct buf *b, const void *data, size_t n);
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) _printf_(2, 3);
int buf_put_be(struct buf *b, uint64_t value, unsigned int bytes); /* 1 to 8 bytes, network order */

/* Removes `n` bytes from the front. */
void buf_consume(struct buf *b, size_t n);

/* Returns the text so far, "" if none; valid until the next put. */
const char *buf_text(const struct buf *b);

/* Hands the text to the caller (who frees it) and resets the buffer; NULL if an error is pending.
 */
char *buf_take(struct buf *b);

struct reader {
	const uint8_t *pos;
	const uint8_t *end;
	int err; /* 0 or -EBADMSG */
};

struct reader reader_of(const void *data, size_t n);
uint64_t reader_be(struct reader *r,
		   unsigned int bytes); /* 1 to 8 bytes, network order; 0 on error */
const uint8_t *reader_bytes(struct reader *r, size_t n); /* NULL on error */
size_t reader_left(const struct reader *r);

/* Returns 0 if no read failed and no byte is left, else -EBADMSG. */
int reader_finish(const struct reader *r);
