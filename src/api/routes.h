/* SPDX-License-Identifier: Apache-2.0 */
/* Every table of routes; each ends with a row without a method. */
#pragma once

#include "request.h"

extern const struct route control_routes[];  /* e2b-sandboxes.c: sandboxes of the E2B API */
extern const struct route template_routes[]; /* e2b-templates.c */
extern const struct route v1_routes[];	     /* v1.c: /hutch/v1, /metrics, /health */
extern const struct route mcp_routes[];	     /* mcp-http.c: /mcp */
extern const struct route envd_process_routes[];
extern const struct route envd_fs_routes[];
extern const struct route envd_files_routes[];

/* route.c: what the key of a request, or its socket, makes of whoever asks. */
enum role request_role(struct request *r);

/* ports.c: a request for a port of a sandbox that is not ours to answer. */
void ports_handle(struct request *r, unsigned int port);

/* Has it the token that traffic to that sandbox needs, if any? */
bool ports_may(const struct request *r, const struct box *b);
