/* SPDX-License-Identifier: Apache-2.0 */
#include "tar/tar-pax.h"

#include <string.h>

#include "base/str.h"

enum pax_kind {
	PAX_IGNORE,
	PAX_NAME,
	PAX_LINK,
	PAX_SIZE,
	PAX_UID,
	PAX_GID,
	PAX_MTIME,
	PAX_CHARSET,
	PAX_XATTR,
	PAX_SPARSE,
	PAX_UNKNOWN,
};

/* Keys of pax(1) and of programs that write archives; a key that ends in '.' is a prefix. */
static const struct {
	const char *key;
	enum pax_kind kind;
} keys[] = {
	{ "path", PAX_NAME },
	{ "linkpath", PAX_LINK },
	{ "size", PAX_SIZE },
	{ "uid", PAX_UID },
	{ "gid", PAX_GID },
	{ "mtime", PAX_MTIME },
	{ "atime", PAX_IGNORE },
	{ "ctime", PAX_IGNORE },
	{ "uname", PAX_IGNORE },
	{ "gname", PAX_IGNORE },
	{ "comment", PAX_IGNORE },
	{ "hdrcharset", PAX_CHARSET },
	{ "GNU.sparse.", PAX_SPARSE },
	{ "SCHILY.xattr.", PAX_XATTR },
	{ "SCHILY.acl.", PAX_XATTR },
	{ "LIBARCHIVE.xattr.", PAX_XATTR },
	{ "RHT.security.selinux", PAX_XATTR },
	{ "SCHILY.", PAX_IGNORE },
	{ "LIBARCHIVE.", PAX_IGNORE },
};

static enum pax_kind kind_of(const char *key, size_t n)
{
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		size_t len = strlen(keys[i].key);
		bool below = keys[i].key[len - 1] == '.';

		if (n >= len && (below || n == len) && memcmp(key, keys[i].key, len) == 0)
			return keys[i].kind;
	}
	return PAX_UNKNOWN;
}

static int take_text(bool *has, char *out, size_t *out_len, const char *value, size_t len,
		     const char *what, struct err *e)
{
	if (*has)
		return err_set(e, -EINVAL, "two %ss for one entry", what);
	if (len == 0 || len > TAR_NAME_MAX)
		return err_set(e, -EINVAL, "a %s of %zu bytes (1 to %d)", what, len, TAR_NAME_MAX);
	if (memchr(value, '\0', len))
		return err_set(e, -EINVAL, "a %s with a NUL byte", what);
	memcpy(out, value, len);
	out[len] = '\0';
	*out_len = len;
	*has = true;
	return 0;
}

static int take_number(bool *has, uint64_t *out, const char *value, size_t len, uint64_t max,
		       const char *what, struct err *e)
{
	if (*has)
		return err_set(e, -EINVAL, "two %ss for one entry", what);
	if (str_to_u64(value, len, max, out) < 0)
		return err_set(e, -EINVAL, "a %s that is not a number up to %llu", what,
			       (unsigned long long)max);
	*has = true;
	return 0;
}

/* Reads "1700000000.123": drops the fraction; a time before 1970 becomes 1970. */
static int take_mtime(struct tar_more *m, const char *value, size_t len, struct err *e)
{
	const char *point = memchr(value, '.', len);
	size_t whole = point ? (size_t)(point - value) : len;

	if (len > 0 && value[0] == '-') {
		m->has_mtime = true;
		m->mtime = 0;
		return 0;
	}
	return take_number(&m->has_mtime, &m->mtime, value, whole, INT32_MAX * UINT64_C(64), "time",
			   e);
}

static int take_charset(const char *value, size_t len, struct err *e)
{
	static const char utf8[] = "ISO-IR 10646 2000 UTF-8", binary[] = "BINARY";

	if ((len == STRLEN("BINARY") && memcmp(value, binary, len) == 0) ||
	    (len == sizeof(utf8) - 1 && memcmp(value, utf8, len) == 0))
		return 0;
	return err_set(e, -EINVAL, "names in an unknown character set");
}

static int refuse_key(const char *key, size_t n, const char *why, struct err *e)
{
	return err_set(e, -EINVAL, "extended header '%.*s': %s", (int)MIN(n, (size_t)60), key, why);
}

/* Keys that a header for all entries may have because they are ignored there. */
static bool global_ok(enum pax_kind kind)
{
	return kind == PAX_IGNORE || kind == PAX_MTIME;
}

int pax_skipped(struct tar_more *m, bool global, const char *key, size_t key_len, struct err *e)
{
	enum pax_kind kind = kind_of(key, key_len);

	if (kind == PAX_XATTR && !global) {
		m->xattrs++;
		return 0;
	}
	if (kind == PAX_IGNORE)
		return 0;
	return refuse_key(key, key_len, "too long", e);
}

int pax_record(struct tar_more *m, bool global, const char *key, size_t key_len, const char *value,
	       size_t len, struct err *e)
{
	enum pax_kind kind = kind_of(key, key_len);

	if (global)
		return global_ok(kind) ? 0 : refuse_key(key, key_len, "not for all entries", e);
	switch (kind) {
	case PAX_IGNORE:
		return 0;
	case PAX_XATTR:
		m->xattrs++;
		return 0;
	case PAX_NAME:
		return take_text(&m->has_name, m->name, &m->name_len, value, len, "name", e);
	case PAX_LINK:
		return take_text(&m->has_link, m->link, &m->link_len, value, len, "link", e);
	case PAX_SIZE:
		return take_number(&m->has_size, &m->size, value, len, TAR_SIZE_MAX, "size", e);
	case PAX_UID:
		return take_number(&m->has_uid, &m->uid, value, len, TAR_ID_MAX, "uid", e);
	case PAX_GID:
		return take_number(&m->has_gid, &m->gid, value, len, TAR_ID_MAX, "gid", e);
	case PAX_MTIME:
		return take_mtime(m, value, len, e);
	case PAX_CHARSET:
		return take_charset(value, len, e);
	case PAX_SPARSE:
		return err_set(e, -EINVAL, "sparse files are not accepted: pack without --sparse");
	case PAX_UNKNOWN:
		break;
	}
	return refuse_key(key, key_len, "unknown", e);
}
