/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a confined worker. All of them happen below its work directory. */
#pragma once

#include "image/finish.h"
#include "image/image-confine.h"

enum work_kind {
	WORK_TAR,   /* the input is a tar archive, maybe compressed: a root tree or an image */
	WORK_OCI,   /* the master opens the files of an OCI layout */
	WORK_EMPTY, /* remove the tree again */
};

struct work_spec {
	enum work_kind kind;
	const char *tag;		   /* which image; NULL: the only one */
	const struct image_finish *finish; /* files to write over the tree; may be NULL */
	bool from_sandbox;		   /* the tree must not trust the sandbox's CA */
};

/* Creates or removes work/root; `job->arg` is a struct work_spec. For confine_job.run. */
int worker_run(const struct confine_job *job, int sock, struct channel_msg *m, struct err *e);

/* Used by the parts of a worker to report. */
struct archive;
struct worker {
	int sock;
	const struct archive *archive; /* contains the layout; NULL: the master opens its files */
	enum image_phase phase;
	uint64_t told; /* clock_mono() of the last report */
};

/* Reports progress to the master, at most every 200 ms; a new phase at once. */
void worker_tell(struct worker *w, enum image_phase phase, const struct image_counts *counts);

/* Sends a line of the image's configuration to the master: "env A=b", "user x", "workdir /x", a
 * word of "entrypoint" or "cmd"; or "archive KIND", the kind of the input. */
int worker_config(struct worker *w, const char *key, const char *value, struct err *e);
