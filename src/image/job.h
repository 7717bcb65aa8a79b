/* SPDX-License-Identifier: Apache-2.0 */
/* The master's side of a worker: starts it, serves its requests, reports its progress, takes its
 * result. */
#pragma once

#include "base/json-util.h"
#include "image/image.h"
#include "image/worker.h"

struct image_job {
	struct work_spec spec;
	const struct id_ranges *ids;
	int work;		/* directory for the tree */
	int input;		/* WORK_TAR; closed once the worker has it */
	int layout;		/* WORK_OCI: the layout's directory; else -EBADF */
	int news;		/* lines of a producer to display; or -EBADF */
	int log;		/* log file for these lines */
	enum image_phase phase; /* until the worker reports one */
	struct image_reporter reporter;
};

struct job_result {
	struct image_counts counts;
	struct tree_info tree;
	bool landlock;
	json_t *config; /* env (an object), user, workdir, entrypoint, cmd; the caller frees it */
	const char *archive; /* "docker-archive", "oci-archive"; NULL: not an image */
	char line[256];	     /* the last line of the news */
};

/* Runs the job to its end. -EINVAL: the rules reject the image; -ETIME, or -errno. */
int job_run(struct image_job *job, struct job_result *ret, struct err *e);

/* Removes the tree in a work directory, using the ids that own it. */
int job_empty(int work, const struct id_ranges *ids, struct err *e);
