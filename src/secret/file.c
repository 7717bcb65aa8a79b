/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NAME.value, and the host key that seals it.
 *
 * The file is JSON: when and how the secret was set, in clear, and `sealed`: base64 of a random
 * nonce and the value in XChaCha20-Poly1305. The name and the members in clear are authenticated
 * with it, so files cannot be exchanged and a command cannot be changed without the key.
 *
 * The key lies beside the files. It protects a file that leaves the directory alone, and it reveals
 * damage; it does not protect from a reader of the directory.
 */
#include <string.h>
#include <sys/random.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "base/str.h"
#include "secret/inner.h"

enum {
	VERSION = 1,
	NONCE = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
	TAG = crypto_aead_xchacha20poly1305_ietf_ABYTES,
	BYTES_MAX = NONCE + SECRET_VALUE_MAX + TAG,
	TEXT_MAX = (BYTES_MAX + 2) / 3 * 4,
};

#define DOMAIN "hutch-secret-1"

static int draw(uint8_t *out, size_t n, struct err *e)
{
	/* randombytes_buf() of libsodium would abort the process on failure. */
	if (RETRY_EINTR(getrandom(out, n, 0)) != (ssize_t)n)
		return err_errno(e, "cannot get random bytes");
	return 0;
}

/* ---- the host key ---- */

static int make_key(const struct secret_store *s, uint8_t ret[static SECRET_KEY], struct err *e)
{
	int r = draw(ret, SECRET_KEY, e);

	return r < 0 ? r : fd_replace_file(s->dir, KEY_FILE, 0600, ret, SECRET_KEY, e);
}

static int no_key(const char *why, struct err *e)
{
	return err_set(e, -EBADMSG,
		       "the host key (file '" KEY_FILE "' of the store of secrets) is %s: restore "
		       "the file, or remove all secrets with 'hutch secret rm' and set them again",
		       why);
}

int secret_key(const struct secret_store *s, bool make, bool empty, uint8_t ret[static SECRET_KEY],
	       struct err *e)
{
	_cleanup_secret_ struct buf b = BUF_INIT(SECRET_KEY + 1);
	int r = secret_read_file(s, KEY_FILE, &b, e);

	if (r < 0 && r != -ENOENT)
		return r;
	if (r == 0 && b.len == SECRET_KEY) {
		memcpy(ret, b.data, SECRET_KEY);
		return 0;
	}
	/* A new key would make existing values useless, even if the old key is found again. */
	if (make && empty)
		return make_key(s, ret, e);
	return no_key(r == -ENOENT ? "missing" : "damaged", e);
}

/* ---- sealing ---- */

/* The authenticated text: domain, name, and the members in clear. */
static int context(const struct secret_info *i, struct buf *ret)
{
	_cleanup_json_ json_t *o = NULL;
	_cleanup_free_ char *text = NULL;
	char set[CLOCK_RFC3339_MAX];

	o = JSON_OBJECT({ "set", json_string(clock_format(i->set, set)) },
			{ "source", json_string(secret_source_name(i->source)) });
	if (o && i->command && json_put(o, "command", json_incref(i->command)) < 0)
		return -ENOMEM;
	text = o ? json_write_canonical(o) : NULL;
	if (!text)
		return -ENOMEM;
	(void)buf_put(ret, DOMAIN, sizeof(DOMAIN)); /* with its NUL */
	(void)buf_put(ret, i->name, strlen(i->name) + 1);
	(void)buf_puts(ret, text);
	return ret->err;
}

static json_t *file_json(const struct secret_info *i, const char *sealed)
{
	char set[CLOCK_RFC3339_MAX];
	json_t *o = JSON_OBJECT({ "version", json_integer(VERSION) },
				{ "set", json_string(clock_format(i->set, set)) },
				{ "source", json_string(secret_source_name(i->source)) },
				{ "sealed", json_string(sealed) });

	if (o && i->command && json_put(o, "command", json_incref(i->command)) < 0) {
		json_decref(o);
		return NULL;
	}
	return o;
}

int secret_seal(const uint8_t key[static SECRET_KEY], const struct secret_info *info,
		const struct buf *value, char **ret, struct err *e)
{
	_cleanup_buf_ struct buf about = BUF_INIT(SECRET_FILE_MAX), base64 = BUF_INIT(TEXT_MAX);
	_cleanup_json_ json_t *o = NULL;
	uint8_t bytes[BYTES_MAX];
	unsigned long long n = 0;

	assert(value->len <= SECRET_VALUE_MAX);
	if (draw(bytes, NONCE, e) < 0)
		return e->num;
	if (context(info, &about) < 0)
		return err_oom(e);
	(void)crypto_aead_xchacha20poly1305_ietf_encrypt(
		bytes + NONCE, &n, (const uint8_t *)value->data, value->len,
		(const uint8_t *)about.data, about.len, NULL, bytes, key);
	if (base64_put(&base64, bytes, NONCE + (size_t)n) < 0)
		return err_oom(e);
	o = file_json(info, buf_text(&base64));
	*ret = o ? json_write_canonical(o) : NULL;
	return *ret ? 0 : err_oom(e);
}

/* ---- reading ---- */

