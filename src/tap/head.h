/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heads of requests and responses: collected, split into fields, cleared of fields about the
 * connection, and written anew. Names and values are slices of the text that the caller keeps.
 */
#pragma once

#include "base/buf.h"
#include "http-lex/http-lex.h"
#include "tap/exchange.h"

struct mask;

enum {
	HEAD_ADDED_MAX = 8, /* fields that hutch-tap adds */
};

/* A head that is arriving. */
struct head_input {
	struct http_scan scan;
	struct buf text;
};
#define HEAD_INPUT_INIT                                \
	{                                              \
		.text = BUF_INIT((EXCHANGE_HEAD_MAX)), \
	}

/*
 * Takes bytes up to the end of the head, *ret_used of them. 1 if the head is complete, 0 if it
 * needs more, -EBADMSG with *ret_why, -E2BIG if it is too long, or -ENOMEM.
 */
int head_feed(struct head_input *in, const char *data, size_t n, size_t *ret_used,
	      const char **ret_why);
void head_input_reset(struct head_input *in); /* frees the text */

struct head_field {
	struct http_text name, value;
	bool drop; /* is not written */
};

struct head {
	struct http_text line; /* the first one */
	size_t n;
	struct head_field field[EXCHANGE_FIELDS_MAX + HEAD_ADDED_MAX];
};

/* Splits a complete head. 0 or -EBADMSG. */
int head_parse(const struct head_input *in, struct head *ret, const char **ret_why);

/* The first field of this name that is not dropped, or NULL, and their number. */
struct head_field *head_find(struct head *h, const char *name, size_t *ret_count);
size_t head_drop(struct head *h, const char *name); /* returns how many */
void head_add(struct head *h, const char *name, struct http_text value);
static inline struct http_text head_text(const char *s)
{
	return (struct http_text){ s, __builtin_strlen(s) };
}

/* Takes the next element of a comma-separated list, without blanks around it; skips empty ones. */
bool head_list_next(struct http_text *list, struct http_text *ret);

/* Credentials of a request: Authorization, X-Api-Key, ... "_" counts as "-": some servers treat
 * the fields alike. */
bool head_is_credential(struct http_text name);
bool head_name_same(struct http_text a, struct http_text b); /* with "_" as "-" */

struct head_connection {
	bool close, keep_alive, upgrade;
};

/* Drops the fields about the connection and those that Connection names, and interprets them. */
void head_connection(struct head *h, struct head_connection *ret);

enum framing {
	FRAMING_NONE,	/* neither field is present */
	FRAMING_LENGTH, /* Content-Length */
	FRAMING_CHUNKED,
};

/* Interprets and drops Content-Length and Transfer-Encoding. 0 or -EBADMSG. */
int head_framing(struct head *h, enum framing *ret, uint64_t *ret_length, const char **ret_why);

/* Writes the fields and the empty line. `mask` (or NULL) replaces secrets in names and values. */
void head_write(struct buf *out, const struct head *h, struct mask *mask);
