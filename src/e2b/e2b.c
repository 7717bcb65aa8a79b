/* SPDX-License-Identifier: Apache-2.0 */
/* The control plane of the E2B API as a part: its routes and its stores. */
#include "e2b/e2b.h"

#include "base/clock.h"
#include "image/image-store.h"

enum {
	BUILDS_OF_ONE = 2, /* running at the same time, per key */
	BUILDS_WAITING = 64,
	KEYS = ROLE_USER | ROLE_ADMIN,
	ANYBODY = ROLE_NOBODY | ROLE_USER | ROLE_ADMIN, /* the ticket decides */
};

static const struct route control_routes[] = {
	{ "POST", "/sandboxes", KEYS, e2b_create },
	{ "POST", "/v2/sandboxes", KEYS, e2b_create_v2 },
	{ "GET", "/sandboxes", KEYS, e2b_list },
	{ "GET", "/v2/sandboxes", KEYS, e2b_list_v2 },
	{ "GET", "/sandboxes/metrics", KEYS, e2b_metrics_all },
	{ "GET", "/sandboxes/{}", KEYS, e2b_get },
	{ "DELETE", "/sandboxes/{}", KEYS, e2b_destroy },
	{ "POST", "/sandboxes/{}/connect", KEYS, e2b_connect },
	{ "POST", "/v2/sandboxes/{}/connect", KEYS, e2b_connect },
	{ "POST", "/sandboxes/{}/resume", KEYS, e2b_resume },
	{ "POST", "/sandboxes/{}/timeout", KEYS, e2b_set_timeout },
	{ "POST", "/sandboxes/{}/refreshes", KEYS, e2b_refresh },
	{ "POST", "/sandboxes/{}/pause", KEYS, e2b_pause },
	{ "POST", "/sandboxes/{}/snapshots", KEYS, e2b_snapshot },
	{ "POST", "/sandboxes/{}/fork", KEYS, e2b_fork },
	{ "GET", "/snapshots", KEYS, e2b_snapshots },
	{ "PUT", "/sandboxes/{}/network", KEYS, e2b_set_network },
	{ "GET", "/sandboxes/{}/metrics", KEYS, e2b_metrics },
	{ "GET", "/sandboxes/{}/logs", KEYS, e2b_logs },
	{ "GET", "/v2/sandboxes/{}/logs", KEYS, e2b_logs_v2 },
	{ "GET", "/teams", KEYS, e2b_teams },
	{ NULL },
};

static const struct route template_routes[] = {
	{ "POST", "/v3/templates", KEYS, e2b_template_new, BODY_APART },
	{ "GET", "/templates", KEYS, e2b_templates, APART },
	{ "POST", "/templates/tags", KEYS, e2b_template_tag, BODY_APART },
	{ "DELETE", "/templates/tags", KEYS, e2b_template_untag, BODY_APART },
	{ "GET", "/templates/aliases/{}", KEYS, e2b_template_alias, APART },
	{ "GET", "/templates/{}/tags", KEYS, e2b_template_tags, APART },
	{ "GET", "/templates/{}/files/{}", KEYS, e2b_template_ask_file, APART },
	{ "PUT", "/templates/{}/files/{}", ANYBODY, e2b_template_put_file },
	{ "POST", "/v2/templates/{}/builds/{}", KEYS, e2b_template_build },
	{ "GET", "/templates/{}/builds/{}/status", KEYS, e2b_template_status, APART },
	{ "DELETE", "/templates/{}", KEYS, e2b_template_remove },
	{ NULL },
};

/* ---- the store of templates ---- */

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

/* Marks builds that died with the previous hutchd as failed; removes old unreferenced ones. */
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

static int begin(struct api *a, struct err *e)
{
	struct err own = ERR_INIT;

	/* Builds take hours, and each waiting recipe takes memory. */
	jobs_limit(a->pools[POOL_BUILD], BUILDS_OF_ONE, BUILDS_WAITING);
	if (template_each_store(look_at_store, NULL, &own) < 0)
		log_warning("templates: %s", own.msg);
	return 0;
}

static const struct route *const tables[] = { control_routes, template_routes, NULL };
const struct api_part e2b_part = { .routes = { [PLANE_CONTROL] = tables },
				   .begin = begin,
				   .end = e2b_builds_free };
