/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of the API, and the parts that hutchd puts it together from. */
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
	/* The domain in answers; NULL: hutch.invalid. Without one, an SDK makes names in the domain
	 * of the service it was written for, whose owner would see the traffic. */
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

/* One part. Members that it does not need are NULL. */
struct api_part {
	/* Tables, the last one NULL; a table ends with a row without a method. */
	const struct route *const *routes[PLANES];
	/* Answers a request to another port of r->box than envd's. Exactly one part has it. */
	void (*port)(struct request *r);
	/* Make and free its state: begin() once the sandboxes are found, end() after all boxes
	 * and before jobs, also if begin() failed or was not called. */
	int (*begin)(struct api *a, struct err *e);
	void (*end)(struct api *a);
	void (*box_gone)(struct box *b); /* frees the state that the part hung on it */
};
