/* SPDX-License-Identifier: Apache-2.0 */
/*
 * multipart/form-data (RFC 7578), read as it comes: nothing is kept but the head of one part. The
 * caller pulls: it hands in bytes and gets what comes next of them, so it can stop anywhere and go
 * on later.
 *
 * Strict: no preamble, no padding behind a boundary, nothing behind the last one but a line break,
 * no folded lines, no second name. Names are UTF-8 without control characters, but what the
 * escapes %0D, %0A and %22, which browsers use, stand for.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "http-lex/http-lex.h"

enum {
	MULTIPART_BOUNDARY_MAX = 70,
	MULTIPART_HEAD_MAX = 16 * 1024, /* of a part */
	MULTIPART_PARTS_MAX = 4096,
	MULTIPART_DELIMITER_MAX = MULTIPART_BOUNDARY_MAX + 4, /* with CR LF - - before it */
};

enum multipart_event {
	MULTIPART_MORE, /* everything is used up: come again with more */
	MULTIPART_PART, /* a part begins: m->name, m->filename */
	MULTIPART_DATA, /* of its contents, at least one byte */
	MULTIPART_PART_END,
	MULTIPART_END, /* the last one has ended */
};

struct multipart {
	char *name;	/* of the part; never NULL after MULTIPART_PART */
	char *filename; /* NULL: it has none */
	/* private */
	char delimiter[MULTIPART_DELIMITER_MAX + 1];
	size_t n_delimiter, matched;
	int state;
	char last; /* the first of two characters behind a delimiter */
	size_t parts;
	struct buf head;
	struct http_scan scan; /* of `head` */
};

/* Is that the type of such a body, whatever its parameters? */
bool multipart_is(const char *content_type);

/* Reads the boundary from a field Content-Type. -EINVAL with a message. */
int multipart_init(struct multipart *m, const char *content_type, struct err *e);
void multipart_done(struct multipart *m);

/*
 * What comes next: an event, -EBADMSG with what is wrong, or -ENOMEM. Takes what it uses away from
 * *data and *n. Contents are at *ret, valid until the next call or until the caller's bytes are
 * not.
 */
int multipart_next(struct multipart *m, const char **data, size_t *n, const char **ret,
		   size_t *ret_n, struct err *e);

/* After the body's last byte: was it whole? */
bool multipart_whole(const struct multipart *m);
