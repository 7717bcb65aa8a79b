/* SPDX-License-Identifier: Apache-2.0 */
#include "api/api.h"

#include <sodium.h>

#include "api/box.h"
#include "api/turn.h"
#include "base/clock.h"
#include "state/kept.h"

enum {
	SWEEP_S = 60,
};

/* One slot of each pool is reserved for owners without a job in it. */
static const size_t pool_slots[POOLS] = {
	[POOL_START] = 8, [POOL_END] = 8, [POOL_LIFE] = 8, [POOL_LOOK] = 8, [POOL_BUILD] = 6,
};

static int count(struct box *b, void *arg)
{
	(*(size_t *)arg)++;
	return 0;
}

/* Reclaims dead sandboxes, which happens at a start and never at a stop, and finds the living. */
static void look_around(struct api *a)
{
	struct err e = ERR_INIT;
	size_t n = 0;

	if (sandbox_reclaim(&a->root, &e) < 0)
		log_warning("cannot reclaim dead sandboxes: %s", e.msg);
	if (sandbox_restore(&a->root, &e) < 0)
		log_warning("cannot find suspended sandboxes: %s", e.msg);
	(void)box_each(a, count, &n);
	if (n > 0)
		log_info("%zu sandboxes found", n);
}

/* ---- ended sandboxes ---- */

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

/* Each start reclaims too; this timer is for an idle hutchd. */
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
	if (r == 0)
		look_around(a);
	for (const struct api_part *const *part = config->parts; r == 0 && *part; part++)
		r = (*part)->begin ? (*part)->begin(a, e) : 0;
	if (r < 0) {
		(void)api_free(a);
		return r;
	}
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
	for (const struct api_part *const *part = a->config->parts; *part; part++)
		if ((*part)->end)
			(*part)->end(a);
	for (size_t i = 0; i < POOLS; i++)
		a->pools[i] = jobs_free(a->pools[i]);
	state_root_close(&a->root);
	free(a);
	return NULL;
}
