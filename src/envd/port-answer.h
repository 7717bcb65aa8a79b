/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parses the head of an answer from a program on a sandbox's port. No byte of it reaches a client
 * unparsed: only unambiguous heads are accepted, and src/http writes the answer anew. So a program
 * that sends two answers, or connection fields, can affect only its own client. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http-lex/http-lex.h"

enum {
	PORT_ANSWER_MAX = 32 * 1024,
	PORT_ANSWER_FIELDS = 100,
};

struct port_answer {
	int status; /* 100 to 599 */
	bool bodiless;
	int64_t length; /* -1: chunked, -2: until the connection ends */
	struct {
		const char *name, *value; /* NUL-terminated */
	} fields[PORT_ANSWER_FIELDS];	  /* without those about the connection */
	size_t n_fields;
};

/*
 * Parses a complete head in the first `n` bytes, in place. Returns its length, 0 if it is
 * incomplete, or -EBADMSG with *ret_why. `scan` starts zeroed, and is zeroed after a head.
 */
int port_answer_parse(struct http_scan *scan, char *data, size_t n, struct port_answer *ret,
		      const char **ret_why);
