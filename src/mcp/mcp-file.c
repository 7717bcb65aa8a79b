/* SPDX-License-Identifier: Apache-2.0 */
/* Tools for files of a sandbox. */
#include <string.h>

#include "mcp/mcp-inner.h"

/* Makes the argument `path` absolute. The caller frees it. */
static int take_path(const struct tool_work *w, char **ret, struct err *e)
{
	const char *path = work_text(w, "path");
	const bool absolute = path[0] == '/';

	if (asprintf(ret, "%s%s%s", absolute ? "" : w->spec.workspace, absolute ? "" : "/", path) <
	    0)
		return err_oom(e);
	if (strlen(*ret) > TOOL_PATH_MAX)
		return err_set(e, -EINVAL, "the path is longer than %d bytes", TOOL_PATH_MAX);
	return 0;
}

/* ---- read, write ---- */

/* The size that the guest reports, limited to the range of JSON integers. */
static uint64_t size_of(const struct fields *f)
{
	return MIN(fields_number(f, TAG_SIZE, 0), (uint64_t)INT64_MAX);
}

static void take_size(void *arg, const struct fields *f)
{
	*(uint64_t *)arg = size_of(f);
}

int tool_read_file(struct tool_work *w, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(MCP_TEXT_MAX);
	const uint64_t offset = work_number(w, "offset", 0);
	_cleanup_free_ char *path = NULL;
	uint64_t size = 0, left, end;
	int r = take_path(w, &path, e);

	if (r == 0)
		r = runner_stat(w->runner, path, NULL, take_size, &size, e);
	if (r == 0)
		r = runner_read(w->runner, path, NULL, offset, MCP_TEXT_MAX, &b, e);
	if (r < 0)
		return err_wrap(e, "cannot read '%.100s'", path ? path : "");
	end = offset + b.len;
	left = size > end ? size - end : 0;
	r = work_struct(w,
			JSON_OBJECT({ "content", output_bytes(buf_text(&b), b.len) },
				    { "bytes", json_number(b.len) }, { "left", json_number(left) }),
			e);
	if (r == 0)
		r = work_add(w, output_bytes(buf_text(&b), b.len), e);
	if (r == 0 && left > 0)
		r = work_say(w, e, "%llu bytes follow: continue with offset %llu",
			     (unsigned long long)left, (unsigned long long)end);
	return r;
}

struct text {
	const char *pos;
	size_t left;
};

static ssize_t read_text(void *arg, char *out, size_t n, struct err *e)
{
	struct text *t = arg;
	size_t some = MIN(n, t->left);

	memcpy(out, t->pos, some);
	t->pos += some;
	t->left -= some;
	return (ssize_t)some;
}

int work_write(struct tool_work *w, const char *path, const json_t *text, struct err *e)
{
	struct text t = { json_string_value(text), json_string_length(text) };
	int r = runner_write(w->runner, path, NULL, read_text, &t, e);

	return r < 0 ? err_wrap(e, "cannot write '%.100s'", path) : 0;
}

int tool_write_file(struct tool_work *w, struct err *e)
{
	const json_t *content = json_object_get(w->arguments, "content");
	_cleanup_free_ char *path = NULL;
	int r = take_path(w, &path, e);

	if (r == 0)
		r = work_write(w, path, content, e);
	if (r == 0)
		r = work_struct(
			w, JSON_OBJECT({ "bytes", json_number(json_string_length(content)) }), e);
	return r < 0 ? r
		     : work_say(w, e, "%zu bytes written to %s", json_string_length(content), path);
}

/* ---- list ---- */

static const char *const kind_names[] = { [WIRE_FILE] = "file",
					  [WIRE_DIRECTORY] = "directory",
					  [WIRE_SYMLINK] = "symlink",
					  [WIRE_OTHER] = "other" };
static_assert(ARRAY_SIZE(kind_names) == WIRE_OTHER + 1, "each kind has its name");

struct listing {
	json_t *entries;
	size_t bytes;  /* total length of the paths */
	uint64_t more; /* entries that did not fit */
	bool oom;
};

static const char *kind_of(const struct fields *f)
{
	const uint64_t kind = fields_number(f, TAG_KIND, WIRE_OTHER);

	return kind_names[kind > 0 && kind < WIRE_OTHER ? kind : WIRE_OTHER];
}

static void add_entry(void *arg, const struct fields *f)
{
	struct listing *l = arg;
	const char *path = "";
	size_t pos = 0, n = 0;

	(void)fields_next(f, TAG_PATH, &pos, &path, &n);
	if (json_array_size(l->entries) == TOOL_ENTRIES_MAX || l->bytes + n > TOOL_NAMES_MAX) {
		l->more++;
		return;
	}
	l->bytes += n;
	if (json_push(l->entries, JSON_OBJECT({ "path", output_bytes(path, n) },
					      { "kind", json_string(kind_of(f)) },
					      { "size", json_number(size_of(f)) })) < 0)
		l->oom = true;
}

/* One line per entry; a name that contains a line break is written as a JSON string. */
static json_t *listing_text(const struct listing *l)
{
	_cleanup_buf_ struct buf b = BUF_INIT(JSON_SIZE_MAX);
	const json_t *one;
	size_t i;

	json_array_foreach(l->entries, i, one)
	{
		const json_t *path = json_object_get(one, "path");
		const bool plain = !strpbrk(json_string_value(path), "\r\n");
		_cleanup_free_ char *quoted = plain ? NULL : json_write_line(path);

		if (!plain && !quoted)
			return NULL;
		(void)buf_printf(&b, "%-9s %10lld %s\n",
				 json_string_value(json_object_get(one, "kind")),
				 (long long)json_integer_value(json_object_get(one, "size")),
				 plain ? json_string_value(path) : quoted);
	}
	if (l->more > 0)
		(void)buf_printf(&b, "and %llu more\n", (unsigned long long)l->more);
	return b.err < 0 ? NULL
			 : json_string(b.len > 0 ? buf_text(&b) : "the directory is empty\n");
}

int tool_list_files(struct tool_work *w, struct err *e)
{
	struct listing l = { .entries = json_array() };
	_cleanup_free_ char *path = NULL;
	int r = work_struct(w, JSON_OBJECT({ "entries", l.entries }), e);

	if (r == 0)
		r = take_path(w, &path, e);
	if (r < 0)
		return r;
	r = runner_list(w->runner, path, NULL, work_number(w, "depth", 1), add_entry, &l, e);
	if (r < 0)
		return err_wrap(e, "cannot list '%.100s'", path);
	if (l.oom || json_put(w->structured, "more", json_number(l.more)) < 0)
		return err_oom(e);
	return work_add(w, listing_text(&l), e);
}
