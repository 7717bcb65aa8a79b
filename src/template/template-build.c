/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A build goes from waiting to building to ready or error, and never back. Becoming ready takes
 * three writes: the build's status becomes ready; its tags point to it; the build's `tagged`
 * becomes true. After a crash between them template_recover() does the missing writes; until then
 * the tags point to their old builds.
 */
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "template/template-inner.h"

const char *const template_status_names[TEMPLATE_STATUS_MAX] = {
	[TEMPLATE_WAITING] = "waiting",
	[TEMPLATE_BUILDING] = "building",
	[TEMPLATE_READY] = "ready",
	[TEMPLATE_ERROR] = "error",
};

/* ---- records ---- */

static void build_file(const char *build, char out[static TEMPLATE_FILE_NAME])
{
	(void)snprintf(out, TEMPLATE_FILE_NAME, "%.36s.json", build);
}

static json_t *build_json(const struct template_build *b)
{
	const char *tags[TEMPLATE_ASKED_MAX];

	for (size_t i = 0; i < b->n_tags; i++)
		tags[i] = b->tags[i];
	return JSON_OBJECT(
		{ "template", json_string(b->template) }, { "build", json_string(b->build) },
		{ "name", json_string(b->name) }, { "tags", json_texts(tags, b->n_tags) },
		{ "status", json_string(template_status_names[b->status]) },
		{ "tagged", json_boolean(b->tagged) }, { "reason", json_string(b->reason) },
		{ "step", json_string(b->step) }, { "created", json_number(b->created) },
		{ "ended", json_number(b->ended) }, { "cpus", json_number(b->cpus) },
		{ "memory", json_number(b->memory) });
}

static int build_write(const struct template_store *s, const struct template_build *b,
		       struct err *e)
{
	_cleanup_json_ json_t *j = build_json(b);
	char file[TEMPLATE_FILE_NAME];

	build_file(b->build, file);
	return j ? template_write(s->builds, file, j, e) : err_oom(e);
}

static int take_text(const json_t *j, const char *key, char *out, size_t n, struct err *e)
{
	const char *text = NULL;
	int r = json_get_string(j, key, n - 1, &text, e);

	if (r < 0 || !text)
		return r;
	memcpy(out, text, strlen(text) + 1);
	return 0;
}

static int take_status(const json_t *j, enum template_status *ret, struct err *e)
{
	const char *text = NULL;
	int r = json_get_string(j, "status", TEMPLATE_NAME_MAX, &text, e);

	for (unsigned int i = 0; r == 0 && text && i < TEMPLATE_STATUS_MAX; i++)
		if (str_eq(text, template_status_names[i])) {
			*ret = (enum template_status)i;
			return 0;
		}
	return r < 0 ? r : err_set(e, -EINVAL, "no such status");
}

static int take_tags(const json_t *j, struct template_build *b, struct err *e)
{
	const json_t *list = json_object_get(j, "tags"), *one;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > TEMPLATE_ASKED_MAX)
		return err_set(e, -EINVAL, "'tags' is not a list of tags");
	json_array_foreach(list, i, one)
	{
		const char *text = json_string_value(one);

		if (!text || strlen(text) > TEMPLATE_NAME_MAX)
			return err_set(e, -EINVAL, "'tags' is not a list of tags");
		memcpy(b->tags[i], text, strlen(text) + 1);
	}
	b->n_tags = json_array_size(list);
	return 0;
}

