/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandboxes as hutchd knows them: a cache of their directories. Each has at most one connection
 * to its keeper, made when it is needed first, and the requests that are under way for it.
 */
#pragma once

#include "peer.h"
#include "sandbox.h"
#include "trace.h"

struct api;
struct request;

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
	struct watcher *watchers;  /* envd-watch.c: those that are polled */
	struct commands *commands; /* envd-process-find.c */
	uint64_t sampled, cpu_us;  /* the last metrics */
	/* private */
	json_t *own; /* api.json */
	struct peer *peer;
	struct trace_lines lines; /* of keeper, warden and guest, with HUTCH_LOG=debug */
	struct loop_fd warden;
	struct box *next; /* of its hash chain */
};

/* The one with this id, read from its directory if it is not known yet; NULL: there is none that
 * lives. */
struct box *box_find(struct api *a, const char *id);
struct box *box_by_token(struct api *a, const char *token);

/* Calls fn for all that live, after looking at the directory. Stops at the first that is not 0. */
int box_each(struct api *a, int (*fn)(struct box *b, void *arg), void *arg);

/* The connection to its keeper. -ESRCH: it has ended. */
int box_peer(struct box *b, struct peer **ret, struct err *e);

/* Reads state and deadline again. */
void box_refresh(struct box *b);

/* metric.c: what it uses now, as E2B's "SandboxMetric" (NULL without memory); and whole CPUs. */
json_t *box_metric(struct box *b);
uint64_t box_cpus(const struct box *b);

/* What a sandbox was made with (spec.api), with what has changed since (api.json in `dir`). */
int box_read_api(const char *made, int dir, json_t **ret, struct err *e);

/* Writes api.json: b->own. */
int box_save(struct box *b, struct err *e);
void box_draw_token(char out[static BOX_TOKEN + 1]);
void boxes_free(struct api *a);

/* For box.c: what others have hung on it goes with it. */
void watchers_drop(struct box *b);
void commands_drop(struct box *b);
