/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hutchd serves: the E2B API (control plane and data plane) and /hutch/v1, over an HTTP server
 * that its owner has set up. It holds no truth: everything it knows is read from the files of the
 * sandboxes and comes back when it is started again.
 */
#pragma once

#include "http-server.h"
#include "keys.h"
#include "sandbox.h"

struct api;

struct api_config {
	struct loop *loop;
	const char *domain; /* sandboxes are PORT-ID.domain; NULL: none */
	/* The domain that clients are told; NULL: hutch.invalid. An SDK that is told none makes
	 * names in the domain of the service it was written for, whose owner would see their
	 * traffic. */
	const char *told_domain;
	const char *agent; /* the policy of sandboxes whose template has no agent of its own */
	struct keys *keys;
};

/* Finds what is there, reclaims what is dead. `config` and what it points to outlive the api. */
int api_new(const struct api_config *config, struct api **ret, struct err *e);
struct api *api_free(struct api *a);

/* For struct http_config; `arg` is the api. */
void api_handle(struct exchange *x, void *arg);
void api_gone(struct exchange *x, void *arg);

/* One line for each route: method, path, who may. For the test that knows them all. */
int api_print_routes(FILE *f);