static int build_parse(const json_t *j, struct template_build *b, struct err *e)
{
	static const char *const keys[] = { "template", "build",  "name", "tags",    "status",
					    "tagged",	"reason", "step", "created", "ended",
					    "cpus",	"memory", NULL };
	int r = json_only_keys(j, keys, e);

	if (r == 0)
		r = take_text(j, "template", b->template, sizeof(b->template), e);
	if (r == 0)
		r = take_text(j, "build", b->build, sizeof(b->build), e);
	if (r == 0)
		r = take_text(j, "name", b->name, sizeof(b->name), e);
	if (r == 0)
		r = take_tags(j, b, e);
	if (r == 0)
		r = take_status(j, &b->status, e);
	if (r == 0)
		r = json_get_bool(j, "tagged", &b->tagged, e);
	if (r == 0)
		r = take_text(j, "reason", b->reason, sizeof(b->reason), e);
	if (r == 0)
		r = take_text(j, "step", b->step, sizeof(b->step), e);
	if (r == 0)
		r = json_get_u64(j, "created", INT64_MAX, &b->created, e);
	if (r == 0)
		r = json_get_u64(j, "ended", INT64_MAX, &b->ended, e);
	if (r == 0)
		r = json_get_u64(j, "cpus", TEMPLATE_CPUS_MAX, &b->cpus, e);
	if (r == 0)
		r = json_get_u64(j, "memory", TEMPLATE_MEMORY_MAX, &b->memory, e);
	/* A missing key must not look like a missing build. */
	return r == -ENOENT ? err_set(e, -EBADMSG, "a key is missing") : r;
}

int template_build_read(const struct template_store *s, const char *build,
			struct template_build *ret, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	struct template_build b = { 0 };
	char file[TEMPLATE_FILE_NAME];
	int r;

	if (!template_build_valid(build))
		return err_set(e, -EINVAL, "'%.80s' is not the id of a build", build);
	build_file(build, file);
	r = template_read(s->builds, file, &j, e);
	if (r == -ENOENT)
		return err_set(e, r, "no build '%s'", build);
	if (r < 0)
		return r;
	r = build_parse(j, &b, e);
	if (r == 0 && (!str_eq(b.build, build) || !template_id_valid(b.template)))
		r = err_set(e, -EBADMSG, "contents do not match the file name");
	if (r < 0)
		return err_wrap(e, "the template's '%s'", file);
	*ret = b;
	return 0;
}

int template_get(const struct template_store *s, const char *template, const char *build,
		 struct template_build *ret, struct err *e)
{
	struct template_build b = { 0 };
	int r = template_build_read(s, build, &b, e);

	if (r == 0 && !str_eq(b.template, template))
		r = err_set(e, -ENOENT, "no build '%s' of this template", build);
	if (r == 0)
		*ret = b;
	return r;
}

void template_image(const struct template_build *b, char ret[static IMAGE_NAME_MAX + 1])
{
	(void)snprintf(ret, IMAGE_NAME_MAX + 1, "%s:%s", b->template, b->build);
}

/* ---- new builds ---- */

static int add_tag(struct template_build *b, const char *tag, struct err *e)
{
	char whole[IMAGE_NAME_MAX + 1];

	for (size_t i = 0; i < b->n_tags; i++)
		if (str_eq(b->tags[i], tag))
			return 0;
	if (b->n_tags == TEMPLATE_ASKED_MAX)
		return err_set(e, -EINVAL, "more than %d tags", TEMPLATE_ASKED_MAX);
	if (strlen(tag) > TEMPLATE_NAME_MAX)
		return err_set(e, -EINVAL, "'%.80s' is not a tag", tag);
	(void)snprintf(whole, sizeof(whole), "x:%s", tag);
	if (!image_name_valid(whole))
		return err_set(e, -EINVAL, "'%.80s' is not a tag", tag);
	memcpy(b->tags[b->n_tags++], tag, strlen(tag) + 1);
	return 0;
}

static int take_request(const struct template_request *q, struct template_build *b, struct err *e)
{
	const char *const *tag = q->tags;
	struct template_ref ref;
	int r = template_ref_parse(q->name, &ref, e);

	if (r == 0 && (q->cpus > TEMPLATE_CPUS_MAX || q->memory > TEMPLATE_MEMORY_MAX))
		r = err_set(e, -EINVAL, "at most %d processors and %d MiB", TEMPLATE_CPUS_MAX,
			    TEMPLATE_MEMORY_MAX);
	if (r < 0)
		return r;
	*b = (struct template_build){ .cpus = q->cpus,
				      .memory = q->memory,
				      .created = clock_wall() };
	memcpy(b->name, ref.name, sizeof(ref.name));
	r = add_tag(b, ref.tag, e);
	for (; r == 0 && tag && *tag; tag++)
		r = add_tag(b, *tag, e);
	return r;
}

