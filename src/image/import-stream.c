/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates an image from a streamed tree, with the run configuration of its base image: a tree alone
 * does not say how to run it.
 */
#include <string.h>

#include "base/fault.h"
#include "base/str.h"
#include "image/image-make.h"

static int check_text(const char *what, const char *text, struct err *e)
{
	if (strlen(text) > IMAGE_TEXT_MAX)
		return err_set(e, -EINVAL, "%s has more than %d bytes", what, IMAGE_TEXT_MAX);
	if (!utf8_valid(text, strlen(text)))
		return err_set(e, -EINVAL, "%s is not UTF-8", what);
	return 0;
}

/* Uses `own` if set, else the base image's value; omits the key without either. */
static int put_text(json_t *info, const json_t *from, const char *key, const char *own,
		    struct err *e)
{
	const char *text = own ? own : json_string_value(json_object_get(from, key));

	if (!text)
		return 0;
	if (check_text(key, text, e) < 0)
		return e->num;
	return json_put(info, key, json_string(text)) < 0 ? err_oom(e) : 0;
}

static int put_variable(json_t *env, const char *text, struct err *e)
{
	const char *equals = strchr(text, '=');
	char name[IMAGE_TEXT_MAX + 1];

	if (check_text("a variable", text, e) < 0)
		return e->num;
	if (!equals || equals == text)
		return err_set(e, -EINVAL, "'%.80s' is not of the form NAME=value", text);
	(void)snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
	if (json_put(env, name, json_string(equals + 1)) < 0)
		return err_oom(e);
	if (json_object_size(env) > IMAGE_ENV_MAX)
		return err_set(e, -EINVAL, "more than %d variables", IMAGE_ENV_MAX);
	return 0;
}

static int put_env(json_t *info, const json_t *from, const char *const *own, struct err *e)
{
	const json_t *old = json_object_get(from, "env");
	json_t *env = old ? json_deep_copy(old) : json_object();
	int r = 0;

	if (json_put(info, "env", env) < 0) /* takes it, also on failure */
		return err_oom(e);
	for (; r == 0 && own && *own; own++)
		r = put_variable(env, *own, e);
	return r;
}

/* Copies the base image's command. */
static int put_words(json_t *info, const json_t *from, const char *key, struct err *e)
{
	json_t *list = json_object_get(from, key);

	return json_is_array(list) && json_put(info, key, json_incref(list)) < 0 ? err_oom(e) : 0;
}

static int put_source(json_t *info, const struct image_stream *s, struct err *e)
{
	const char *name = json_string_value(json_object_get(s->from, "name"));
	const char *digest = json_string_value(json_object_get(s->from, "sha256"));

	return json_put(info, "source",
			JSON_OBJECT({ "kind", json_string("commit") },
				    { "sandbox", json_string(s->sandbox) },
				    { "image", json_string(name ? name : "") },
				    { "sha256", json_string(digest ? digest : "") })) < 0
		       ? err_oom(e)
		       : 0;
}

static int make_info(const struct image_stream *s, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *info = json_object();
	const struct image_config *c = &s->config;
	int r = info ? put_env(info, s->from, c->env, e) : err_oom(e);

	if (r == 0 && c->workdir && c->workdir[0] != '/')
		r = err_set(e, -EINVAL, "the working directory '%.80s' is not absolute",
			    c->workdir);
	if (r == 0)
		r = put_text(info, s->from, "user", c->user, e);
	if (r == 0)
		r = put_text(info, s->from, "workdir", c->workdir, e);
	if (r == 0)
		r = put_text(info, s->from, "start", c->start, e);
	if (r == 0)
		r = put_text(info, s->from, "ready", c->ready, e);
	if (r == 0)
		r = put_words(info, s->from, "entrypoint", e);
	if (r == 0)
		r = put_words(info, s->from, "cmd", e);
	if (r == 0)
		r = put_source(info, s, e);
	if (r == 0)
		*ret = TAKE_PTR(info);
	return r;
}

/* Unpacks the whole tree. */
static int take_tree(const struct image_stream *s, struct image_making *m, int input, struct err *e)
{
	struct err ended = ERR_INIT;
	int r;

	m->job.spec = (struct work_spec){ .kind = WORK_TAR, .from_sandbox = true };
	m->job.input = input;
	m->job.phase = PHASE_UNPACK;
	m->job.reporter = s->reporter;
	r = job_run(&m->job, &m->result, e);
	if (s->ended(s->arg, r, &ended) < 0) {
		*e = ended;
		r = ended.num;
	}
	return r < 0 ? r : FAULT_ERR("image-unpacked", e);
}

int image_import_stream(const struct image_stream *s, struct image_done *ret, struct err *e)
{
	_cleanup_close_ int input = s->input;
	_cleanup_making_ struct image_making m = IMAGE_MAKING_INIT(s->store);
	_cleanup_json_ json_t *info = NULL;
	int r = image_name_valid(s->name)
			? make_info(s, &info, e)
			: err_set(e, -EINVAL, "'%.80s' is not a name: " IMAGE_NAME_RULE, s->name);

	if (r == 0)
		r = image_making_start(&m, s->store, e);
	if (r == 0)
		r = take_tree(s, &m, TAKE_FD(input), e);
	return r < 0 ? r : image_making_keep(&m, s->name, TAKE_PTR(info), ret, e);
}
