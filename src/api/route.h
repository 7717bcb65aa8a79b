/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "api/request.h"

/* Returns the client's role, from the key of the request or from its socket. */
enum role request_role(struct request *r);

/* Whether the request has the token for the sandbox's ports, if one is needed. */
bool request_may_pass(const struct request *r, const struct box *b);