static int check_room(int dir, size_t max, const char *what, struct err *e)
{
	size_t n = 0;
	int r = template_count(dir, &n, e);

	return r == 0 && n >= max ? err_set(e, -EUSERS, "there are %zu %s: remove some", n, what)
				  : r;
}

int template_begin(const struct template_store *s, const struct template_request *q,
		   struct template_build *ret, struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	_cleanup_json_ json_t *record = NULL;
	struct template_build b = { 0 };
	int r = take_request(q, &b, e);

	if (r == 0)
		r = template_lock(s, &lock, e);
	if (r == 0)
		r = check_room(s->builds, TEMPLATE_BUILDS_MAX, "builds", e);
	if (r == 0)
		r = template_record_make(s, b.name, &record, e);
	if (r == 0)
		r = take_text(record, "id", b.template, sizeof(b.template), e);
	if (r == 0 && template_uuid(b.build) < 0)
		r = err_set(e, -EIO, "no random numbers");
	if (r == 0)
		r = build_write(s, &b, e);
	if (r == 0)
		*ret = b;
	return r;
}

/* ---- status changes ---- */

static int read_locked(const struct template_store *s, const char *template, const char *build,
		       enum template_status want, struct template_build *b, int *ret_lock,
		       struct err *e)
{
	int r = template_lock(s, ret_lock, e);

	if (r == 0)
		r = template_get(s, template, build, b, e);
	if (r == 0 && b->status != want)
		r = err_set(e, -EALREADY, "the build is %s, not %s",
			    template_status_names[b->status], template_status_names[want]);
	return r;
}

int template_building(const struct template_store *s, const char *template, const char *build,
		      struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	struct template_build b = { 0 };
	int r = read_locked(s, template, build, TEMPLATE_WAITING, &b, &lock, e);

	if (r < 0)
		return r;
	b.status = TEMPLATE_BUILDING;
	return build_write(s, &b, e);
}

/* Copies untrusted text: invalid UTF-8, also from truncation, becomes '?'. */
static void put_text(char *out, size_t n, const char *text)
{
	(void)snprintf(out, n, "%s", text);
	str_make_utf8(out);
}

static int give_tags(const struct template_store *s, struct template_build *b, struct err *e)
{
	int r = FAULT_ERR("template-ready", e);

	if (r == 0)
		r = template_set_tags(s, b, e);
	if (r == 0)
		r = FAULT_ERR("template-tagged", e);
	if (r == -EUSERS) {
		/* No room for its tags: without a tag no client could use the build. */
		b->status = TEMPLATE_ERROR;
		put_text(b->reason, sizeof(b->reason), e->msg);
	} else if (r < 0) {
		return r;
	} else {
		b->tagged = true;
	}
	r = build_write(s, b, e);
	return r < 0 || b->tagged ? r : -EUSERS;
}

static int finish(const struct template_store *s, struct template_build *b, const char *reason,
		  const char *step, struct err *e)
{
	int r;

	b->ended = clock_wall();
	b->status = reason ? TEMPLATE_ERROR : TEMPLATE_READY;
	put_text(b->reason, sizeof(b->reason), reason ? reason : "");
	put_text(b->step, sizeof(b->step), reason && step ? step : "");
	r = build_write(s, b, e);
	return r < 0 || reason ? r : give_tags(s, b, e);
}

int template_end(const struct template_store *s, const char *template, const char *build,
		 const char *reason, const char *step, struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	struct template_build b = { 0 };
	int r = read_locked(s, template, build, TEMPLATE_BUILDING, &b, &lock, e);

	return r < 0 ? r : finish(s, &b, reason, step, e);
}

/* ---- all builds ---- */

struct each {
	const struct template_store *s;
	int (*fn)(const struct each *a, struct template_build *b, struct err *e);
	const char *reason;
	uint64_t now;
	void (*took)(const char *image, void *arg);
	void *arg;
};

