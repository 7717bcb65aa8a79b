/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of an answer that a program in a sandbox gave to a request for one of its ports. Nothing
 * of it reaches a client as it came: what can be read in one way only is taken apart here, and
 * the answer is written anew by src/http. So a program that sends two answers, or says how long
 * the connection lasts, reaches nobody but the client that asked, with one answer. Pure.
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
	int64_t length; /* -1: chunked, -2: until the end of the connection */
	struct {
		const char *name, *value; /* end with a NUL */
	} fields[PORT_ANSWER_FIELDS];	  /* without those that are about the connection */
	size_t n_fields;
};

/*
 * Looks for a whole head in the `n` bytes that came so far, and takes it apart in place: how many
 * bytes it has, 0 if there are too few, or -EBADMSG with *ret_why. `scan` starts zeroed, and is so
 * again after a head.
 */
int port_answer_parse(struct http_scan *scan, char *data, size_t n, struct port_answer *ret,
		      const char **ret_why);
