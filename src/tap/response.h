/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a response: strict parsing, and the form in which the client receives it. */
#pragma once

#include "tap/body.h"
#include "tap/head.h"

struct response {
	struct head head; /* without the fields about the connection and the body's length */
	int status;
	struct http_text reason; /* with a blank before it, or empty */
	enum body_kind kind;
	uint64_t length; /* BODY_LENGTH, or what a response without a body announces */
	bool announced;	 /* it has a Content-Length but no body */
	bool close;	 /* the server's connection ends after it */
	bool websocket;	 /* 101 to a WebSocket */
	char length_text[24];
};

/* Parses a complete head, whose text must outlive `ret`. `method`: of the request. 0 or -EBADMSG.
 */
int response_parse(const struct head_input *in, const char *method, struct response *ret,
		   const char **ret_why);

bool response_is_compressed(struct response *r);

/* Writes it with a body of `kind`; `close`: the client's connection ends after it. */
void response_write(struct buf *out, struct response *r, enum body_kind kind, bool close,
		    struct mask *mask);
