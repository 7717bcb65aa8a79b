/* SPDX-License-Identifier: Apache-2.0 */
/* The sessions of POST /mcp. */
#pragma once

#include "api/request.h"

extern const struct route mcp_routes[];

int mcp_sessions_new(struct loop *loop, struct mcp_sessions **ret, struct err *e);
struct mcp_sessions *mcp_sessions_free(struct mcp_sessions *m); /* before the jobs */
