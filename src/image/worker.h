/* SPDX-License-Identifier: Apache-2.0 */
/* What a confined worker can be asked to do. All of it happens below its work directory. */
#pragma once

#include "finish.h"
#include "image-confine.h"

enum work_kind {
	WORK_TAR,   /* the input is a tar archive, perhaps compressed: a root tree, or an image */
	WORK_OCI,   /* the master hands out the files of an OCI layout */
	WORK_EMPTY, /* remove the tree again */
};

struct work_spec {
	enum work_kind kind;
	const char *tag;		   /* which image; NULL: the only one */
	const struct image_finish *finish; /* what is written over the tree; may be NULL */
};

/* Makes work/root, or removes it; `job->arg` is a struct work_spec. For confine_job.run. */
int worker_run(const struct confine_job *job, int sock, struct channel_msg *m, struct err *e);

/* What the parts of a worker use to report. */
struct archive;
struct worker {
	int sock;
	const struct archive *archive; /* that the layout is in; NULL: the master has it */
	enum image_phase phase;
	uint64_t told; /* clock_mono() of the last report */
};

/* Tells the master how far it is, at most every 200 ms; a new phase at once. */
void worker_tell(struct worker *w, enum image_phase phase, const struct image_counts *counts);

/* A line of the image's configuration for the master: "env A=b", "user x", "workdir /x", a word of
 * "entrypoint" or "cmd"; or "archive KIND": what it came in. */
int worker_config(struct worker *w, const char *key, const char *value, struct err *e);
