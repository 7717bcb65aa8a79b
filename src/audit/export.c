/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An export is one stream: a line "hutch-audit-export 1 KEY", and for each file a line "file NAME
 * SIZE" followed by its bytes. Lines end in '\n'. It is read in place, not unpacked.
 */
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

#include "audit/audit-inner.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

enum {
	LINE_MAX_BYTES = 192,
	COPY_CHUNK = 64 * 1024,
	IMPORT_MAX = 1024 * 1024, /* maximum number of files */
};

static int copy(int in, uint64_t base, uint64_t size, int out)
{
	_cleanup_free_ char *chunk = malloc(COPY_CHUNK);

	if (!chunk)
		return -ENOMEM;
	for (uint64_t at = 0; at < size;) {
		ssize_t k =
			RETRY_EINTR(pread(in, chunk, (size_t)MIN(size - at, (uint64_t)COPY_CHUNK),
					  (off_t)(base + at)));
		int r = k > 0 ? fd_write_all(out, chunk, (size_t)k) : k < 0 ? -errno : -ESTALE;

		if (r < 0)
			return r;
		at += (uint64_t)k;
	}
	return 0;
}

static int export_file(const struct audit_set *s, const struct audit_file *f, int out)
{
	_cleanup_close_ int own = -EBADF;
	char line[LINE_MAX_BYTES];
	int r, in = s->stream;

	if (in < 0)
		in = own = path_open_nofollow(f->id[0] ? s->sandboxes : s->dir, f->name,
					      O_RDONLY | O_NONBLOCK, 0);
	if (in < 0)
		return in;
	(void)snprintf(line, sizeof(line), "file %s %llu\n", f->name, (unsigned long long)f->size);
	r = fd_write_all(out, line, strlen(line));
	return r < 0 ? r : copy(in, f->base, f->size, out);
}

int audit_export(const struct audit_set *s, int out, struct err *e)
{
	char hex[2 * AUDIT_PUBLIC + 1], line[LINE_MAX_BYTES];
	int r;

	(void)sodium_bin2hex(hex, sizeof(hex), s->key, AUDIT_PUBLIC);
	(void)snprintf(line, sizeof(line), "hutch-audit-export 1 %s\n", hex);
	r = fd_write_all(out, line, strlen(line));
	for (size_t i = 0; r == 0 && i < s->n; i++)
		r = export_file(s, &s->files[i], out);
	return r < 0 ? err_set(e, r, "cannot export the audit log: %s", strerror(-r)) : 0;
}

/* Reads the line at `*at`, without its end, and moves *at behind it. False: there is none. */
static bool read_line(int fd, uint64_t *at, char out[static LINE_MAX_BYTES])
{
	ssize_t k = RETRY_EINTR(pread(fd, out, LINE_MAX_BYTES - 1, (off_t)*at));
	char *end = k > 0 ? memchr(out, '\n', (size_t)k) : NULL;

	if (!end)
		return false;
	*end = '\0';
	*at += (uint64_t)(end - out) + 1;
	return strlen(out) == (size_t)(end - out);
}

/* "file NAME SIZE" */
static bool read_entry(char *line, uint64_t at, uint64_t size, struct audit_file *ret)
{
	char *name = line + STRLEN("file "), *space;

	if (!str_has_prefix(line, "file "))
		return false;
	space = strchr(name, ' ');
	if (!space)
		return false;
	*space = '\0';
	if (strlen(name) >= AUDIT_NAME_MAX || !audit_file_parse(name, ret) ||
	    str_to_u64(space + 1, strlen(space + 1), size, &ret->size) < 0)
		return false;
	ret->base = at;
	return ret->size <= size - at;
}

/* Requires the order of audit_set_open(), so that no file appears twice. */
static bool comes_after(const struct audit_file *a, const struct audit_file *b)
{
	int order = strcmp(a->id, b->id);

	return order < 0 || (order == 0 && a->number < b->number);
}

static int import_files(struct audit_set *s, uint64_t at, uint64_t size, struct err *e)
{
	size_t cap = 0;

	while (at < size) {
		char line[LINE_MAX_BYTES] = "";
		struct audit_file f = { 0 };
		uint64_t start = at;

		if (s->n == IMPORT_MAX || !read_line(s->stream, &at, line) ||
		    !read_entry(line, at, size, &f) ||
		    (s->n > 0 && !comes_after(&s->files[s->n - 1], &f)))
			return err_set(e, -EINVAL,
				       "byte %llu of the export: expected 'file NAME SIZE'",
				       (unsigned long long)start);
		if (s->n == cap) {
			struct audit_file *p =
				reallocarray(s->files, cap = cap ? 2 * cap : 16, sizeof(*p));

			if (!p)
				return err_oom(e);
			s->files = p;
		}
		s->files[s->n++] = f;
		at += f.size;
	}
	return 0;
}

int audit_set_import(int fd, struct audit_set *ret, struct err *e)
{
	_cleanup_audit_set_ struct audit_set s = { .dir = -EBADF,
						   .sandboxes = -EBADF,
						   .stream = fd };
	static const char magic[] = "hutch-audit-export 1 ";
	char line[LINE_MAX_BYTES] = "";
	uint64_t at = 0;
	struct stat st;
	size_t n = 0;
	int r;

	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat the export");
	if (!S_ISREG(st.st_mode))
		return err_set(e, -EINVAL, "an export is read from a file, not from a pipe");
	if (!read_line(fd, &at, line) || !str_has_prefix(line, magic) ||
	    sodium_hex2bin(s.key, AUDIT_PUBLIC, line + strlen(magic), strlen(line + strlen(magic)),
			   NULL, &n, NULL) < 0 ||
	    n != AUDIT_PUBLIC)
		return err_set(e, -EINVAL, "this is not an export from 'hutch audit export'");
	s.has_key = true;
	r = import_files(&s, at, (uint64_t)st.st_size, e);
	if (r < 0)
		return r;
	*ret = s;
	s = (struct audit_set)AUDIT_SET_INIT;
	return 0;
}