static int read_source(const json_t *o, enum secret_source *ret, struct err *e)
{
	const char *word = "";
	int r = json_get_string(o, "source", SECRET_NAME_MAX, &word, e);

	if (r < 0)
		return r;
	for (int i = 0; i < SECRET_SOURCES; i++)
		if (str_eq(word, secret_source_name((enum secret_source)i))) {
			*ret = (enum secret_source)i;
			return 0;
		}
	return err_set(e, -EINVAL, "'source' is not a source");
}

static int check_command(const json_t *list, struct err *e)
{
	const char *words[SECRET_ARGS_MAX];
	size_t n = json_array_size(list);

	if (!json_is_array(list) || n > SECRET_ARGS_MAX)
		return err_set(e, -EINVAL, "'command' is not a list of at most %d words",
			       SECRET_ARGS_MAX);
	for (size_t i = 0; i < n; i++) {
		words[i] = json_string_value(json_array_get(list, i));
		if (!words[i])
			return err_set(e, -EINVAL, "'command' has an item that is not a string");
	}
	return secret_command_check(words, n, e);
}

static int read_members(const json_t *o, struct secret_info *ret, const char **ret_sealed,
			struct err *e)
{
	static const char *const known[] = {
		"version", "set", "source", "command", "sealed", NULL
	};
	const char *set = "";
	uint64_t version = 0;
	int r = json_only_keys(o, known, e);

	if (r == 0)
		r = json_get_u64(o, "version", INT64_MAX, &version, e);
	if (r == 0 && version != VERSION)
		r = err_set(e, -EINVAL, "'version' is %llu, this hutch supports %d",
			    (unsigned long long)version, VERSION);
	if (r == 0)
		r = json_get_string(o, "set", CLOCK_RFC3339_MAX, &set, e);
	if (r == 0 && (clock_parse(set, &ret->set) < 0 || ret->set == 0))
		r = err_set(e, -EINVAL, "'set' is not a time");
	if (r == 0)
		r = read_source(o, &ret->source, e);
	if (r == 0)
		r = json_get_string(o, "sealed", TEXT_MAX, ret_sealed, e);
	ret->command = json_object_get(o, "command");
	if (r == 0 && (ret->source == SECRET_EXEC) != (ret->command != NULL))
		r = err_set(e, -EINVAL, "'command' belongs to source 'exec'");
	return r < 0 || !ret->command ? r : check_command(ret->command, e);
}

/* *ret refers to `o`. */
static int read_text(const struct buf *text, json_t **ret_o, struct secret_info *ret,
		     const char **ret_sealed, struct err *e)
{
	_cleanup_json_ json_t *o = NULL;
	int r = json_read(buf_text(text), text->len, &o, e);

	if (r == 0)
		r = read_members(o, ret, ret_sealed, e);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		return err_set(e, -EBADMSG, "damaged: %s", (const char *)e->msg);
	*ret_o = TAKE_PTR(o);
	return 0;
}

int secret_read_info(const struct buf *text, struct secret_info *ret, struct err *e)
{
	_cleanup_json_ json_t *o = NULL;
	struct secret_info info = { 0 };
	const char *sealed = "";
	int r = read_text(text, &o, &info, &sealed, e);

	if (r < 0)
		return r;
	ret->source = info.source;
	ret->set = info.set;
	ret->command = json_incref(info.command);
	return 0;
}

static int unseal(const uint8_t key[static SECRET_KEY], const struct secret_info *info,
		  const uint8_t *bytes, size_t n, struct buf *ret, struct err *e)
{
	_cleanup_buf_ struct buf about = BUF_INIT(SECRET_FILE_MAX);
	char *to;

	if (n < NONCE + TAG + SECRET_VALUE_MIN || n > BYTES_MAX)
		return err_set(e, -EBADMSG, "damaged: 'sealed' has a wrong length");
	if (context(info, &about) < 0)
		return err_oom(e);
	to = buf_reserve(ret, n - NONCE - TAG);
	if (!to)
		return err_set(e, ret->err, "no room for its value");
	if (crypto_aead_xchacha20poly1305_ietf_decrypt((uint8_t *)to, NULL, NULL, bytes + NONCE,
						       n - NONCE, (const uint8_t *)about.data,
						       about.len, bytes, key) < 0)
		return err_set(e, -EBADMSG, "its file or the host key was changed");
	if (secret_value_check(to, n - NONCE - TAG, e) < 0) {
		sodium_memzero(to, n - NONCE - TAG);
		return e->num;
	}
	buf_commit(ret, n - NONCE - TAG);
	return 0;
}

int secret_unseal(const uint8_t key[static SECRET_KEY], const char *name, const struct buf *text,
		  struct buf *ret, struct err *e)
{
	_cleanup_json_ json_t *o = NULL;
	_cleanup_free_ char *bytes = NULL;
	struct secret_info info = { 0 };
	const char *sealed = "";
	size_t n = 0;
	int r = read_text(text, &o, &info, &sealed, e);

	if (r < 0)
		return r;
	r = base64_decode(sealed, strlen(sealed), &bytes, &n);
	if (r < 0)
		return err_set(e, r == -ENOMEM ? r : -EBADMSG, "damaged: 'sealed' is not base64");
	(void)snprintf(info.name, sizeof(info.name), "%s", name);
	return unseal(key, &info, (const uint8_t *)bytes, n, ret, e);
}
