/* SPDX-License-Identifier: Apache-2.0 */
/* Reclaims everything that `hutch gc` finds outside the directories of sandboxes.
 *
 * Control groups: those named after our run directory whose sandbox has no directory. A directory
 * is made before its groups and removed after them, and ids are never reused. So if a group exists
 * and its directory is then not found, the sandbox is gone.
 *
 * Snapshots: an unfinished one is locked by its maker.
 *
 * Id ranges and image trees are locked by the processes that use them; if we can lock one, it is
 * free.
 *
 * Ledgers: those that no sandbox and no snapshot names, and no process has locked. */
#include "sandbox/gc.h"

#include <fcntl.h>
#include <string.h>

#include "base/fault.h"
#include "base/str.h"
#include "ledger/ledger.h"
#include "snapshot/snapshot.h"

struct groups {
	const struct state_root *root;
	const struct sandbox_gc *gc;
	struct err *e;
	int first; /* first error */
};

static int look_at_group(const char *name, void *arg)
{
	struct groups *g = arg;
	struct err one = ERR_INIT;
	char id[SPEC_ID + 1];

	if (!state_group_is_ours(g->root, name, id) ||
	    faccessat(g->root->dir, id, F_OK, AT_SYMLINK_NOFOLLOW) == 0 || errno != ENOENT)
		return 0;
	/* Removes the groups of that name in all hierarchies, so the next ones do not list it. */
	if (cgroup_remove(name, &one) == 0)
		g->gc->took(g->gc->arg, LEFT_GROUP, name);
	else if (g->first == 0)
		g->first = (*g->e = one).num;
	return 0;
}

int gc_groups(const struct state_root *root, const struct sandbox_gc *gc, struct err *e)
{
	struct groups g = { .root = root, .gc = gc, .e = e };
	int r = FAULT_ERR("gc-groups", e);

	if (r < 0)
		return r;
	r = cgroup_each(look_at_group, &g);
	if (g.first < 0)
		return g.first;
	return r < 0 ? err_set(e, r, "cannot list control groups: %s", strerror(-r)) : 0;
}

int gc_ids(const struct state_root *root, const struct sandbox_gc *gc, struct err *e)
{
	char count[24];
	size_t n = 0;
	int r = FAULT_ERR("gc-ids", e);

	if (r == 0)
		r = state_clean_ids(root, &n, e);
	(void)snprintf(count, sizeof(count), "%zu", n);
	if (n > 0)
		gc->took(gc->arg, LEFT_IDS, count);
	return r;
}

static void took_image(const char *name, void *arg)
{
	const struct sandbox_gc *gc = arg;

	gc->took(gc->arg, LEFT_IMAGE, name);
}

int gc_images(const struct sandbox_gc *gc, struct err *e)
{
	_cleanup_image_store_ struct image_store images = IMAGE_STORE_INIT;
	struct err none = ERR_INIT;
	struct id_ranges ids = { 0 };
	int r = image_store_open(&images, false, &none);

	if (r == -ENOENT)
		return 0; /* no process has made a store */
	if (r < 0)
		return (*e = none).num;
	r = FAULT_ERR("gc-images", e);
	if (r == 0)
		r = ids_find(&ids, e);
	if (r == 0)
		r = image_store_clean(&images, &ids, took_image, (void *)gc, e);
	return r < 0 ? r
		     : image_store_clean_trees(&images, &ids, sandbox_needs_image, took_image,
					       (void *)gc, e);
}

static void took_snapshot(const char *name, void *arg)
{
	const struct sandbox_gc *gc = arg;

	gc->took(gc->arg, LEFT_SNAPSHOT, name);
}

int gc_snapshots(const struct sandbox_gc *gc, struct err *e)
{
	int r = FAULT_ERR("gc-snapshots", e);

	return r < 0 ? r : snapshot_clean(took_snapshot, (void *)gc, e);
}

/* ---- ledgers ---- */

struct ledgers {
	char (*names)[SPEC_ID + 1];
	size_t n;
	bool *is_needed;
};

static void need(const struct ledgers *l, const char *name)
{
	for (size_t i = 0; i < l->n; i++)
		l->is_needed[i] |= str_eq(l->names[i], name);
}

static int need_of_sandboxes(const struct ledgers *l, const struct state_root *root, struct err *e)
{
	_cleanup_free_ char(*ids)[SPEC_ID + 1] = NULL;
	size_t n = 0;
	int r = state_list(root, &ids, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		_cleanup_spec_ struct spec spec = { 0 };
		_cleanup_close_ int dir = RETRY_EINTR(
			openat(root->dir, ids[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
		struct err ignored = ERR_INIT;

		need(l, ids[i]);
		if (dir >= 0 && spec_read(dir, &spec, &ignored) == 0)
			need(l, spec.ledger);
	}
	return r;
}

static int need_of_snapshots(const struct ledgers *l, struct err *e)
{
	_cleanup_json_ json_t *all = NULL;
	const json_t *one;
	size_t i;
	int r = snapshot_list(&all, e);

	if (r < 0)
		return r;
	json_array_foreach(all, i, one)
	{
		const char *id = json_string_value(json_object_get(one, "id"));
		_cleanup_spec_ struct spec was = { 0 };
		struct err ignored = ERR_INIT;

		if (!id || snapshot_spec(id, &was, &ignored) < 0)
			continue;
		need(l, was.id);
		need(l, was.ledger);
	}
	return 0;
}

/*
 * The names are read first: a ledger that is made meanwhile stays. Its user may become a snapshot
 * and that a sandbox while this looks, so it looks at sandboxes twice.
 */
int gc_ledgers(const struct state_root *root, const struct sandbox_gc *gc, struct err *e)
{
	_cleanup_free_ char(*names)[SPEC_ID + 1] = NULL;
	_cleanup_free_ bool *is_needed = NULL;
	_cleanup_close_ int dir = -EBADF;
	struct ledgers l = { 0 };
	struct err none = ERR_INIT;
	int r = ledger_open_all(&dir, &none);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return (*e = none).num;
	r = FAULT_ERR("gc-ledgers", e);
	if (r == 0)
		r = state_list_in(dir, "ledger", &names, &l.n, e);
	if (r < 0 || l.n == 0)
		return r;
	l.names = names;
	l.is_needed = is_needed = calloc(l.n, sizeof(*is_needed));
	if (!is_needed)
		return err_oom(e);
	r = need_of_sandboxes(&l, root, e);
	if (r == 0)
		r = need_of_snapshots(&l, e);
	if (r == 0)
		r = need_of_sandboxes(&l, root, e);
	for (size_t i = 0; r == 0 && i < l.n; i++)
		if (!is_needed[i] && ledger_remove_unused(dir, names[i]))
			gc->took(gc->arg, LEFT_LEDGER, names[i]);
	return r;
}
