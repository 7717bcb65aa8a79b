/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/request.h"

/* The role of the client, from the key of the request or from its socket. */
enum role request_role(struct request *r);

/* Has it the token that traffic to ports of that sandbox needs, if any? */
bool request_may_pass(const struct request *r, const struct box *b);
