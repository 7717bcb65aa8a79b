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

#define API_ENVD_VERSION "0.6.13" /* the SDKs derive their features from it */

/* Pools of jobs, each with its own slots (job.h): long jobs never delay short ones. */
enum pool {
	POOL_START, /* start sandboxes */
	POOL_END,   /* end sandboxes */
	POOL_LIFE,  /* suspend and resume VMs */
	POOL_LOOK,  /* read files or run hutch */
	POOL_BUILD, /* build templates */
	POOLS,
};

struct api {
	const struct api_config *config;
	struct state_root root;
	struct jobs *pools[POOLS];
	unsigned char secret[32]; /* signs the addresses that we issue */
	struct box *boxes[API_BUCKETS];
	size_t n_boxes;
	uint64_t started;	 /* wall clock */
	struct loop_timer sweep; /* api.c: removes old kept sandboxes */
	struct turn *turns;	 /* boxes being suspended or resumed: turn.c */
	struct {
		uint64_t requests, refused, created, killed;
	} counts;
	/* owned by the parts */
	struct build *builds;	       /* running builds */
	struct records_watch *records; /* readers that wait for output */
	struct mcp_sessions *mcp;
	size_t n_followers; /* clients that follow events */
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
	char template[128];	     /* as requested, or the image's name */
	char owner[64];		     /* name of the key that created it, or "" */
	char token[BOX_TOKEN + 1];   /* for its data plane */
	char traffic[BOX_TOKEN + 1]; /* for its ports; "" if they are public */
	bool build;		     /* builds a template: for administrators only */
	json_t *metadata;	     /* object of texts; never NULL */
	json_t *network;	     /* as requested; may be NULL */
	enum box_state state;
	bool stopped;	   /* running, but its VM has stopped: the host's disk is full */
	bool suspended;	   /* saved on disk, without a warden */
	uint64_t deadline; /* wall clock ms; 0: none */
	bool pause_at_deadline, auto_resume;
	bool internet; /* as requested */
	struct request *requests;
	struct watcher *watchers;  /* owned by a part: polled watchers */
	struct commands *commands; /* owned by a part */
	uint64_t sampled, cpu_us;  /* at the last metrics request */
	/* private */
	json_t *own; /* api.json */
	struct peer *peer;
	struct trace_lines lines; /* from keeper, warden and guest, with HUTCH_LOG=debug */
	struct loop_fd warden;
	struct box *next; /* in its hash chain */
};
