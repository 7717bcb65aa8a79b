/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API of hutchd on an HTTP server that the caller has set up: routing, and the state that all
 * parts share. The parts answer requests (api-config.h). The API holds no truth: it reads all state
 * from the files of the sandboxes, again after each start.
 */
#pragma once

#include "api/api-config.h"
#include "base/err.h"
#include "http/http-server.h"

/* Finds living sandboxes and reclaims dead ones. `config` must outlive the api. */
int api_new(const struct api_config *config, struct api **ret, struct err *e);
struct api *api_free(struct api *a);

/* For struct http_config; `arg` is the api. */
void api_handle(struct exchange *x, void *arg);
void api_gone(struct exchange *x, void *arg);

/* Prints method, path and roles of each route, for the test that checks them all. */
int api_print_routes(const struct api_part *const *parts, FILE *f);
