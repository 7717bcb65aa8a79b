/* SPDX-License-Identifier: Apache-2.0 */
#include "image/archive.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/str.h"
#include "image/stream.h"

enum {
	COPY_CHUNK = 128 * 1024,
	NUMBER_MAX = 16,
};

/* ---- detecting the kind ---- */

/* Findings from the member names so far. */
struct look {
	bool manifest, layout, index, repositories;
	bool is_root;
	char strange[128]; /* first name that no image archive has */
};

static bool is_one_of(const char *name, const char *const *names)
{
	for (; *names; names++)
		if (str_eq(name, *names))
			return true;
	return false;
}

/* The directories that identify a root tree. */
static bool is_root_dir(const struct tar_entry *en)
{
	static const char *const names[] = { "bin", "boot", "dev",  "etc",  "home", "lib",  "lib64",
					     "mnt", "opt",  "proc", "root", "run",  "sbin", "srv",
					     "sys", "tmp",  "usr",  "var",  NULL };
	char first[TAR_PART_MAX + 1];
	size_t n = strcspn(en->name, "/");

	if (n >= sizeof(first))
		return false;
	memcpy(first, en->name, n);
	first[n] = '\0';
	return is_one_of(first, names) &&
	       (en->type == TAR_DIR || en->type == TAR_SYMLINK || en->name[n] == '/');
}

/* "HEX.json", "HEX.tar", "sha256:HEX": configurations and layers at the top level. */
static bool is_part(const char *name)
{
	return !strchr(name, '/') &&
	       (str_has_suffix(name, ".json") || str_has_suffix(name, ".tar") ||
		str_has_suffix(name, ".tar.gz") || str_has_prefix(name, "sha256:"));
}

/* "ID/layer.tar" and its neighbours, as docker before version 25 wrote them. */
static bool is_legacy(const char *name)
{
	static const char *const files[] = { "VERSION", "json", "layer.tar", NULL };
	const char *slash = strchr(name, '/');

	return slash && slash != name && is_one_of(slash + 1, files);
}

static bool belongs(const struct tar_entry *en)
{
	if (en->type == TAR_DIR)
		return str_eq(en->name, ".") || str_eq(en->name, "blobs") ||
		       str_eq(en->name, "blobs/sha256") || !strchr(en->name, '/');
	return is_part(en->name) || is_legacy(en->name) || str_eq(en->name, "oci-layout") ||
	       str_eq(en->name, "repositories") || str_has_prefix(en->name, "blobs/sha256/");
}

static void look_at(struct look *l, const struct tar_entry *en)
{
	const bool file = en->type == TAR_FILE;

	l->is_root |= is_root_dir(en);
	l->manifest |= file && str_eq(en->name, "manifest.json");
	l->layout |= file && str_eq(en->name, "oci-layout");
	l->index |= file && str_eq(en->name, "index.json");
	l->repositories |= file && str_eq(en->name, "repositories");
	if (!l->strange[0] && !belongs(en))
		(void)snprintf(l->strange, sizeof(l->strange), "%.100s", en->name);
}

static int judge(const struct look *l, enum archive_kind *ret, struct err *e)
{
	const bool docker = l->manifest, oci = l->layout && l->index;

	if (l->is_root || (!docker && !oci && !l->repositories)) {
		*ret = ARCHIVE_ROOT;
		return 0;
	}
	if (!docker && !oci)
		return err_set(e, -EINVAL,
			       "an archive of docker before version 1.10: save it again with a "
			       "newer one, or with 'skopeo copy ... oci-archive:FILE'");
	if (l->strange[0])
		return err_set(
			e, -EINVAL,
			"it has the %s of an image, but also '%s', which no image archive has: "
			"it is neither an image nor a root tree",
			docker ? "manifest.json" : "index.json", l->strange);
	*ret = docker ? ARCHIVE_DOCKER : ARCHIVE_OCI;
	return 0;
}

