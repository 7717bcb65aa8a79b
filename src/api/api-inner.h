/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this directory share. */
#pragma once

#include "api.h"
#include "body.h"
#include "box.h"
#include "job.h"
#include "log.h"
#include "request.h"
#include "str.h"

enum {
	API_BUCKETS = 4096,
	API_ENVD_PORT = 49983,
};

#define API_ENVD_VERSION "0.6.13" /* what the SDKs hold their features against */

/* What jobs wait for each other for: each has its own slots, shared by owners (job.h). What takes
 * long never holds up what is short. */
enum pool {
	POOL_START, /* new sandboxes */
	POOL_END,   /* their ends */
	POOL_LIFE,  /* virtual machines go to disk and come back */
	POOL_LOOK,  /* what reads files, or runs hutch */
	POOL_BUILD, /* of templates */
	POOLS,
};

struct api {
	const struct api_config *config;
	struct state_root root;
	struct jobs *pools[POOLS];
	unsigned char secret[32]; /* of addresses that we give out */
	struct box *boxes[API_BUCKETS];
	size_t n_boxes, n_followers;
	uint64_t started;	       /* wall clock */
	struct loop_timer sweep;       /* api.c: what is left of ended sandboxes does not grow */
	struct mcp_sessions *mcp;      /* mcp-http.c */
	struct turn *turns;	       /* boxes that go to disk or come back: turn.c */
	struct build *builds;	       /* that have not ended: e2b-template-builds.c */
	struct records_watch *records; /* who waits for output: records-watch.c */
	struct {
		uint64_t requests, refused, created, killed;
	} counts;
};

/* Who asks may have to do with this one: an admin with all, a user with those made with the same
 * key. */
bool box_is_for(const struct box *b, const struct request *r);

/* The one of the path (args[0]) that is for whoever asks, or NULL: 404 was answered then. */
struct box *request_box(struct request *r);

/* The same, also of one that has ended and is kept: a descriptor of its directory, or -EBADF. */
int request_dir(struct request *r);

/* Says that there is no such sandbox, or none any more. */
void request_no_box(struct request *r);

/* e2b-template-builds.c: forgets them; after their jobs are forgotten. */
void builds_free(struct api *a);
