/* SPDX-License-Identifier: Apache-2.0 */
/* Gets, sets, removes and lists secrets. */
#include "secret/change.h"

#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "base/str.h"
#include "secret/inner.h"

/* ---- reading ---- */

static int read_value_file(const struct secret_store *s, const char *name, struct buf *ret,
			   struct err *e)
{
	char file[SECRET_FILE_NAME];
	int r = secret_name_check(name, e);

	if (r == 0)
		r = s->dir < 0
			    ? -ENOENT
			    : secret_read_file(s, secret_file_name(name, SECRET_VALUE_FILE, file),
					       ret, e);
	return r == -ENOENT ? secret_missing(s, name, e) : r;
}

/* `token`: of a refreshed secret, its token instead of the credential. */
static int get(const struct secret_store *s, const char *name, const struct buf *text, bool token,
	       struct buf *ret, struct err *e)
{
	_cleanup_secret_info_ struct secret_info info = { 0 };
	uint8_t key[SECRET_KEY];
	int r = secret_key(s, false, false, key, e);

	if (r < 0)
		return r;
	r = secret_read_info(text, &info, e);
	(void)snprintf(info.name, sizeof(info.name), "%s", name);
	if (r == 0)
		r = token && secret_is_refreshed(info.source)
			    ? secret_token_get(s, key, &info, ret, e)
			    : secret_unseal(key, name, text, ret, e);
	sodium_memzero(key, sizeof(key));
	if (r == -EBADMSG)
		return err_set(
			e, r,
			"cannot unseal secret '%s': %s; restore the files '%s" SECRET_VALUE_FILE
			"' and '" KEY_FILE "', or set the secret again with "
			"'hutch secret set --replace %s'",
			name, (const char *)e->msg, name, name);
	return r < 0 ? err_wrap(e, "secret '%s'", name) : 0;
}

int secret_get(const struct secret_store *s, const char *name, struct buf *ret, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(SECRET_FILE_MAX);
	int r = read_value_file(s, name, &text, e);

	return r < 0 ? r : get(s, name, &text, true, ret, e);
}

int secret_credential(const struct secret_store *s, const char *name, struct secret_info *ret_info,
		      struct buf *ret, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(SECRET_FILE_MAX);
	int r = read_value_file(s, name, &text, e);

	if (r == 0)
		r = secret_read_info(&text, ret_info, e);
	(void)snprintf(ret_info->name, sizeof(ret_info->name), "%s", name);
	return r < 0 ? r : get(s, name, &text, false, ret, e);
}