static int open_stream(struct stream *s, int input, struct err *e)
{
	int fd = fcntl(input, F_DUPFD_CLOEXEC, 3);

	return fd < 0 ? err_errno(e, "cannot duplicate the input descriptor")
		      : stream_open(s, fd, e);
}

int archive_look(int input, enum archive_kind *ret, struct err *e)
{
	_cleanup_stream_ struct stream s = STREAM_INIT;
	_cleanup_free_ struct tar_entry *en = calloc(1, sizeof(*en));
	struct tar t = { .read = stream_read, .arg = &s };
	struct look l = { 0 };
	uint64_t n = 0, bytes = 0;
	int r;

	if (!en)
		return err_oom(e);
	r = open_stream(&s, input, e);
	while (r == 0 && !l.is_root && n++ < IMAGE_ENTRIES_MAX) {
		r = tar_next(&t, en, e);
		if (r <= 0)
			break;
		look_at(&l, en);
		bytes += MIN(en->size, IMAGE_BYTES_MAX);
		r = bytes > IMAGE_BYTES_MAX ? err_set(e, -EFBIG, "larger than %llu GiB",
						      (unsigned long long)(IMAGE_BYTES_MAX >> 30))
					    : 0;
	}
	/* The actual unpacking reports errors in a root tree better. */
	if (r == -EINVAL && !l.manifest && !l.layout) {
		*ret = ARCHIVE_ROOT;
		return 0;
	}
	return r < 0 ? r : judge(&l, ret, e);
}

/* ---- members ---- */

static const struct archive_member *find(const struct archive *a, const char *name, size_t *ret_i)
{
	for (size_t i = 0; i < a->n; i++)
		if (str_eq(a->v[i].name, name)) {
			*ret_i = i;
			return &a->v[i];
		}
	return NULL;
}

static int add_member(struct archive *a, const struct tar_entry *en, struct err *e)
{
	struct archive_member *m = &a->v[a->n];
	size_t i;

	if (en->type != TAR_FILE && en->type != TAR_SYMLINK)
		return err_set(e, -EINVAL, "'%.100s' is neither a file nor a link", en->name);
	if (find(a, en->name, &i))
		return err_set(e, -EINVAL, "'%.100s' is in the archive twice", en->name);
	if (a->n == ARCHIVE_MEMBERS_MAX)
		return err_set(e, -EINVAL, "more than %d files", ARCHIVE_MEMBERS_MAX);
	m->name = strdup(en->name);
	m->link = en->type == TAR_SYMLINK ? strdup(en->link) : NULL;
	a->n++; /* archive_done() frees a partial member */
	return !m->name || (en->type == TAR_SYMLINK && !m->link) ? err_oom(e) : 0;
}

static const char *number(size_t i, char out[static NUMBER_MAX])
{
	(void)snprintf(out, NUMBER_MAX, "%zu", i);
	return out;
}

