/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes being suspended or resumed, each by a job. */
#pragma once

#include "job/job.h"
#include "state/spec.h"

struct api;
struct waiter;

/* One job for a box. It continues without the client that asked for it. */
struct turn {
	struct api *api;
	struct job *job;
	const struct job_ops *ops; /* NULL: finished */
	char id[SPEC_ID + 1];
	uint64_t deadline; /* ms after it is resumed */
	struct waiter *waiting;
	struct turn *next; /* in the list of the api */
};

/* Starts the job for `owner`; NULL with `e`. */
struct turn *turn_new(struct api *a, const char *id, const char *owner, uint64_t deadline,
		      const struct job_ops *ops, struct err *e);
void turn_free(struct turn *t);
void turns_free(struct api *a);

/* Returns the box's unfinished turn with these ops, or NULL. */
struct turn *turn_find(const struct api *a, const char *id, const struct job_ops *ops);
