/* SPDX-License-Identifier: Apache-2.0 */
/* Forks a running VM: makes a snapshot, and starts sandboxes from it. */
#include <string.h>

#include "base/fd.h"
#include "engine/engine.h"
#include "sandbox/sandbox.h"
#include "snapshot/snapshot.h"

enum {
	POLICY_MAX = 16 * 1024 * 1024,
};

int sandbox_read_plan(int dir, struct spec *ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(POLICY_MAX);
	struct err own = ERR_INIT;
	int r = spec_read(dir, ret, e);

	if (r < 0)
		return r;
	r = fd_read_file(dir, "policy.json", &b, &own);
	if (r == -ENOENT)
		return 0;
	if (r < 0) {
		spec_done(ret);
		return (*e = own).num;
	}
	ret->policy_text = strdup(buf_text(&b));
	return ret->policy_text ? 0 : err_oom(e);
}

/* Holds the snapshot by a lock. If this process is killed, the lock is released, and a gc removes
 * the snapshot. */
static int hold(struct sandbox_fork *f, struct err *e)
{
	char path[SNAPSHOT_PATH_MAX];
	int r = snapshot_path(f->snapshot, path, e);

	if (r == 0)
		r = snapshot_lock_shared(path, &f->held, e);
	return r < 0 ? err_wrap(e, "snapshot '%s'", f->snapshot) : 0;
}

int sandbox_fork_begin(const struct sandbox *s, struct sandbox_fork *ret, struct err *e)
{
	const struct engine *engine = NULL;
	int r = sandbox_read_plan(s->dir, &ret->plan, e);

	if (r < 0)
		return err_wrap(e, "sandbox %s", s->id);
	r = engine_of(&ret->plan, &engine, e);
	if (r == 0 && !engine_has(engine, ENGINE_FORKS)) {
		const char *level = level_names[engine_with(ENGINE_FORKS)->level];

		r = err_set(e, -EOPNOTSUPP,
			    "sandbox %s is of level %s, and only one of level %s can be forked: "
			    "hutch run --level %s",
			    s->id, level_names[engine->level], level, level);
	}
	if (r == 0)
		r = sandbox_save(s, WIRE_SAVE_FORK, ret->snapshot, e);
	if (r == 0)
		r = hold(ret, e);
	if (r == 0)
		r = sandbox_use_snapshot(ret->snapshot, &ret->plan, e);
	if (r < 0)
		sandbox_fork_end(ret);
	if (!ret->plan.ledger || !ret->plan.ledger[0])
		ret->plan.ledger = ret->plan.id;
	ret->plan.once = false; /* the original's client is not a client of its copies */
	return r;
}

int sandbox_fork_one(const struct state_root *root, const struct sandbox_fork *f, const char *api,
		     struct sandbox *ret, struct err *e)
{
	struct spec own = f->plan;

	own.api = api;
	return sandbox_start(root, &own, ret, NULL, e);
}

void sandbox_fork_end(struct sandbox_fork *f)
{
	struct err ignored = ERR_INIT;

	f->held = fd_close(f->held);
	if (f->snapshot[0])
		(void)snapshot_remove(f->snapshot, &ignored);
	f->snapshot[0] = '\0';
	spec_done(&f->plan);
}
