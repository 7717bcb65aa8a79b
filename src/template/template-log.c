/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of a build. An entry is one line, written by one write(2) and complete with its newline;
 * the next writer truncates a torn line. Readers count lines from the beginning: the log is small,
 * and an index could get out of step. The format is not JSON because of the bug of jansson that
 * template-inner.h describes.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "template/template-inner.h"

enum {
	LINE_MAX_BYTES = 3 * TEMPLATE_TEXT_MAX, /* escaping may double a message */
};

static const char *const level_names[TEMPLATE_LEVEL_MAX] = {
	[TEMPLATE_DEBUG] = "debug",
	[TEMPLATE_INFO] = "info",
	[TEMPLATE_WARN] = "warn",
	[TEMPLATE_FAILURE] = "error",
};

static int log_file(const char *build, char out[static TEMPLATE_FILE_NAME], struct err *e)
{
	if (!template_build_valid(build))
		return err_set(e, -EINVAL, "'%.80s' is not the id of a build", build);
	(void)snprintf(out, TEMPLATE_FILE_NAME, "%s.log", build);
	return 0;
}

/* Finds the end of the last complete line; usually the end of the file. */
static int end_of(int fd, off_t size, off_t *ret)
{
	char tail[LINE_MAX_BYTES];
	off_t from = size > (off_t)sizeof(tail) ? size - (off_t)sizeof(tail) : 0;
	ssize_t n = RETRY_EINTR(pread(fd, tail, (size_t)(size - from), from));
	const char *newline;

	if (n < 0)
		return -errno;
	newline = n > 0 ? memrchr(tail, '\n', (size_t)n) : NULL;
	/* No line of ours is that long: without a newline in it, leave the foreign data alone. */
	*ret = newline ? from + (newline - tail) + 1 : from > 0 ? size : 0;
	return 0;
}

static int append(int fd, const char *line, size_t n)
{
	struct stat st;
	off_t end = 0;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	r = end_of(fd, st.st_size, &end);
	if (r < 0)
		return r;
	if (end < st.st_size && ftruncate(fd, end) < 0)
		return -errno;
	if ((uint64_t)end + n > TEMPLATE_LOG_MAX)
		return 0;
	return fd_write_all(fd, line, n);
}

/* Writes one field; escapes tabs, newlines and backslashes with a backslash. */
static void put_field(struct buf *b, const char *text, size_t max)
{
	static const char plain[] = "\t\n\\", letters[] = "tn\\";

	for (size_t i = 0; i < max && text[i]; i++) {
		const char *special = strchr(plain, text[i]);

		if (special)
			(void)buf_putc(b, '\\');
		(void)buf_putc(b, special ? letters[special - plain] : text[i]);
	}
}

/* Writes time, level, step and message, separated by tabs. */
static void put_entry(struct buf *b, enum template_level level, const char *step,
		      const char *message)
{
	(void)buf_printf(b, "%llu\t%s\t", (unsigned long long)clock_wall(), level_names[level]);
	put_field(b, step ? step : "", TEMPLATE_STEP_MAX);
	(void)buf_putc(b, '\t');
	put_field(b, message, TEMPLATE_TEXT_MAX);
	(void)buf_putc(b, '\n');
}

int template_log(const struct template_store *s, const char *build, enum template_level level,
		 const char *step, const char *message, struct err *e)
{
	_cleanup_buf_ struct buf line = BUF_INIT(LINE_MAX_BYTES);
	_cleanup_close_ int fd = -EBADF;
	char file[TEMPLATE_FILE_NAME];
	int r = log_file(build, file, e);

	if (r < 0)
		return r;
	put_entry(&line, level, step, message);
	if (line.err)
		return err_oom(e);
	fd = RETRY_EINTR(openat(s->builds, file,
				O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
	r = fd < 0 ? -errno : append(fd, line.data, line.len);
	return r < 0 ? err_set(e, r, "cannot write '%s/builds/%s': %s", s->path, file, strerror(-r))
		     : 0;
}

/* Reads and unescapes the field at *at and advances *at. The caller frees the result. */
static char *take_field(const char **at, const char *end)
{
	const char *p = *at, *tab = memchr(p, '\t', (size_t)(end - p)), *to = tab ? tab : end;
	char *out = malloc((size_t)(to - p) + 1), *o = out;

	*at = tab ? tab + 1 : end;
	if (!out)
		return NULL;
	for (; p < to; p++) {
		if (*p == '\\' && p + 1 < to)
			p++, *o++ = *p == 't' ? '\t' : *p == 'n' ? '\n' : *p;
		else
			*o++ = *p;
	}
	*o = '\0';
	str_make_utf8(out);
	return out;
}

/* Converts a line to an entry. A malformed line still gives one, so that numbers stay stable. */
static json_t *entry_of(const char *line, const char *end)
{
	_cleanup_free_ char *time = take_field(&line, end), *level = take_field(&line, end),
			    *step = take_field(&line, end), *message = take_field(&line, end);
	json_t *one;
	uint64_t ns = 0;

	if (!time || !level || !step || !message)
		return NULL;
	(void)str_to_u64(time, strlen(time), INT64_MAX, &ns);
	one = JSON_OBJECT({ "time", json_number(ns) }, { "level", json_string(level) },
			  { "message", json_string(message) });
	if (one && step[0] && json_put(one, "step", json_string(step)) < 0) {
		json_decref(one);
		return NULL;
	}
	return one;
}

static int take_lines(const struct buf *b, uint64_t from, size_t max, json_t *list, struct err *e)
{
	const char *at = buf_text(b), *end = at + b->len, *newline;
	size_t bytes = 0;
	int r = 0;

	for (uint64_t i = 0; r == 0 && json_array_size(list) < max && bytes < TEMPLATE_PAGE_BYTES &&
			     (newline = memchr(at, '\n', (size_t)(end - at)));
	     i++) {
		if (i >= from) {
			r = json_push(list, entry_of(at, newline)) < 0 ? err_oom(e) : 0;
			bytes += (size_t)(newline - at);
		}
		at = newline + 1;
	}
	return r;
}

int template_log_read(const struct template_store *s, const char *build, uint64_t from, size_t max,
		      json_t **ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(TEMPLATE_LOG_MAX);
	_cleanup_json_ json_t *list = json_array();
	char file[TEMPLATE_FILE_NAME];
	int r = log_file(build, file, e);

	if (r == 0)
		r = fd_read_file(s->builds, file, &b, e);
	if (r == -ENOENT)
		r = 0;
	if (r == 0 && !list)
		r = err_oom(e);
	if (r == 0)
		r = take_lines(&b, from, MIN(max, (size_t)TEMPLATE_PAGE_MAX), list, e);
	if (r == 0)
		*ret = TAKE_PTR(list);
	return r;
}
