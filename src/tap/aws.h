/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures of AWS, version 4: the sandbox signs with a worthless key, hutch-tap signs again. */
#pragma once

#include "tap/head.h"

enum {
	AWS_HASH_LEN = 64, /* hexadecimal digits of SHA-256 */
};

/* The client's Authorization field; slices of its value. */
struct aws_auth {
	struct http_text key_id, scope; /* DATE/REGION/SERVICE/aws4_request */
	struct http_text date, region, service;
	struct http_text signed_fields; /* names between semicolons */
};

/* 0, or -EBADMSG if the value is not one of AWS4-HMAC-SHA256. */
int aws_auth_parse(struct http_text value, struct aws_auth *ret);

/* The secret: KEY-ID:SECRET-KEY[:SESSION-TOKEN]. */
struct aws_key {
	struct http_text id, secret, token; /* token.n == 0: none */
};
int aws_key_parse(const char *value, struct aws_key *ret);

/* A request as it will be sent. */
struct aws_request {
	const char *method, *path;
	struct http_text query;
	struct head *head;
	const char *payload; /* the hash of the body, or a word that stands for it */
};

/* The signature of a chunk depends on these: aws-chunk.h. */
struct aws_chain {
	unsigned char key[32];
	char date[32], scope[128];
	char signature[AWS_HASH_LEN + 1]; /* the last one */
};

enum aws_chain_kind {
	AWS_CHAIN_CHUNK,
	AWS_CHAIN_TRAILER,
};

/* Computes the next signature, from the hash of a chunk or of the trailers. */
void aws_chain_next(struct aws_chain *c, enum aws_chain_kind kind, const char *hash);

/*
 * Appends the value of the Authorization field. Signed are the fields that the client had signed
 * and that are still present, Host, and all X-Amz-*. The chunks of the body continue *ret_chain,
 * which the caller wipes. 0, -ENOMEM, -EBADMSG: no date, or -E2BIG: too many parameters in the
 * query.
 */
int aws_sign(const struct aws_auth *a, const struct aws_key *k, const struct aws_request *q,
	     struct buf *ret, struct aws_chain *ret_chain);

/* The hexadecimal SHA-256 of a body. */
void aws_hash(const char *data, size_t n, char ret[static AWS_HASH_LEN + 1]);

/* Does the query have the signature itself? */
bool aws_is_presigned(struct http_text query);
