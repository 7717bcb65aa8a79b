/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <openssl/types.h>

#include "token/credential.h"

/* https_exchange() in a process of its own; appends the body of the response to `ret`. */
int apart_exchange(const struct token_url *url, X509_STORE *trusted, const struct buf *request,
		   unsigned int *ret_status, struct buf *ret, struct err *e);