static int read_info(const struct secret_store *s, const char *name, struct secret_info *ret,
		     struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(SECRET_FILE_MAX);
	int r;

	(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	r = read_value_file(s, name, &text, e);
	if (r == 0 && secret_read_info(&text, ret, e) < 0)
		r = err_wrap(e, "file '%s" SECRET_VALUE_FILE "' of the store of secrets", name);
	return r < 0 ? r : secret_read_notes(s, ret, e);
}

int secret_find(const struct secret_store *s, const char *name, struct secret_info *ret,
		struct err *e)
{
	_cleanup_secret_info_ struct secret_info info = { 0 };
	int r = read_info(s, name, &info, e);

	if (r < 0)
		return r;
	*ret = info;
	info = (struct secret_info){ 0 };
	return 0;
}

void secret_infos_free(struct secret_info *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		secret_info_done(&list[i]);
	free(list);
}

int secret_store_check(const struct secret_store *s, size_t *ret_n, struct err *e)
{
	_cleanup_free_ secret_name *names = NULL;
	size_t n = 0;
	int r = secret_names(s, &names, &n, e);

	for (size_t i = 0; r == 0 && i < n; i++) {
		_cleanup_secret_ struct buf value = BUF_INIT(SECRET_VALUE_MAX + 1);
		_cleanup_secret_info_ struct secret_info info = { 0 };

		r = secret_credential(s, names[i], &info, &value, e);
		if (r == -ENOENT) { /* removed in the meantime */
			*e = (struct err)ERR_INIT;
			r = 0;
		}
	}
	if (r == 0)
		*ret_n = n;
	return r;
}

int secret_store_list(const struct secret_store *s, struct secret_info **ret, size_t *ret_n,
		      struct err *e)
{
	_cleanup_free_ secret_name *names = NULL;
	struct secret_info *list;
	size_t n_names = 0, n = 0;
	int r = secret_names(s, &names, &n_names, e);

	if (r < 0)
		return r;
	list = calloc(MAX(n_names, (size_t)1), sizeof(*list));
	if (!list)
		return err_oom(e);
	for (size_t i = 0; i < n_names; i++) {
		struct err trouble = ERR_INIT;

		r = read_info(s, names[i], &list[n], &trouble);
		list[n].trouble = trouble;
		if (r == -ENOENT) /* removed in the meantime */
			secret_info_done(&list[n]);
		else
			n++;
	}
	*ret = list;
	*ret_n = n;
	return 0;
}

/* ---- changes; the caller holds the lock ---- */

/* Removes temporary files of killed writers: all writers hold the lock. */
static void sweep(const struct secret_store *s)
{
	DIR *d = fd_list(s->dir);
	struct dirent *entry;

	if (!d)
		return;
	while ((entry = readdir(d)))
		if (str_has_suffix(entry->d_name, ".tmp"))
			(void)unlinkat(s->dir, entry->d_name, 0);
	(void)closedir(d);
}

int secret_exists(const char *name, struct err *e)
{
	return err_set(e, -EEXIST,
		       "there is a secret '%s': use 'hutch secret rotate %s' for a new value, or "
		       "--replace",
		       name, name);
}

static int check_how(const struct secret_store *s, const char *name, enum secret_how how,
		     bool *ret_new, struct err *e)
{
	int r = secret_has(s, name, e);

	if (r < 0)
		return r;
	*ret_new = r == 0;
	if (how == SECRET_ROTATE && r == 0)
		return secret_missing(s, name, e);
	return how == SECRET_NEW && r == 1 ? secret_exists(name, e) : 0;
}

/* Counts the values of the store. A full store takes no new name. */
static int count(const struct secret_store *s, bool new, size_t *ret, struct err *e)
{
	_cleanup_free_ secret_name *names = NULL;
	int r = secret_names(s, &names, ret, e);

	if (r == 0 && new &&*ret >= SECRET_STORE_MAX)
		return err_set(e, -E2BIG, "there are already %d secrets, the maximum: remove some",
			       SECRET_STORE_MAX);
	return r;
}

static int write_value(const struct secret_store *s, const struct secret_info *info,
		       const struct buf *value, bool empty, struct err *e)
{
	_cleanup_free_ char *text = NULL;
	char file[SECRET_FILE_NAME];
	uint8_t key[SECRET_KEY];
	int r = secret_key(s, true, empty, key, e);

	if (r == 0)
		r = secret_seal(key, info, value, &text, e);
	sodium_memzero(key, sizeof(key));
	if (r < 0)
		return r;
	assert(text);
	return fd_replace_file(s->dir, secret_file_name(info->name, SECRET_VALUE_FILE, file), 0600,
			       text, strlen(text), e);
}

static int set(const struct secret_store *s, const struct secret_info *info,
	       const struct buf *value, enum secret_how how, struct err *e)
{
	char file[SECRET_FILE_NAME];
	size_t n = 0;
	bool new = false;
	int r = check_how(s, info->name, how, &new, e);

	if (r == 0)
		r = count(s, new, &n, e);
	if (r < 0)
		return r;
	sweep(s);
	/* Notes about an earlier secret of this name. */
	if (new &&unlinkat(s->dir, secret_file_name(info->name, NOTES_FILE, file), 0) < 0 &&
	    errno != ENOENT)
		return err_errno(e, "cannot remove the old notes of '%s'", info->name);
	r = write_value(s, info, value, n == 0, e);
	/* A token of another credential: it has no meaning for this one, even if it stays. */
	if (r == 0)
		(void)unlinkat(s->dir, secret_file_name(info->name, SECRET_TOKEN_FILE, file), 0);
	return r;
}

static int make_info(const char *name, const struct secret_origin *o, struct secret_info *ret,
		     struct err *e)
{
	int r = secret_name_check(name, e);

	if (r == 0 && o->source == SECRET_EXEC)
		r = secret_command_check(o->command, o->n, e);
	if (r < 0)
		return r;
	(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	ret->source = o->source;
	ret->set = clock_wall();
	if (o->source == SECRET_EXEC) {
		ret->command = json_texts(o->command, o->n);
		if (!ret->command)
			return err_oom(e);
	}
	return 0;
}

int secret_set(const struct secret_store *s, const char *name, const struct buf *value,
	       const struct secret_origin *origin, enum secret_how how, struct err *e)
{
	_cleanup_secret_info_ struct secret_info info = { 0 };
	_cleanup_close_ int held = -EBADF;
	int r = secret_value_check(buf_text(value), value->len, e);

	assert(s->dir >= 0);
	if (r == 0)
		r = make_info(name, origin, &info, e);
	if (r == 0)
		r = secret_lock(s, true, &held, e);
	if (r == 0)
		r = set(s, &info, value, how, e);
	return r < 0 && r != -EEXIST && r != -ENOENT ? err_wrap(e, "secret '%s'", name) : r;
}

int secret_remove(const struct secret_store *s, const char *name, struct err *e)
{
	_cleanup_close_ int held = -EBADF;
	char file[SECRET_FILE_NAME];
	int r = secret_name_check(name, e);

	if (r < 0)
		return r;
	if (s->dir < 0)
		return secret_missing(s, name, e);
	r = secret_lock(s, true, &held, e);
	if (r < 0)
		return r;
	sweep(s);
	if (unlinkat(s->dir, secret_file_name(name, SECRET_VALUE_FILE, file), 0) < 0)
		return errno == ENOENT ? secret_missing(s, name, e)
				       : err_errno(e, "cannot remove secret '%s'", name);
	/* Without the value, these mean nothing. */
	(void)unlinkat(s->dir, secret_file_name(name, NOTES_FILE, file), 0);
	(void)unlinkat(s->dir, secret_file_name(name, SECRET_TOKEN_FILE, file), 0);
	(void)unlinkat(s->dir, secret_file_name(name, TOKEN_LOCK, file), 0);
	if (RETRY_EINTR(fsync(s->dir)) < 0)
		return err_errno(e, "cannot sync the directory of secret '%s'", name);
	return 0;
}
