/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the users of images and snapshots, to name them. A running sandbox also holds a lock on its
 * image's tree. No process holds what saved VMs need: a saved VM needs its image, because its root
 * is the image as a disk, a file in the image's tree. A suspended sandbox needs its snapshot. */
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "sandbox/sandbox.h"
#include "snapshot/snapshot.h"

static bool is_of_image(const json_t *one, const char *digest)
{
	_cleanup_spec_ struct spec was = { 0 };
	const char *name = json_string_value(json_object_get(one, "id"));
	struct err ignored = ERR_INIT;

	/* An unreadable snapshot cannot be started. */
	return str_eq(json_string_value(json_object_get(one, "kind")), "saved") && name &&
	       snapshot_spec(name, &was, &ignored) == 0 && str_eq(was.image_digest, digest);
}

static int refuse(const json_t *one, size_t others, struct err *e)
{
	const json_t *info = json_object_get(one, "info");
	const char *id = json_string_value(json_object_get(info, "sandbox"));
	char more[64] = "";

	if (others > 0)
		(void)snprintf(more, sizeof(more), "; %zu more: hutch snapshot ls", others);
	if (id && json_is_true(json_object_get(info, "suspended")))
		return err_set(e, -EBUSY,
			       "sandbox %s, which is suspended, needs the image: hutch resume %s, "
			       "or hutch rm -f %s%s",
			       id, id, id, more);
	id = json_string_value(json_object_get(one, "id"));
	return err_set(e, -EBUSY, "snapshot %s needs the image: hutch snapshot rm %s%s", id, id,
		       more);
}

/* The spec names its image before the warden locks the tree. */
static int running_of_image(const struct state_root *root, const char *id, const char *digest,
			    struct err *e)
{
	_cleanup_close_ int dir =
		RETRY_EINTR(openat(root->dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	_cleanup_spec_ struct spec spec = { 0 };
	struct err ignored = ERR_INIT;
	enum state_phase phase = dir < 0 ? STATE_DEAD : state_phase(dir);

	if (phase == STATE_ENDED || phase == STATE_DEAD || phase == STATE_ON_DISK ||
	    spec_read(dir, &spec, &ignored) < 0 || !str_eq(spec.image_digest, digest))
		return 0;
	return err_set(e, -EBUSY, "sandbox %s uses the image: hutch rm -f %s", id, id);
}

static int running_need_image(const char *digest, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_free_ char(*ids)[SPEC_ID + 1] = NULL;
	size_t n = 0;
	int r = state_root_open(&root, e);

	if (r == 0)
		r = state_list(&root, &ids, &n, e);
	for (size_t i = 0; i < n && r == 0; i++)
		r = running_of_image(&root, ids[i], digest, e);
	return r;
}

int sandbox_needs_image(const char *digest, struct err *e)
{
	_cleanup_json_ json_t *all = NULL;
	const json_t *one, *first = NULL;
	size_t i, n = 0;
	int r = running_need_image(digest, e);

	if (r == 0)
		r = snapshot_list(&all, e);
	if (r < 0)
		return r;
	json_array_foreach(all, i, one)
	{
		if (!is_of_image(one, digest))
			continue;
		if (n++ == 0)
			first = one;
	}
	return n > 0 ? refuse(first, n - 1, e) : 0;
}

int sandbox_needs_snapshot(const char *name, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_spec_ struct spec was = { 0 };
	_cleanup_close_ int dir = -EBADF;
	struct err ignored = ERR_INIT;
	char named[SANDBOX_SNAPSHOT];
	int r;

	/* Nothing can start from an unreadable snapshot. */
	if (snapshot_spec(name, &was, &ignored) < 0)
		return 0;
	r = state_root_open(&root, e);
	if (r < 0)
		return r;
	dir = RETRY_EINTR(
		openat(root.dir, was.id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (dir < 0)
		return errno == ENOENT ? 0 : err_errno(e, "sandbox %s", was.id);
	r = fd_read_line(dir, STATE_SUSPENDED, named, sizeof(named));
	if (r == -ENOENT || (r >= 0 && !str_eq(named, name)))
		return 0;
	if (r < 0)
		return err_set(e, r, "sandbox %s: %s", was.id, strerror(-r));
	return err_set(e, -EBUSY,
		       "sandbox %s is suspended in snapshot %s: hutch resume %s, or hutch rm -f %s",
		       was.id, name, was.id, was.id);
}
