/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes that go to disk or come back, each in a job. */
#pragma once

#include "job/job.h"
#include "state/spec.h"

struct api;
struct waiter;

/* One job for a box. It continues without the client that asked for it. */
struct turn {
	struct api *api;
	struct job *job;
	const struct job_ops *ops; /* NULL: it is over */
	char id[SPEC_ID + 1];
	uint64_t deadline; /* ms after it continues */
	struct waiter *waiting;
	struct turn *next; /* in the list of the api */
};

/* Starts the job, for `owner`; NULL with `e`. */
struct turn *turn_new(struct api *a, const char *id, const char *owner, uint64_t deadline,
		      const struct job_ops *ops, struct err *e);
void turn_free(struct turn *t);
void turns_free(struct api *a);

/* The turn of that box with these ops, or NULL; and whether any turn of it is not over. */
struct turn *turn_find(const struct api *a, const char *id, const struct job_ops *ops);
bool turn_is_on(const struct api *a, const char *id);
