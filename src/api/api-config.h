/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the API, and the parts that hutchd combines. */
#pragma once

struct api;
struct api_part;
struct box;
struct err;
struct keys;
struct loop;
struct request;
struct route;

struct api_config {
	struct loop *loop;
	const char *domain; /* sandboxes are PORT-ID.domain; NULL: none */
	/* The domain in answers; NULL: hutch.invalid. Without a domain, an SDK uses names of the
	 * original service, whose owner would see the traffic. */
	const char *told_domain;
	const char *agent; /* default policy, if the template has no agent of its own */
	struct keys *keys;
	const struct api_part *const *parts; /* the last one is NULL */
};

enum api_plane {
	PLANE_CONTROL,
	PLANE_SANDBOX, /* requests to a sandbox */
	PLANES,
};

/* One part. Unused members are NULL. */
struct api_part {
	/* NULL-terminated list of tables; a table ends with a row without a method. */
	const struct route *const *routes[PLANES];
	/* Handles a request to a port of r->box other than envd's. Exactly one part has it. */
	void (*port)(struct request *r);
	/* Create and free the part's state. begin() runs once the sandboxes are found; end() runs
	 * after all boxes and before jobs are freed, even if begin() failed or was not called. */
	int (*begin)(struct api *a, struct err *e);
	void (*end)(struct api *a);
	void (*box_gone)(struct box *b); /* frees the part's state of a box */
};
