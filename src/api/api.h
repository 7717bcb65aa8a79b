/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The API of hutchd, over an HTTP server that its owner has set up: routing, and the state that all
 * parts share. The parts answer (api-config.h). The API holds no truth: all its state is read from
 * the files of the sandboxes, again after each start.
 */
#pragma once

#include "api/api-config.h"
#include "base/err.h"
#include "http/http-server.h"

/* Finds what is there, reclaims what is dead. `config` and what it points to outlive the api. */
int api_new(const struct api_config *config, struct api **ret, struct err *e);
struct api *api_free(struct api *a);

/* For struct http_config; `arg` is the api. */
void api_handle(struct exchange *x, void *arg);
void api_gone(struct exchange *x, void *arg);

/* One line for each route: method, path, who may. For the test that knows them all. */
int api_print_routes(const struct api_part *const *parts, FILE *f);
