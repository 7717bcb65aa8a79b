/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all parts of the API: its state, and a sandbox as hutchd knows it (box.h). */
#pragma once

#include "api/api-config.h"
#include "base/log.h"
#include "base/str.h"
#include "base/trace.h"
#include "client/peer.h"
#include "job/job.h"
#include "sandbox/sandbox.h"

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
	size_t n_boxes;
	uint64_t started;	 /* wall clock */
	struct loop_timer sweep; /* api.c: what is left of ended sandboxes does not grow */
	struct turn *turns;	 /* boxes that go to disk or come back: turn.c */
	struct {
		uint64_t requests, refused, created, killed;
	} counts;
	/* owned by the parts */
	struct build *builds;	       /* that have not ended */
	struct records_watch *records; /* who waits for output */
	struct mcp_sessions *mcp;
	size_t n_followers; /* of events */
};

enum {
	BOX_TOKEN = 40, /* hex */
	BOXES_MAX = 65536,
};

enum box_state {
	BOX_RUNNING,
	BOX_PAUSED,
};

struct box {
	struct api *api;
	struct sandbox sandbox;
	struct spec spec;
	char template[128];	     /* of the request, or the image's name */
	char owner[64];		     /* the name of the key it was made with, or "" */
	char token[BOX_TOKEN + 1];   /* of its data plane */
	char traffic[BOX_TOKEN + 1]; /* of its ports; "" if they are public */
	bool build;		     /* a template is built in it: for administrators only */
	json_t *metadata;	     /* object of texts; never NULL */
	json_t *network;	     /* as it was asked for; may be NULL */
	enum box_state state;
	bool suspended;	   /* paused, on disk: it has no warden */
	uint64_t deadline; /* wall clock ms; 0: none */
	bool pause_at_deadline, auto_resume;
	bool internet; /* as it was asked for */
	struct request *requests;
	struct watcher *watchers;  /* owned by a part: those that are polled */
	struct commands *commands; /* owned by a part */
	uint64_t sampled, cpu_us;  /* the last metrics */
	/* private */
	json_t *own; /* api.json */
	struct peer *peer;
	struct trace_lines lines; /* of keeper, warden and guest, with HUTCH_LOG=debug */
	struct loop_fd warden;
	struct box *next; /* of its hash chain */
};
