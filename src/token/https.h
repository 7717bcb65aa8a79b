/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <openssl/types.h>

#include "token/credential.h"

/*
 * Sends one request over TLS 1.2 or later and appends the response, up to its end; *ret_status and
 * the body refer to it. The server's certificate must be valid for the URL's host. The caller sets
 * a time limit (alarm(2)).
 */
int https_exchange(const struct token_url *url, X509_STORE *trusted, const struct buf *request,
		   struct buf *response, unsigned int *ret_status, char **ret_body, size_t *ret_n,
		   struct err *e);
