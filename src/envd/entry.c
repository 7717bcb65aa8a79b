/* SPDX-License-Identifier: Apache-2.0 */
#include "envd/entry.h"

#include <string.h>

#include "api/box.h"
#include "base/clock.h"
#include "base/str.h"

enum {
	PERMISSIONS_MAX = 16,
};

char *envd_text(const struct fields *f, enum wire_tag tag)
{
	bool oom = false;
	char *text = fields_copy(f, tag, &oom);

	if (text)
		str_make_utf8(text);
	return text;
}

/* ---- paths ---- */

static char *join(const char *root, char *path)
{
	size_t n = strlen(root);
	char *whole;

	while (n > 0 && root[n - 1] == '/')
		n--;
	if (str_eq(path, "."))
		path[0] = '\0';
	if (asprintf(&whole, "%.*s%s%s", (int)n, root, path[0] || n == 0 ? "/" : "", path) < 0)
		whole = NULL;
	free(path);
	if (whole)
		str_make_utf8(whole);
	return whole;
}

static char *path_of(const struct fields *f, const char *root)
{
	char *path = envd_text(f, TAG_PATH);

	return path && path[0] != '/' && root ? join(root, path) : path;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* ---- modes ---- */

/* Formats permissions as Go's fs.FileMode does; a followed link is still shown as a link. */
static const char *permissions(const struct fields *f, char out[static PERMISSIONS_MAX])
{
	static const char bits[] = "rwxrwxrwx", link[] = "Lrwxrwxrwx";
	uint64_t mode = fields_number(f, TAG_MODE, 0),
		 kind = fields_number(f, TAG_KIND, WIRE_OTHER);
	char *p = out;

	if (kind == WIRE_SYMLINK || fields_has(f, TAG_TARGET))
		return memcpy(out, link, sizeof(link));
	if (kind == WIRE_DIRECTORY)
		*p++ = 'd';
	if (mode & 04000)
		*p++ = 'u';
	if (mode & 02000)
		*p++ = 'g';
	if (mode & 01000)
		*p++ = 't';
	if (kind == WIRE_OTHER)
		*p++ = '?';
	if (p == out)
		*p++ = '-';
	for (unsigned int i = 0; i < 9; i++)
		*p++ = mode & (0400u >> i) ? bits[i] : '-';
	*p = '\0';
	return out;
}

static const char *type_of(const struct fields *f)
{
	switch (fields_number(f, TAG_KIND, WIRE_OTHER)) {
	case WIRE_FILE:
		return "FILE_TYPE_FILE";
	case WIRE_DIRECTORY:
		return "FILE_TYPE_DIRECTORY";
	default: /* also a dangling link; other links were followed */
		return "FILE_TYPE_UNSPECIFIED";
	}
}

/* ---- the parts of an entry ---- */

/* Returns the name that the guest sent, or else the number. */
static json_t *who(const struct fields *f, enum wire_tag name, enum wire_tag number)
{
	_cleanup_free_ char *text = envd_text(f, name);

	return text ? json_string(text)
		    : json_sprintf("%llu", (unsigned long long)fields_number(f, number, 0));
}

/* Each "key=value"; NULL: out of memory. */
static json_t *metadata(const struct fields *f)
{
	json_t *all = json_object();
	const char *value;
	size_t pos = 0, n;

	while (all && fields_next(f, TAG_META, &pos, &value, &n)) {
		_cleanup_free_ char *pair = strndup(value, n);
		char *equal = pair ? strchr(pair, '=') : NULL;

		if (equal)
			*equal = '\0';
		if (pair)
			str_make_utf8(pair);
		if (equal)
			str_make_utf8(equal + 1);
		if (!pair || (equal && json_put(all, pair, json_string(equal + 1)) < 0)) {
			json_decref(all);
			return NULL;
		}
	}
	return all;
}

static int put_more(json_t *entry, const struct fields *f)
{
	_cleanup_free_ char *target = envd_text(f, TAG_TARGET);
	int r = 0;

	if (fields_has(f, TAG_TARGET))
		r = json_put(entry, "symlinkTarget", target ? json_string(target) : NULL);
	if (r == 0 && fields_has(f, TAG_META))
		r = json_put(entry, "metadata", metadata(f));
	return r;
}

json_t *envd_entry(const struct fields *f, const char *root)
{
	_cleanup_free_ char *path = path_of(f, root);
	char time[CLOCK_RFC3339_MAX], mode[PERMISSIONS_MAX];
	json_t *entry;

	if (!path)
		return NULL;
	entry = JSON_OBJECT(
		{ "name", json_string(name_of(path)) }, { "type", json_string(type_of(f)) },
		{ "path", json_string(path) },
		{ "size", json_sprintf("%llu", (unsigned long long)fields_number(f, TAG_SIZE, 0)) },
		{ "mode", json_number(fields_number(f, TAG_MODE, 0) & 0777) },
		{ "permissions", json_string(permissions(f, mode)) },
		{ "owner", who(f, TAG_OWNER, TAG_UID) }, { "group", who(f, TAG_GROUP, TAG_GID) },
		{ "modifiedTime",
		  json_string(clock_format(fields_number(f, TAG_MTIME, 0), time)) });
	if (entry && put_more(entry, f) < 0) {
		json_decref(entry);
		return NULL;
	}
	return entry;
}

json_t *envd_write_info(const struct fields *f)
{
	_cleanup_free_ char *path = envd_text(f, TAG_PATH);
	json_t *info;

	if (!path)
		return NULL;
	info = JSON_OBJECT({ "name", json_string(name_of(path)) }, { "path", json_string(path) },
			   { "type", json_string("file") });
	if (info && fields_has(f, TAG_META) && json_put(info, "metadata", metadata(f)) < 0) {
		json_decref(info);
		return NULL;
	}
	return info;
}

/* ---- calls ---- */

int envd_call(struct request *r, enum wire_op op, const struct buf *fields,
	      const struct call_ops *ops, void *arg, struct call **ret, struct err *e)
{
	char before[TRACE_ID_MAX + 1];
	struct peer *p = NULL;
	int k = box_peer(r->box, &p, e);

	/* An upload calls from other contexts, one file after the other. */
	(void)snprintf(before, sizeof(before), "%s", trace_request());
	request_enter(r);
	if (k == 0)
		k = peer_call(p, op, fields, ops, arg, ret, e);
	trace_set_request(before);
	return k;
}