/* Skips unreadable builds. Continues after an error of `fn`, and returns the first one. */
static int each_build(const struct each *a, struct err *e)
{
	DIR *d = fd_list(a->s->builds);
	struct template_build b = { 0 };
	struct dirent *entry;
	int r = 0;

	if (!d)
		return err_errno(e, "cannot list '%s/builds'", a->s->path);
	while ((entry = readdir(d))) {
		char *dot = strchr(entry->d_name, '.');
		struct err own = ERR_INIT;

		if (!dot || !str_eq(dot, ".json"))
			continue;
		*dot = '\0';
		if (template_build_read(a->s, entry->d_name, &b, &own) == 0 &&
		    a->fn(a, &b, &own) < 0 && r == 0) {
			*e = own;
			r = own.num;
		}
	}
	(void)closedir(d);
	return r;
}

static int recover_one(const struct each *a, struct template_build *b, struct err *e)
{
	if (b->status == TEMPLATE_BUILDING)
		return finish(a->s, b, a->reason, NULL, e);
	return b->status == TEMPLATE_READY && !b->tagged ? give_tags(a->s, b, e) : 0;
}

int template_recover(const struct template_store *s, const char *reason, struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	int r = template_lock(s, &lock, e);

	return r < 0 ? r
		     : each_build(&(struct each){ .s = s, .fn = recover_one, .reason = reason }, e);
}

/* Does a tag of its template point to the build? */
static bool is_meant(const struct template_store *s, const struct template_build *b)
{
	_cleanup_json_ json_t *record = NULL;
	struct err e = ERR_INIT;
	const char *tag;
	json_t *one;
	int r = template_record(s, b->name, &record, &e);

	if (r < 0)
		return r != -ENOENT; /* unknown: keep the build */
	json_object_foreach(json_object_get(record, "tags"), tag, one)
	{
		const char *build = json_string_value(json_object_get(one, "build"));

		if (build && str_eq(build, b->build))
			return true;
	}
	return false;
}

static int clean_one(const struct each *a, struct template_build *b, struct err *e)
{
	uint64_t last = b->ended > 0 ? b->ended : b->created;
	char file[TEMPLATE_FILE_NAME], image[IMAGE_NAME_MAX + 1];

	if (b->status == TEMPLATE_BUILDING || (b->status == TEMPLATE_READY && !b->tagged) ||
	    last + TEMPLATE_KEEP_SEC * NSEC_PER_SEC > a->now || is_meant(a->s, b))
		return 0;
	/* Remove the record last: while it exists, an interrupted cleanup is repeated. */
	(void)snprintf(file, sizeof(file), "%s.log", b->build);
	if (unlinkat(a->s->builds, file, 0) < 0 && errno != ENOENT)
		return err_errno(e, "cannot remove '%s/builds/%s'", a->s->path, file);
	template_image(b, image);
	if (a->took)
		a->took(image, a->arg);
	build_file(b->build, file);
	if (unlinkat(a->s->builds, file, 0) < 0)
		return err_errno(e, "cannot remove '%s/builds/%s'", a->s->path, file);
	return 0;
}

/* Removes the files of interrupted writes. The lock keeps all writers out. */
static int clean_temporary(const struct template_store *s, int dir, struct err *e)
{
	DIR *d = fd_list(dir);
	const struct dirent *entry;
	int r = 0;

	if (!d)
		return err_errno(e, "cannot list '%s'", s->path);
	while (r == 0 && (entry = readdir(d)))
		if (str_has_suffix(entry->d_name, ".tmp") && unlinkat(dir, entry->d_name, 0) < 0)
			r = err_errno(e, "cannot remove '%s'", entry->d_name);
	(void)closedir(d);
	return r;
}

int template_clean(const struct template_store *s, uint64_t now,
		   void (*took)(const char *image, void *arg), void *arg, struct err *e)
{
	const struct each a = { .s = s, .fn = clean_one, .now = now, .took = took, .arg = arg };
	_cleanup_close_ int lock = -EBADF;
	int r = template_lock(s, &lock, e);

	if (r == 0)
		r = clean_temporary(s, s->names, e);
	if (r == 0)
		r = clean_temporary(s, s->builds, e);
	return r < 0 ? r : each_build(&a, e);
}
