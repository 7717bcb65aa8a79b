/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/quota-enter.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "policy/value.h"

/* ---- the lock ---- */

static int lock(const struct state_root *root, const char *owner, int *ret, struct err *e)
{
	_cleanup_close_ int dir = -EBADF, fd = -EBADF;

	if (mkdirat(root->dir, "../owners", 0700) < 0 && errno != EEXIST)
		return err_errno(e, "cannot make '%s/owners'", root->path);
	dir = RETRY_EINTR(
		openat(root->dir, "../owners", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (dir < 0)
		return err_errno(e, "cannot open '%s/owners'", root->path);
	fd = path_open_nofollow(dir, owner, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		return err_set(e, fd, "cannot open '%s/owners/%s': %s", root->path, owner,
			       strerror(-fd));
	if (RETRY_EINTR(flock(fd, LOCK_EX)) < 0)
		return err_errno(e, "cannot lock '%s/owners/%s'", root->path, owner);
	*ret = TAKE_FD(fd);
	return 0;
}

/* ---- the owner's sandboxes ---- */

static void add(const struct spec *s, bool build, struct quota *sum)
{
	const uint64_t takes[QUOTA_KINDS] = { [QUOTA_SANDBOXES] = 1,
					      [QUOTA_CPUS] = s->limits.cpus,
					      [QUOTA_MEMORY] = s->limits.memory,
					      [QUOTA_DISK] = s->limits.disk,
					      [QUOTA_BUILDS] = build };

	for (size_t i = 0; i < QUOTA_KINDS; i++)
		if (__builtin_add_overflow(sum->most[i], takes[i], &sum->most[i]))
			sum->most[i] = UINT64_MAX;
}

static bool has_place(int dir)
{
	const enum state_phase phase = state_phase(dir);

	return phase != STATE_ENDED && phase != STATE_DEAD;
}

/* An unreadable sandbox may be the owner's: reject new ones. */
static int add_one(const struct state_root *root, const char *id, const char *owner,
		   struct quota *sum, struct err *e)
{
	_cleanup_spec_ struct spec s = { 0 };
	_cleanup_close_ int dir = -EBADF;
	char name[SPEC_OWNER_MAX + 1];
	bool build = false;
	int r;

	dir = RETRY_EINTR(openat(root->dir, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (dir < 0)
		return errno == ENOENT ? 0 : err_errno(e, "cannot open sandbox %s", id);
	/* Without a spec it has another owner: this owner's specs are written under the lock. */
	if (faccessat(dir, "spec.json", F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return 0;
	r = spec_read(dir, &s, e);
	if (r == 0)
		r = spec_owner(&s, name, e);
	if (r == 0)
		r = spec_is_build(&s, &build, e);
	if (r < 0)
		return has_place(dir) ? err_wrap(e, "sandbox %s", id) : 0;
	if (str_eq(name, owner) && has_place(dir))
		add(&s, build, sum);
	return 0;
}

static int add_all(const struct state_root *root, const char *owner, struct quota *sum,
		   struct err *e)
{
	_cleanup_free_ char(*ids)[SPEC_ID + 1] = NULL;
	size_t n = 0;
	int r = state_list(root, &ids, &n, e);

	for (size_t i = 0; i < n && r == 0; i++)
		r = add_one(root, ids[i], owner, sum, e);
	return r;
}

/* ---- comparing ---- */

static const char *shown(enum quota_kind kind, uint64_t value, char out[static VALUE_HINT_MAX])
{
	if (quota_is_count(kind))
		(void)snprintf(out, VALUE_HINT_MAX, "%llu", (unsigned long long)value);
	else if (kind == QUOTA_CPUS)
		(void)snprintf(out, VALUE_HINT_MAX, "%llu.%03llu", (unsigned long long)value / 1000,
			       (unsigned long long)value % 1000);
	else
		(void)value_format_size(value, out);
	return out;
}

int quota_compare(const char *owner, enum quota_kind kind, uint64_t most, uint64_t has,
		  uint64_t with, struct err *e)
{
	char a[VALUE_HINT_MAX], b[VALUE_HINT_MAX], c[VALUE_HINT_MAX];

	if (most == 0 || with <= most)
		return 0;
	return err_set(e, -EUSERS,
		       "key '%s' may have %s %s, has %s, and one more would make it %s: %s, or ask "
		       "the operator for more",
		       owner, shown(kind, most, a), quota_names[kind], shown(kind, has, b),
		       shown(kind, with, c),
		       kind == QUOTA_BUILDS ? "wait for a build to end" : "end a sandbox");
}

int quota_enter(const struct state_root *root, const struct spec *spec, int *ret_lock,
		struct err *e)
{
	_cleanup_close_ int held = -EBADF;
	struct quota has = { 0 }, with;
	char owner[SPEC_OWNER_MAX + 1];
	bool build = false;
	int r = spec_owner(spec, owner, e);

	if (r == 0)
		r = spec_is_build(spec, &build, e);

	if (r == 0 && !owner[0])
		r = err_set(e, -EINVAL, "a quota without an owner");
	if (r == 0)
		r = lock(root, owner, &held, e);
	if (r == 0)
		r = add_all(root, owner, &has, e);
	if (r < 0)
		return r;
	with = has;
	add(spec, build, &with);
	for (enum quota_kind i = 0; i < QUOTA_KINDS && r == 0; i++)
		r = quota_compare(owner, i, spec->quota->most[i], has.most[i], with.most[i], e);
	if (r == 0)
		*ret_lock = TAKE_FD(held);
	return r;
}
