/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streaming reader of multipart/form-data (RFC 7578); it stores only the head of one part. The
 * caller passes bytes and gets the next event, so it can stop anywhere and continue later.
 *
 * Strict: no preamble, no padding after a boundary, only a line break after the last one, no folded
 * lines, no second name. Names are UTF-8 without control characters, except those that browsers
 * escape as %0D, %0A and %22.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "http-lex/http-lex.h"

enum {
	MULTIPART_BOUNDARY_MAX = 70,
	MULTIPART_HEAD_MAX = 16 * 1024, /* per part */
	MULTIPART_PARTS_MAX = 4096,
	MULTIPART_DELIMITER_MAX = MULTIPART_BOUNDARY_MAX + 4, /* with its leading CR LF - - */
};

enum multipart_event {
	MULTIPART_MORE, /* all input is consumed */
	MULTIPART_PART, /* a part begins: m->name, m->filename */
	MULTIPART_DATA, /* contents, at least one byte */
	MULTIPART_PART_END,
	MULTIPART_END, /* the last part has ended */
};

struct multipart {
	char *name;	/* set by MULTIPART_PART */
	char *filename; /* NULL: absent */
	/* private */
	char delimiter[MULTIPART_DELIMITER_MAX + 1];
	size_t n_delimiter, matched;
	int state;
	char last; /* the first of two characters after a delimiter */
	size_t parts;
	struct buf head;
	struct http_scan scan; /* for `head` */
};

/* Whether a content type is multipart/form-data, ignoring parameters. */
bool multipart_is(const char *content_type);

/* Reads the boundary from a field Content-Type. -EINVAL with a message. */
int multipart_init(struct multipart *m, const char *content_type, struct err *e);
void multipart_done(struct multipart *m);

/*
 * Returns the next event, -EBADMSG with a message, or -ENOMEM. Consumes *data and *n. Contents are
 * at *ret, valid until the next call and as long as the caller's bytes.
 */
int multipart_next(struct multipart *m, const char **data, size_t *n, const char **ret,
		   size_t *ret_n, struct err *e);

/* After the body's last byte: whether the body was complete. */
bool multipart_whole(const struct multipart *m);
