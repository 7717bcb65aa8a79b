/* SPDX-License-Identifier: Apache-2.0 */
/* Starts sandboxes from a snapshot of another one. The VM comes from the snapshot, everything else
 * from the plan, which is made now: a policy that was changed or revoked since does not come back
 * with the VM's memory. So plan and snapshot must agree on the VM's parts. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>

#include "base/fd.h"
#include "client/transfer.h"
#include "engine/engine.h"
#include "sandbox/sandbox.h"
#include "snapshot/snapshot.h"
#include "vm/host-config.h"

enum {
	END_S = 30,
};

/* Checks for room for all of its memory and disk. */
static int has_room(const struct sandbox *s, struct err *e)
{
	_cleanup_spec_ struct spec spec = { 0 };
	const struct engine *engine = NULL;
	int r = spec_read(s->dir, &spec, e);

	if (r < 0)
		return r;
	r = engine_of(&spec, &engine, e);
	return r < 0 || !engine_has(engine, ENGINE_SNAPSHOTS)
		       ? r
		       : host_snapshot_room(spec_snapshot_max(&spec), e);
}

int sandbox_save(const struct sandbox *s, enum wire_save what_for,
		 char ret[static SANDBOX_SNAPSHOT], struct err *e)
{
	const bool suspend = what_for == WIRE_SAVE_SUSPEND;
	_cleanup_transfer_ struct transfer t = TRANSFER_INIT(-EBADF);
	_cleanup_close_ int fd = -EBADF, warden = -EBADF;
	struct pollfd p = { .events = POLLIN };
	pid_t pid;

	static_assert((int)SANDBOX_SNAPSHOT == (int)TRANSFER_NAME, "one name");
	if (sandbox_connect(s, &fd, e) < 0)
		return e->num;
	if (has_room(s, e) < 0)
		return err_wrap(e, "sandbox %s", s->id);
	if (suspend && state_warden(s->dir, &warden, &pid) < 0)
		return err_set(e, -ESRCH, "sandbox %s is ending", s->id);
	t.fd = fd;
	if (transfer_save(&t, what_for, ret, e) < 0)
		return err_wrap(e, "sandbox %s", s->id);
	/* It can be resumed after its warden has released everything. */
	p.fd = warden;
	if (suspend && RETRY_EINTR(poll(&p, 1, END_S * 1000)) == 0)
		return err_set(e, -ETIME, "sandbox %s is saved, but does not end", s->id);
	return 0;
}

static int agree(const struct spec *plan, const struct spec *was, struct err *e)
{
	static const struct {
		const char *what;
		size_t at;
	} sizes[] = { { "memory", offsetof(struct spec, limits.memory) },
		      { "disk", offsetof(struct spec, limits.disk) },
		      { "cpus", offsetof(struct spec, limits.cpus) } };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		if (*(const uint64_t *)((const char *)plan + sizes[i].at) !=
		    *(const uint64_t *)((const char *)was + sizes[i].at))
			return err_set(e, -EINVAL,
				       "the snapshot was made with another '%s' than the policy of "
				       "agent '%s' gives",
				       sizes[i].what, plan->agent);
	if (plan->nested != was->nested)
		return err_set(e, -EINVAL,
			       "the snapshot was made %s isolation.nested, which the policy of "
			       "agent '%s' %s",
			       was->nested ? "with" : "without", plan->agent,
			       plan->nested ? "sets" : "does not set");
	return 0;
}

/* The plan, with the snapshot's VM and the tree of its image. */
static int combine(const struct spec *plan, const struct spec *was, const char *path,
		   struct spec *ret, struct err *e)
{
	struct spec s = *plan;
	_cleanup_free_ char *text = NULL;

	s.level = was->level;
	s.engine = was->engine;
	s.machine = was->machine;
	s.machine.snapshot = path;
	s.image = was->image;
	s.image_digest = was->image_digest;
	s.root = was->root;
	text = spec_write(&s);
	return text ? spec_parse(text, strlen(text), ret, e) : err_oom(e);
}

int sandbox_use_snapshot(const char *name, struct spec *plan, struct err *e)
{
	_cleanup_spec_ struct spec was = { 0 }, next = { 0 };
	char path[PATH_MAX];
	int r = snapshot_spec(name, &was, e);

	if (r == 0)
		r = snapshot_path(name, path, e);
	if (r == 0)
		r = agree(plan, &was, e);
	if (r == 0)
		r = combine(plan, &was, path, &next, e);
	if (r < 0)
		return r;
	next.policy_text = TAKE_PTR(plan->policy_text);
	spec_done(plan);
	*plan = next;
	next = (struct spec){ 0 };
	return 0;
}

/* ---- after a restart of the host ---- */

/* Claims a half-restored directory. -EBUSY: another process restores it now; else that process was
 * killed. */
static int take_half(const struct state_root *root, const char *id, int *ret_dir)
{
	_cleanup_close_ int dir =
		openat(root->dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return dir < 0 ? -errno : state_claim(dir, ret_dir);
}

/* Copies the files that the warden saved (warden/saving.c), but for the spec; the next warden
 * restores STATE_WIDENED itself. */
static int copy_back(const char *name, int dir, struct err *e)
{
	static const char *const files[] = { "policy.json", "api.json" };
	_cleanup_close_ int box = -EBADF;
	int r = snapshot_open_box(name, &box, e);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(SPEC_FILE_MAX);
		struct err none = ERR_INIT;

		r = fd_read_file(box, files[i], &b, &none);
		if (r == 0)
			r = state_write(dir, files[i], b.data, b.len, e);
		else
			r = r == -ENOENT ? 0 : err_set(e, r, "snapshot '%s': %s", name, none.msg);
	}
	return r;
}

/* Writes the spec last: without it, the directory is incomplete. */
static int put_back(const struct state_root *root, const char *id, const char *name, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	_cleanup_spec_ struct spec was = { 0 };
	int r = snapshot_spec(name, &was, e);

	if (r < 0)
		return r;
	r = state_make(root, id, &dir);
	if (r == -EAGAIN)
		r = take_half(root, id, &dir);
	if (r < 0)
		return r == -EBUSY || r == -ENOENT
			       ? 0
			       : err_set(e, r, "cannot make the directory of sandbox %s: %s", id,
					 strerror(-r));
	r = state_write(dir, STATE_SUSPENDED, name, strlen(name), e);
	if (r == 0)
		r = copy_back(name, dir, e);
	return r < 0 ? r : spec_store(dir, &was, e);
}

/* The spec is written last, so it shows a complete directory. */
static bool is_there(const struct state_root *root, const char *id)
{
	char path[SPEC_ID + 16];

	(void)snprintf(path, sizeof(path), "%s/spec.json", id);
	return faccessat(root->dir, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int sandbox_restore(const struct state_root *root, struct err *e)
{
	_cleanup_json_ json_t *all = NULL;
	const json_t *one;
	size_t i;
	int r = snapshot_list(&all, e);

	if (r < 0)
		return r;
	json_array_foreach(all, i, one)
	{
		const json_t *info = json_object_get(one, "info");
		const char *name = json_string_value(json_object_get(one, "id"));
		const char *id = json_string_value(json_object_get(info, "sandbox"));
		struct err own = ERR_INIT;

		if (!name || !id || !spec_id_valid(id) ||
		    !json_is_true(json_object_get(info, "suspended")) || is_there(root, id))
			continue;
		if (put_back(root, id, name, &own) < 0 && r == 0)
			r = (*e = own).num;
	}
	return r;
}
