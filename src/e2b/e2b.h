/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the E2B control plane. Handlers are rows of the tables in e2b.c. */
#pragma once

#include "api/body.h"
#include "api/box.h"
#include "api/wake.h"
#include "state/life.h"
#include "template/template.h"

extern const struct api_part e2b_part;

enum {
	E2B_TIMEOUT_DEFAULT = WAKE_TIMEOUT_S, /* seconds */
	E2B_TIMEOUT_DEFAULT_V1 = 15,
	E2B_TIMEOUT_MAX = 365 * 24 * 3600,
	E2B_METADATA_MAX = 64,
	E2B_METADATA_TEXT_MAX = 1024,
	E2B_ENV_MAX = 1024,
	E2B_TEMPLATE_MAX = 127,
	E2B_PAGE_MAX = 100,
};

/* "Sandbox": the answer of create and connect. NULL: out of memory. */
json_t *e2b_sandbox(const struct box *b);
/* "ListedSandbox", and with `detail` "SandboxDetail". */
json_t *e2b_info(struct box *b, bool detail);

/* Reads seconds from a body: 0 and *ret, or -EINVAL with a message. */
int e2b_timeout(const json_t *body, const char *key, uint64_t otherwise, uint64_t *ret,
		struct err *e);

/* Checks and copies the network settings of a body; *ret is NULL if there are none. */
int e2b_network(const json_t *network, json_t **ret, struct err *e);

/* Converts them to a narrowing (names/narrow.h): a new list of texts. `network` may be NULL.
 * -EINVAL for an invalid rule. */
int e2b_narrow(const json_t *network, bool internet, json_t **ret, struct err *e);

/* Kills a sandbox whose client, with that key, disconnected during creation. */
void e2b_kill_unwanted(struct api *a, const char *owner, const char *id);
/* Kills a sandbox that does not fulfil the request, and then answers with the reason. */
void e2b_kill_failed(struct request *r, const char *id, const struct err *why);

void e2b_get(struct request *r);
void e2b_destroy(struct request *r);
void e2b_connect(struct request *r);
void e2b_resume(struct request *r);
void e2b_set_timeout(struct request *r);
void e2b_refresh(struct request *r);
void e2b_pause(struct request *r);
void e2b_create(struct request *r);
void e2b_create_v2(struct request *r);
void e2b_list(struct request *r);
void e2b_list_v2(struct request *r);
void e2b_metrics(struct request *r);
void e2b_metrics_all(struct request *r);
void e2b_logs(struct request *r);
void e2b_logs_v2(struct request *r);
void e2b_set_network(struct request *r);
void e2b_snapshot(struct request *r);
void e2b_snapshots(struct request *r);
void e2b_fork(struct request *r);

/* 1 if the snapshot exists and is for that key (`all`: for any); 0 if not; or an error. */
int e2b_snapshot_is_for(const char *name, const char *owner, bool all, struct err *e);
/* False: the client has no such snapshot; nothing was answered. */
bool e2b_remove_snapshot(struct request *r, const char *name);
void e2b_teams(struct request *r);

/* Opens the client's template store. If an administrator names another key's template by id, opens
 * the store of that key. */
int e2b_template_store(const struct request *r, const char *ref, struct template_store *s,
		       struct err *e);
/* The same without a request; `all`: for an administrator. */
int e2b_template_store_of(bool all, const char *owner, const char *ref, struct template_store *s,
			  struct err *e);
void e2b_template_ask_file(struct request *r);
void e2b_template_put_file(struct request *r);
void e2b_template_build(struct request *r);
void e2b_template_status(struct request *r);
void e2b_template_new(struct request *r);
void e2b_templates(struct request *r);
void e2b_template_tag(struct request *r);
void e2b_template_untag(struct request *r);
void e2b_template_alias(struct request *r);
void e2b_template_tags(struct request *r);
void e2b_template_remove(struct request *r);

/* Frees all builds; their jobs continue. */
void e2b_builds_free(struct api *a);
