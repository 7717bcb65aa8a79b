/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <openssl/types.h>

#include "token/credential.h"

/* Connects to the first address of the URL's host that accepts. */
int https_dial(const struct token_url *url, int *ret_fd, struct err *e);

struct https_body {
	unsigned int status;
	char *text; /* in the response */
	size_t n;
};

/*
 * Sends one request over TLS 1.2 or later and appends the response, up to its end. The server's
 * certificate must be valid for the URL's host. Opens no file. The caller sets a time limit
 * (alarm(2)) and keeps the connection `fd`.
 */
int https_exchange(const struct token_url *url, int fd, X509_STORE *trusted,
		   const struct buf *request, struct buf *response, struct https_body *ret,
		   struct err *e);
