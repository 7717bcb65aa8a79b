/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of secrets that are refreshed, together with their credentials. token-file.c describes the
 * file. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "base/path.h"
#include "secret/inner.h"

int secret_token_read(const struct secret_store *s, const char *name, struct secret_info *ret_info,
		      struct buf *ret_credential, struct secret_token *ret, struct err *e)
{
	uint8_t key[SECRET_KEY];
	int r = secret_credential(s, name, ret_info, ret_credential, e);

	if (r == 0 && !secret_is_refreshed(ret_info->source))
		r = err_set(e, -EINVAL,
			    "secret '%s' is not refreshed: only those of --oauth and --github-app "
			    "are",
			    name);
	if (r == 0)
		r = secret_key(s, false, false, key, e);
	if (r == 0)
		r = secret_token_load(s, key, ret_info, ret, e);
	sodium_memzero(key, sizeof(key));
	if (r != -ENODATA)
		return r;
	secret_token_done(ret);
	*ret = (struct secret_token)SECRET_TOKEN_INIT;
	return 0;
}

int secret_token_times(const struct secret_store *s, const char *name, uint64_t *ret_due,
		       uint64_t *ret_end, struct err *e)
{
	_cleanup_secret_token_ struct secret_token t = SECRET_TOKEN_INIT;
	_cleanup_secret_ struct buf credential = BUF_INIT(SECRET_VALUE_MAX + 1);
	_cleanup_secret_info_ struct secret_info info = { 0 };
	int r = secret_find(s, name, &info, e);

	if (r < 0 || !secret_is_refreshed(info.source))
		return r;
	secret_info_done(&info);
	info = (struct secret_info){ 0 };
	r = secret_token_read(s, name, &info, &credential, &t, e);
	if (r < 0)
		return r;
	*ret_due = t.token.len > 0 ? secret_token_due(&t) : 0;
	*ret_end = t.expires;
	return 1;
}

/* ---- writing ---- */

int secret_token_lock(const struct secret_store *s, const char *name, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	char file[SECRET_FILE_NAME];

	if (secret_name_check(name, e) < 0)
		return e->num;
	if (s->dir < 0)
		return secret_missing(s, name, e);
	fd = path_open_nofollow(s->dir, secret_file_name(name, TOKEN_LOCK, file), O_RDWR | O_CREAT,
				0600);
	if (fd < 0)
		return err_set(e, fd, "cannot open '%s' of the store of secrets: %s", file,
			       strerror(-fd));
	if (RETRY_EINTR(flock(fd, LOCK_EX)) < 0)
		return err_errno(e, "cannot lock '%s' of the store of secrets", file);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int make_text(const struct secret_token *t, struct buf *ret, struct err *e)
{
	char issued[CLOCK_RFC3339_MAX], expires[CLOCK_RFC3339_MAX];
	_cleanup_json_ json_t *o = NULL;
	char *text;
	int r;

	o = JSON_OBJECT({ "token", json_string(buf_text(&t->token)) },
			{ "issued", json_string(clock_format(t->issued, issued)) },
			{ "expires", json_string(clock_format(t->expires, expires)) });
	if (o && t->refresh.len > 0 &&
	    json_put(o, "refresh_token", json_string(buf_text(&t->refresh))) < 0)
		return err_oom(e);
	text = o ? json_write_line(o) : NULL;
	if (!text)
		return err_oom(e);
	r = buf_puts(ret, text);
	sodium_memzero(text, strlen(text));
	free(text);
	return r < 0 ? err_set(e, r, "the token is too long") : 0;
}

int secret_token_write(const struct secret_store *s, const struct secret_info *info,
		       const struct secret_token *t, struct err *e)
{
	_cleanup_secret_info_ struct secret_info now = { 0 };
	_cleanup_secret_ struct buf text = BUF_INIT(SECRET_TOKEN_TEXT);
	_cleanup_buf_ struct buf sealed = BUF_INIT(SECRET_TOKEN_TEXT + 64);
	char file[SECRET_FILE_NAME], purpose[SECRET_PURPOSE_MAX];
	_cleanup_close_ int held = -EBADF;
	uint8_t key[SECRET_KEY];
	int r;

	if (make_text(t, &text, e) < 0 || secret_lock(s, true, &held, e) < 0 ||
	    secret_find(s, info->name, &now, e) < 0)
		return e->num;
	if (now.set != info->set || now.source != info->source)
		return err_set(e, -ESTALE, "secret '%s' was changed meanwhile", info->name);
	r = secret_key(s, false, false, key, e);
	if (r == 0)
		r = box_seal(key, secret_token_purpose(info, purpose), &text, &sealed, e);
	sodium_memzero(key, sizeof(key));
	return r < 0 ? r
		     : fd_replace_file(s->dir,
				       secret_file_name(info->name, SECRET_TOKEN_FILE, file), 0600,
				       sealed.data, sealed.len, e);
}
