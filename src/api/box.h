/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandboxes as hutchd knows them: a cache of their directories. Each has at most one connection
 * to its keeper, opened on first use, and a list of its running requests.
 */
#pragma once

#include "api/api-inner.h"

/* Finds the living sandbox with this id, reading its directory if necessary, or NULL. */
struct box *box_find(struct api *a, const char *id);
struct box *box_by_token(struct api *a, const char *token);

/* Reads the directory, then calls fn for each living sandbox until it returns non-zero. */
int box_each(struct api *a, int (*fn)(struct box *b, void *arg), void *arg);

/* Returns the connection to the keeper. -ESRCH: the sandbox has ended. */
int box_peer(struct box *b, struct peer **ret, struct err *e);

/* Reads state and deadline again. */
void box_refresh(struct box *b);

/* metric.c: current usage as E2B's "SandboxMetric" (NULL: out of memory), and whole CPUs. */
json_t *box_metric(struct box *b);
uint64_t box_cpus(const struct box *b);

/* Merges spec.api (`made`) with later changes (api.json in `dir`). */
int box_read_api(const char *made, int dir, json_t **ret, struct err *e);

/* Writes api.json: b->own. */
int box_save(struct box *b, struct err *e);
void box_draw_token(char out[static BOX_TOKEN + 1]);
void boxes_free(struct api *a);

/* Whether the client may use this sandbox: an administrator any, a user those of the same key. */
bool box_is_for(const struct box *b, const struct request *r);

/* Returns the box of args[0] if the client may use it, or NULL after answering 404. */
struct box *request_box(struct request *r);

/* Returns a descriptor of the sandbox's directory, also of a kept one; -EBADF: answered. */
int request_dir(struct request *r);

/* Answers that the sandbox does not exist or has ended. */
void request_no_box(struct request *r);
