/* SPDX-License-Identifier: Apache-2.0 */
#include "api.h"

#include <sodium.h>

#include "api-inner.h"
#include "clock.h"
#include "image-store.h"
#include "kept.h"
#include "mcp-http.h"
#include "records-watch.h"
#include "template.h"
#include "turn.h"

enum {
	SWEEP_S = 60,
	BUILDS_OF_ONE = 2, /* at once, of one key */
	BUILDS_WAITING = 64,
};

/* One slot of each is only for owners that have no job there. */
static const size_t pool_slots[POOLS] = {
	[POOL_START] = 8, [POOL_END] = 8, [POOL_LIFE] = 8, [POOL_LOOK] = 8, [POOL_BUILD] = 6,
};

static void remove_image(const char *name, void *arg)
{
	_cleanup_image_store_ struct image_store s = IMAGE_STORE_INIT;
	struct id_ranges ids = { 0 };
	struct err e = ERR_INIT;
	bool tree = false;
	int r = image_store_open(&s, false, &e);

	if (r == 0)
		r = ids_find(&ids, &e);
	if (r == 0)
		r = image_store_remove(&s, name, &ids, sandbox_needs_image, &tree, &e);
	if (r < 0 && r != -ENOENT)
		log_warning("cannot remove the image of an old build: %s", e.msg);
}

/* Builds that died with who served before us have failed, and old ones that nobody means go. */
static int look_at_store(const struct template_store *s, void *arg, struct err *e)
{
	struct err own = ERR_INIT;
	int r = template_recover(s, "hutchd was started again", &own);

	if (r == 0)
		r = template_clean(s, clock_wall(), remove_image, NULL, &own);
	if (r < 0)
		log_warning("templates of '%s': %s", s->owner, own.msg);
	return 0;
}

static void look_at_templates(void)
{
	struct err e = ERR_INIT;

	if (template_each_store(look_at_store, NULL, &e) < 0)
		log_warning("templates: %s", e.msg);
}

static int count(struct box *b, void *arg)
{
	(*(size_t *)arg)++;
	return 0;
}

/* What is dead is taken back at our start, and not at anybody's stop; what lives is found. */
static void look_around(struct api *a)
{
	struct err e = ERR_INIT;
	size_t n = 0;

	if (sandbox_reclaim(&a->root, &e) < 0)
		log_warning("cannot take back what dead sandboxes left: %s", e.msg);
	if (sandbox_restore(&a->root, &e) < 0)
		log_warning("cannot find suspended sandboxes: %s", e.msg);
	look_at_templates();
	(void)box_each(a, count, &n);
	if (n > 0)
		log_info("%zu sandboxes found", n);
}

/* ---- what has ended ---- */

static int sweep_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	int r = state_root_open(&root, e);

	return r < 0 ? r : sandbox_reclaim(&root, e);
}

static void sweep_done(void *arg, const json_t *result, const struct err *e)
{
	if (!result)
		log_warning("cannot remove old ended sandboxes: %s; try 'hutch gc'", e->msg);
}

/* Every start does it too: this is for a hutchd of whom nobody wants anything. */
static void sweep(struct loop_timer *t)
{
	static const struct job_ops ops = { .work = sweep_work, .done = sweep_done };
	struct api *a = t->arg;
	struct err e = ERR_INIT;
	struct job *job;

	if (kept_is_due(&a->root) && job_start(a->pools[POOL_END], "", &ops, a, &job, &e) < 0)
		log_warning("cannot remove old ended sandboxes: %s; try 'hutch gc'", e.msg);
	(void)loop_set_timer(a->config->loop, t, clock_mono() + SWEEP_S * NSEC_PER_SEC);
}

int api_new(const struct api_config *config, struct api **ret, struct err *e)
{
	struct api *a = calloc(1, sizeof(*a));
	int r;

	if (!a || sodium_init() < 0) {
		free(a);
		return err_oom(e);
	}
	*a = (struct api){ .config = config, .root = STATE_ROOT_INIT, .started = clock_wall() };
	randombytes_buf(a->secret, sizeof(a->secret));
	r = state_root_open(&a->root, e);
	for (size_t i = 0; r == 0 && i < POOLS; i++)
		r = jobs_new(config->loop, pool_slots[i], &a->pools[i], e);
	/* They take hours, and a recipe waits in memory. */
	if (r == 0)
		jobs_limit(a->pools[POOL_BUILD], BUILDS_OF_ONE, BUILDS_WAITING);
	if (r == 0)
		r = records_watch_new(config->loop, &a->records, e);
	if (r == 0)
		r = mcp_sessions_new(config->loop, &a->mcp, e);
	if (r < 0) {
		(void)api_free(a);
		return r;
	}
	look_around(a);
	a->sweep = (struct loop_timer){ .cb = sweep, .arg = a };
	if (loop_set_timer(config->loop, &a->sweep, clock_mono() + SWEEP_S * NSEC_PER_SEC) < 0) {
		(void)api_free(a);
		return err_oom(e);
	}
	*ret = a;
	return 0;
}

struct api *api_free(struct api *a)
{
	if (!a)
		return NULL;
	loop_del_timer(&a->sweep);
	boxes_free(a);
	turns_free(a);
	a->records = records_watch_free(a->records);
	a->mcp = mcp_sessions_free(a->mcp);
	for (size_t i = 0; i < POOLS; i++)
		a->pools[i] = jobs_free(a->pools[i]);
	builds_free(a);
	state_root_close(&a->root);
	free(a);
	return NULL;
}
