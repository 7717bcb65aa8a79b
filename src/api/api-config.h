/* SPDX-License-Identifier: Apache-2.0 */
/* What hutchd puts an API together from: its settings, and the parts that answer. */
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
	/* The domain that clients are told; NULL: hutch.invalid. An SDK that is told none makes
	 * names in the domain of the service it was written for, whose owner would see their
	 * traffic. */
	const char *told_domain;
	const char *agent; /* the policy of sandboxes whose template has no agent of its own */
	struct keys *keys;
	const struct api_part *const *parts; /* the last one is NULL */
};

enum api_plane {
	PLANE_CONTROL,
	PLANE_SANDBOX, /* requests to a sandbox */
	PLANES,
};

/* One part. What it does not need is NULL. */
struct api_part {
	/* Tables, the last one NULL; a table ends with a row without a method. */
	const struct route *const *routes[PLANES];
	/* Answers a request to another port of r->box than envd's. Exactly one part has it. */
	void (*port)(struct request *r);
	/* State of its own: made once the sandboxes are found; freed after all boxes and before
	 * jobs, also if begin() failed or was not called. */
	int (*begin)(struct api *a, struct err *e);
	void (*end)(struct api *a);
	void (*box_gone)(struct box *b); /* frees what the part hung on it */
};
