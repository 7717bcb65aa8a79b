/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <openssl/types.h>

#include "token/credential.h"

/* Connects to the first address of the URL's host that accepts. */
int https_dial(const struct token_url *url, int *ret_fd, struct err *e);

/*
 * Sends one request over TLS 1.2 or later and appends the response, up to its end; *ret_status and
 * the body refer to it. The server's certificate must be valid for the URL's host. Opens no file.
 * The caller sets a time limit (alarm(2)) and keeps the connection `fd`.
 */
int https_exchange(const struct token_url *url, int fd, X509_STORE *trusted,
		   const struct buf *request, struct buf *response, unsigned int *ret_status,
		   char **ret_body, size_t *ret_n, struct err *e);
