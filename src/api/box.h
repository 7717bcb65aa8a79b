/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandboxes as hutchd knows them: a cache of their directories. Each has at most one connection
 * to its keeper, made when it is needed first, and the requests that are under way for it.
 */
#pragma once

#include "api/api-inner.h"

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

/* Who asks may have to do with this one: an admin with all, a user with those made with the same
 * key. */
bool box_is_for(const struct box *b, const struct request *r);

/* The one of the path (args[0]) that is for whoever asks, or NULL: 404 was answered then. */
struct box *request_box(struct request *r);

/* The same, also of one that has ended and is kept: a descriptor of its directory, or -EBADF. */
int request_dir(struct request *r);

/* Says that there is no such sandbox, or none any more. */
void request_no_box(struct request *r);
