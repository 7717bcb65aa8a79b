/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a request: strict parsing, and the form in which the server receives it. */
#pragma once

#include "tap/aws.h"

/* Why hutch-tap answers a request itself. */
struct refusal {
	enum tap_result result;
	uint16_t status;
	char text[TAP_TEXT_MAX + 1];
};

/* Fills in `r`; a long text is cut. Returns -EBADMSG. */
int refuse_(struct refusal *r, enum tap_result result, int status, const char *fmt, ...)
	_printf_(4, 5);
#define refuse(...) err_negative(refuse_(__VA_ARGS__))

/* Where the stream goes. */
struct place {
	const struct name *host; /* NULL: an address */
	uint16_t port;
	bool tls;
};

struct request {
	struct head head; /* without the fields about the connection and the body's length */
	char method[L7_METHOD_MAX + 1];
	char path[L7_PATH_MAX + 1]; /* canonical, or "*" */
	struct http_text query;	    /* s is NULL if there is no "?" */
	bool old;		    /* HTTP/1.0 */
	bool close;		    /* the client's connection ends after the response */
	bool websocket;		    /* asks for an upgrade */
	bool expect;		    /* waits for 100 (Continue) */
	bool http2;		    /* is sent by HTTP/2, which has frames: set by the caller */
	enum framing framing;
	uint64_t length; /* body bytes: FRAMING_LENGTH */

	/* Texts of fields that are written instead of the received ones. */
	char host[NAME_TEXT_MAX + 8], length_text[24];
	struct buf credential, token, new_query;
	struct aws_chain chain; /* for signed chunks */
};
void request_done(struct request *q); /* wipes the credentials */
#define _cleanup_request_ _cleanup_(request_done)

/*
 * Parses a complete head, whose text must outlive `ret`. The caller calls request_done(), also
 * after -EBADMSG; then the method and the path are set if they were valid.
 */
int request_parse(const struct head_input *in, const struct place *p, struct request *ret,
		  struct refusal *why);

/* The path for rules and patterns: of "*" it is "/". */
const char *request_rule_path(const struct request *q);

/* Rejects fields from which some servers take the method or the path: rules would not apply. */
int request_check_overrides(const struct request *q, struct refusal *why);

/* Adds the fields about the body and the connection; then the head is as it will be sent. */
void request_finish(struct request *q, enum framing framing, uint64_t length);

/* Compressed responses cannot be searched for secrets. */
void request_forbid_compression(struct request *q);

void request_write(struct buf *out, const struct request *q);
