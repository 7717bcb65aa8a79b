/* SPDX-License-Identifier: Apache-2.0 */
/* Adds, changes and revokes keys: reads, changes and replaces the file under a lock. */
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "keys/keys.h"

int key_draw(const char *name, enum key_role role, uint64_t expires,
	     char ret_text[static KEY_TEXT + 1], struct key_info *ret, struct err *e)
{
	struct key_info info = { .role = role, .created = clock_wall(), .expires = expires };
	uint8_t random[KEY_DIGITS / 2];
	char digits[KEY_DIGITS + 1];

	if (name && !key_name_valid(name))
		return err_set(e, -EINVAL,
			       "'%.80s' is not a name: names have 1 to 63 of a-z, 0-9 and hyphen, "
			       "and are not 8 hex digits",
			       name);
	/* randombytes_buf() of libsodium would abort the process on failure. */
	if (RETRY_EINTR(getrandom(random, sizeof(random), 0)) != (ssize_t)sizeof(random))
		return err_errno(e, "cannot make a key");
	(void)sodium_bin2hex(digits, sizeof(digits), random, sizeof(random));
	(void)snprintf(ret_text, KEY_TEXT + 1, KEY_START "%s", digits);
	(void)snprintf(info.prefix, sizeof(info.prefix), "%.*s", KEY_PREFIX, digits);
	if (name)
		(void)snprintf(info.name, sizeof(info.name), "%s", name);
	else
		(void)snprintf(info.name, sizeof(info.name), "key-%s", info.prefix);
	*ret = info;
	sodium_memzero(random, sizeof(random));
	sodium_memzero(digits, sizeof(digits));
	return 0;
}

static int lock(const struct keys *k, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = path_open_nofollow(k->dir, "keys.lock", O_RDWR | O_CREAT, 0600);

	if (fd < 0)
		return err_set(e, fd, "cannot open the lock of '%s': %s", k->path, strerror(-fd));
	if (RETRY_EINTR(flock(fd, LOCK_EX)) < 0)
		return err_errno(e, "cannot lock '%s'", k->path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int store(struct keys *k, const struct key_entry *list, size_t n, struct err *e)
{
	_cleanup_free_ char *text = keys_write_text(list, n);

	if (!text)
		return err_oom(e);
	return fd_replace_file(k->dir, KEYS_FILE, 0600, text, strlen(text), e);
}

static bool is(const struct key_info *info, const char *which)
{
	const char *digits = str_has_prefix(which, KEY_START) ? which + STRLEN(KEY_START) : which;

	return str_eq(info->name, which) || str_eq(info->prefix, digits);
}

const struct key_entry *keys_find(const struct keys *k, const char *which)
{
	for (size_t i = 0; i < k->n; i++)
		if (is(&k->list[i].info, which))
			return &k->list[i];
	return NULL;
}

/* Copies the list, with room for one more key. */
static struct key_entry *copy(const struct keys *k)
{
	struct key_entry *list = calloc(k->n + 1, sizeof(*list));

	if (list && k->n > 0)
		memcpy(list, k->list, k->n * sizeof(*list));
	return list;
}

static int add(struct keys *k, const struct key_info *info, const char *text, struct err *e)
{
	_cleanup_free_ struct key_entry *list = NULL;

	if (keys_find(k, info->name))
		return err_set(e, -EEXIST,
			       "there is a key '%s': revoke it first, or choose another name",
			       info->name);
	if (keys_find(k, info->prefix))
		return err_set(e, -EEXIST, "another key begins with the same digits: try again");
	if (k->n >= KEYS_MAX)
		return err_set(e, -E2BIG, "there are already %d keys, the maximum: revoke some",
			       KEYS_MAX);
	list = copy(k);
	if (!list)
		return err_oom(e);
	list[k->n].info = *info;
	key_hash(text, strlen(text), list[k->n].hash);
	return store(k, list, k->n + 1, e);
}

/* A copy of the list, and where `which` is in it. */
static int copy_with(const struct keys *k, const char *which, struct key_entry **ret,
		     size_t *ret_at, struct err *e)
{
	const struct key_entry *found = keys_find(k, which);

	if (!found)
		return err_set(e, -ENOENT, "no key '%.80s': hutch key ls", which);
	*ret_at = (size_t)(found - k->list);
	*ret = copy(k);
	return *ret ? 0 : err_oom(e);
}

static int take_away(struct keys *k, const char *which, struct key_info *ret, struct err *e)
{
	_cleanup_free_ struct key_entry *list = NULL;
	size_t at;
	int r = copy_with(k, which, &list, &at, e);

	if (r < 0)
		return r;
	memmove(&list[at], &list[at + 1], (k->n - at) * sizeof(*list));
	r = store(k, list, k->n - 1, e);
	if (r == 0)
		*ret = k->list[at].info;
	return r;
}

int keys_add(struct keys *k, const struct key_info *info, const char *text, struct err *e)
{
	_cleanup_close_ int held = -EBADF;
	int r = lock(k, &held, e);

	assert(key_text_valid(text, strlen(text)));
	if (r == 0)
		r = keys_load(k, e);
	if (r == 0)
		r = add(k, info, text, e);
	k->looked = 0;
	return r;
}

int keys_revoke(struct keys *k, const char *which, struct key_info *ret, struct err *e)
{
	_cleanup_close_ int held = -EBADF;
	int r = lock(k, &held, e);

	if (r == 0)
		r = keys_load(k, e);
	if (r == 0)
		r = take_away(k, which, ret, e);
	k->looked = 0;
	return r;
}

static int change_grant(struct key_info *info, const struct key_change *c, struct err *e)
{
	if (info->role != KEY_USER)
		return err_set(
			e, -EINVAL,
			"key '%s' has role %s: agents, level and limits apply to role user only",
			info->name, key_role_names[info->role]);
	return key_grant_change(&info->grant, c, e);
}

static int set_grant(struct keys *k, const char *which, const struct key_change *c,
		     struct key_info *ret, struct err *e)
{
	_cleanup_free_ struct key_entry *list = NULL;
	size_t at;
	int r = copy_with(k, which, &list, &at, e);

	if (r < 0)
		return r;
	r = change_grant(&list[at].info, c, e);
	if (r == 0)
		r = store(k, list, k->n, e);
	if (r == 0)
		*ret = list[at].info;
	return r;
}

int keys_set_grant(struct keys *k, const char *which, const struct key_change *c,
		   struct key_info *ret, struct err *e)
{
	_cleanup_close_ int held = -EBADF;
	int r = lock(k, &held, e);

	if (r == 0)
		r = keys_load(k, e);
	if (r == 0)
		r = set_grant(k, which, c, ret, e);
	k->looked = 0;
	return r;
}