static int copy_member(const struct archive *a, struct tar *t, char *chunk, struct worker *w,
		       struct image_counts *counts, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	char name[NUMBER_MAX];
	int64_t k;
	int r;

	fd = RETRY_EINTR(openat(a->dir, number(a->n - 1, name),
				O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0)
		return err_errno(e, "cannot create a file for '%.100s'", a->v[a->n - 1].name);
	while ((k = tar_read(t, chunk, COPY_CHUNK, e)) > 0) {
		counts->bytes += (uint64_t)k;
		if (counts->bytes > IMAGE_BYTES_MAX)
			return err_set(e, -EINVAL, "more than %llu bytes",
				       (unsigned long long)IMAGE_BYTES_MAX);
		r = fd_write_all(fd, chunk, (size_t)k);
		if (r < 0)
			return err_set(e, r, "cannot write '%.100s': %s", a->v[a->n - 1].name,
				       strerror(-r));
		worker_tell(w, PHASE_VERIFY, counts);
	}
	return k < 0 ? (int)k : 0;
}

static int copy_all(struct archive *a, struct stream *s, struct worker *w, struct err *e)
{
	_cleanup_free_ struct tar_entry *en = calloc(1, sizeof(*en));
	_cleanup_free_ char *chunk = malloc(COPY_CHUNK);
	struct image_counts counts = { 0 };
	struct tar t = { .read = stream_read, .arg = s };
	int r;

	if (!en || !chunk)
		return err_oom(e);
	while ((r = tar_next(&t, en, e)) > 0) {
		if (++counts.entries > IMAGE_ENTRIES_MAX)
			return err_set(e, -EINVAL, "more than %llu entries",
				       (unsigned long long)IMAGE_ENTRIES_MAX);
		if (en->type == TAR_DIR)
			continue;
		r = add_member(a, en, e);
		if (r == 0 && en->type == TAR_FILE)
			r = copy_member(a, &t, chunk, w, &counts, e);
		if (r < 0)
			return r;
	}
	return r;
}

int archive_read(struct archive *a, int work, int input, struct worker *w, struct err *e)
{
	_cleanup_stream_ struct stream s = STREAM_INIT;
	uint8_t digest[IMAGE_DIGEST];
	int r = open_stream(&s, input, e);

	if (r < 0)
		return r;
	a->v = calloc(ARCHIVE_MEMBERS_MAX + 1, sizeof(a->v[0]));
	if (!a->v)
		return err_oom(e);
	if (mkdirat(work, ARCHIVE_PARTS, 0700) < 0)
		return err_errno(e, "cannot create a directory for the archive's files");
	a->dir = RETRY_EINTR(
		openat(work, ARCHIVE_PARTS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (a->dir < 0)
		return err_errno(e, "cannot open the directory for the archive's files");
	r = copy_all(a, &s, w, e);
	return r < 0 ? r : stream_finish(&s, digest, e);
}

/*
 * Resolves a link to a name in the archive, relative to the member's directory. Works on the text
 * only: there is no file system here.
 */
static int follow(const struct archive_member *m, char out[static TAR_NAME_MAX + 1], struct err *e)
{
	const char *slash = strrchr(m->name, '/'), *to = m->link;
	char joined[2 * TAR_NAME_MAX];
	size_t depth = slash ? (size_t)(slash - m->name) : 0;

	/* "ID/layer.tar" is at most one directory deep, so ".." is the top level. */
	if (str_has_prefix(to, "../") && depth > 0 && !memchr(m->name, '/', depth)) {
		to += STRLEN("../");
		depth = 0;
	}
	(void)snprintf(joined, sizeof(joined), "%.*s%s%s", (int)depth, m->name,
		       depth > 0 ? "/" : "", to);
	return to[0] == '/' ? err_set(e, -EINVAL, "'%.100s' is a link that leads out", m->name)
			    : tar_clean_name(joined, strlen(joined), out, e);
}

int archive_open(const struct archive *a, const char *name, int *ret_fd, struct err *e)
{
	char target[TAR_NAME_MAX + 1], file[NUMBER_MAX];
	size_t i = 0;
	const struct archive_member *m = find(a, name, &i);
	int r;

	if (m && m->link) {
		r = follow(m, target, e);
		if (r < 0)
			return r;
		m = find(a, target, &i);
	}
	if (!m)
		return err_set(e, -EINVAL, "the archive has no '%.100s'", name);
	if (m->link)
		return err_set(e, -EINVAL, "'%.100s' is a link to a link", name);
	r = RETRY_EINTR(openat(a->dir, number(i, file), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
	if (r < 0)
		return err_errno(e, "cannot open '%.100s' of the archive", name);
	*ret_fd = r;
	return 0;
}

void archive_done(struct archive *a)
{
	for (size_t i = 0; i < a->n; i++) {
		free(a->v[i].name);
		free(a->v[i].link);
	}
	free(a->v);
	a->v = NULL;
	a->n = 0;
	a->dir = fd_close(a->dir);
}
