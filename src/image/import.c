/* SPDX-License-Identifier: Apache-2.0 */
/* Importing, and code shared by importing and building. */
#include <fcntl.h>
#include <limits.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/path.h"
#include "base/str.h"
#include "image/image-make.h"

int image_making_start(struct image_making *m, const struct image_store *store, struct err *e)
{
	int r;

	*m = (struct image_making)IMAGE_MAKING_INIT(store);
	r = ids_find(&m->ids, e);
	if (r == 0)
		r = image_store_clean(store, &m->ids, NULL, NULL, e);
	if (r == 0)
		r = image_work_new(store, &m->work, e);
	if (r == 0)
		r = FAULT_ERR("image-work", e);
	m->job.ids = &m->ids;
	m->job.work = m->work.fd;
	return r;
}

void image_making_done(struct image_making *m)
{
	struct err ignored = ERR_INIT;

	(void)image_work_drop(m->store, &m->work, &m->ids, &ignored);
	(void)fd_close(m->job.input);
	(void)fd_close(m->job.layout);
	(void)fd_close(m->job.news);
	(void)fd_close(m->job.log);
	json_decref(m->result.config);
}

static json_t *tree_json(const struct image_making *m)
{
	const struct image_counts *c = &m->result.counts;
	const struct tree_info *t = &m->result.tree;

	return JSON_OBJECT(
		{ "format", json_integer(1) }, { "files", json_integer((json_int_t)t->files) },
		{ "directories", json_integer((json_int_t)t->dirs) },
		{ "links", json_integer((json_int_t)t->links) },
		{ "size", json_integer((json_int_t)t->bytes) },
		{ "ids", JSON_OBJECT({ "uid", json_integer(m->ids.uid) },
				     { "gid", json_integer(m->ids.gid) },
				     { "count", json_integer(IMAGE_ID_COUNT) }) },
		{ "rules",
		  JSON_OBJECT({ "devices_dropped", json_integer((json_int_t)c->devices) },
			      { "fifos_dropped", json_integer((json_int_t)c->fifos) },
			      { "setids_cleared", json_integer((json_int_t)c->setids) },
			      { "xattrs_dropped", json_integer((json_int_t)c->xattrs) },
			      { "covered_dropped", json_integer((json_int_t)c->covered) }) },
		{ "landlock", json_boolean(m->result.landlock) });
}

int image_making_keep(struct image_making *m, const char *name, json_t *info,
		      struct image_done *ret, struct err *e)
{
	_cleanup_json_ json_t *meta = tree_json(m), *taken = info;
	char when[CLOCK_RFC3339_MAX];
	struct image_done done = { .counts = m->result.counts, .tree = m->result.tree };
	int r;

	(void)sodium_bin2hex(done.digest, sizeof(done.digest), m->result.tree.digest,
			     sizeof(m->result.tree.digest));
	if (!meta || !taken ||
	    json_put(taken, "created", json_string(clock_format(clock_wall(), when))) < 0)
		return err_oom(e);
	r = image_store_keep(m->store, &m->work, &m->ids,
			     &(struct image_record){ name, done.digest, taken, meta }, &done.is_new,
			     e);
	if (r == 0)
		*ret = done;
	return r;
}

/*
 * PATH, PATH:TAG or PATH:NAME:TAG: the longest existing prefix is the path, since a path may
 * contain colons. If none exists, the part before the last colon.
 */
static int split(const char *path, char *dir, size_t n, const char **ret_tag, struct err *e)
{
	const char *last = strrchr(path, ':');
	size_t len = strlen(path);
	struct stat st;
	char *colon;

	if (len >= n)
		return err_set(e, -ENAMETOOLONG, "the path is too long");
	memcpy(dir, path, len + 1);
	while (stat(dir, &st) < 0 && (colon = strrchr(dir, ':')) && colon > dir)
		*colon = '\0';
	if (stat(dir, &st) == 0)
		len = strlen(dir);
	else if (last && last[1])
		len = (size_t)(last - path);
	memcpy(dir, path, len);
	dir[len] = '\0';
	*ret_tag = path[len] == ':' && path[len + 1] ? path + len + 1 : NULL;
	return 0;
}

/* Suggests what to do with another kind of directory. */
static int check_layout(int fd, const char *dir, struct err *e)
{
	if (faccessat(fd, "index.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	if (faccessat(fd, "manifest.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return err_set(e, -EINVAL,
			       "'%.80s' is not an OCI layout: convert it with 'skopeo copy dir:DIR "
			       "oci:OTHER'",
			       dir);
	return err_set(e, -EINVAL,
		       "'%.80s' is not an OCI layout; import a root tree as an archive: tar -C DIR "
		       "-cf FILE .",
		       dir);
}

static int open_source(struct image_making *m, const char *path, struct err *e)
{
	char dir[PATH_MAX];
	struct stat st;
	int fd, r = split(path, dir, sizeof(dir), &m->job.spec.tag, e);

	if (r < 0)
		return r;
	/* O_NONBLOCK so that opening a FIFO does not wait for its other end. */
	fd = open(dir, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return err_errno(e, "cannot open '%.120s'", dir);
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		m->job.spec.kind = WORK_OCI;
		m->job.layout = fd;
		return check_layout(fd, dir, e);
	}
	m->job.spec.kind = WORK_TAR;
	m->job.input = fd;
	if (!S_ISREG(st.st_mode))
		return err_set(e, -EINVAL,
			       "'%.120s' is neither an archive nor the directory of an "
			       "OCI layout",
			       path);
	return 0;
}

/* A file name need not be UTF-8. */
static json_t *file_json(const char *name)
{
	return json_string(utf8_valid(name, strlen(name)) ? name : "(not UTF-8)");
}

int image_import(const struct image_store *store, const char *name, const char *path,
		 struct image_reporter reporter, struct image_done *ret, struct err *e)
{
	_cleanup_making_ struct image_making m;
	const char *base = strrchr(path, '/');
	int r = image_making_start(&m, store, e);

	if (r == 0)
		r = open_source(&m, path, e);
	if (r < 0)
		return r;
	m.job.phase = PHASE_UNPACK;
	m.job.reporter = reporter;
	r = job_run(&m.job, &m.result, e);
	if (r == 0)
		r = FAULT_ERR("image-unpacked", e);
	if (r < 0)
		return r;
	if (json_put(m.result.config, "source",
		     JSON_OBJECT({ "kind", json_string(m.job.spec.kind == WORK_OCI ? "oci"
						       : m.result.archive ? m.result.archive
									  : "tar") },
				 { "file", file_json(base ? base + 1 : path) })) < 0)
		return err_oom(e);
	return image_making_keep(&m, name, TAKE_PTR(m.result.config), ret, e);
}
