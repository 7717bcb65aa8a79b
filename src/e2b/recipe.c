/* SPDX-License-Identifier: Apache-2.0 */
#include "e2b/recipe.h"

#include <stdarg.h>
#include <string.h>

#include "api/box.h"
#include "api/gunzip.h"
#include "audit/audit-log.h"
#include "base/log.h"
#include "base/str.h"
#include "builtin/default-store.h"
#include "client/runner.h"
#include "job/job.h"
#include "sandbox/sandbox.h"

enum {
	STEP_MS = 30 * 60 * 1000,
	READY_MS = 5 * 60 * 1000,
	BUILD_MS = 4 * 60 * 60 * 1000,
	CHUNK = 64 * 1024,
};

#define UNPACKED_MAX (UINT64_C(4) << 30)

/* Unpacked into a separate directory first: the archive has the names of the sender's directory,
 * and COPY decides where they go. */
static const char copy_dir[] = "/tmp/.hutch-copy";
static const char copy_script[] = "set -e\n"
				  "src=$1 dest=$2 owner=$3 mode=$4\n"
				  "cd /tmp/.hutch-copy\n"
				  "set -- $src\n" /* a pattern, as the sender used it */
				  "case $dest in */) mkdir -p -- \"$dest\" ;; *) mkdir -p -- "
				  "\"$(dirname -- \"$dest\")\" ;; esac\n"
				  "[ $# -gt 1 ] && mkdir -p -- \"$dest\"\n"
				  "for one; do\n"
				  "  if [ -d \"$one\" ] && [ $# -eq 1 ]; then mkdir -p -- "
				  "\"$dest\"; cp -a -- \"$one/.\" \"$dest\"; to=$dest\n"
				  "  else cp -a -- \"$one\" \"$dest\"; if [ -d \"$dest\" ]; then "
				  "to=$dest/$(basename -- \"$one\"); else to=$dest; fi; fi\n"
				  "  [ -z \"$owner\" ] || chown -R -- \"$owner\" \"$to\"\n"
				  "  [ -z \"$mode\" ] || chmod -R -- \"$mode\" \"$to\"\n"
				  "done\n"
				  "rm -rf /tmp/.hutch-copy\n";

struct recipe {
	const struct template_store *store;
	const struct template_build *build;
	const struct recipe_terms *terms;
	struct sandbox sandbox;
	struct runner *runner;
	char step[TEMPLATE_STEP_MAX + 1]; /* current step */
	const char *user;		  /* for the following steps */
	const char *workdir;
	char *env[RECIPE_ENV_MAX + 1];
	size_t n_env;
	char digest[IMAGE_DIGEST_HEX + 1]; /* digest of the image; "": none yet */
};

/* ---- the log ---- */

static void say(struct recipe *r, enum template_level level, const char *fmt, ...) _printf_(3, 4);

static void say(struct recipe *r, enum template_level level, const char *fmt, ...)
{
	char text[TEMPLATE_TEXT_MAX + 1];
	struct err e = ERR_INIT;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (template_log(r->store, r->build->build, level, r->step[0] ? r->step : NULL, text, &e) <
	    0)
		log_warning("build %s: %s", r->build->build, e.msg);
}

static void on_line(void *arg, unsigned int stream, const char *line)
{
	say(arg, TEMPLATE_INFO, "[%s] %s", stream == 1 ? "stdout" : "stderr", line);
}

/* ---- validation ---- */

static int check_text(const json_t *j, const char *key, struct err *e)
{
	const json_t *value = json_object_get(j, key);

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_string(value) || json_string_length(value) > RECIPE_TEXT_MAX)
		return err_set(e, -EINVAL, "%s: expected a text", key);
	return 0;
}

static const struct {
	const char *type;
	size_t min, max;
} types[] = {
	{ "RUN", 1, 2 },     { "COPY", 2, 4 }, { "ENV", 2, RECIPE_ARGS_MAX },
	{ "WORKDIR", 1, 1 }, { "USER", 1, 1 },
};

static int check_step(const json_t *step, size_t number, struct err *e)
{
	const char *type = json_string_value(json_object_get(step, "type"));
	const json_t *args = json_object_get(step, "args"), *one;
	size_t i, k = 0;

	while (k < ARRAY_SIZE(types) && (!type || !str_eq(type, types[k].type)))
		k++;
	if (k == ARRAY_SIZE(types))
		return err_set(e, -EINVAL,
			       "step %zu: '%.20s' is not RUN, COPY, ENV, WORKDIR or USER", number,
			       type ? type : "?");
	if (json_array_size(args) < types[k].min || json_array_size(args) > types[k].max ||
	    (str_eq(type, "ENV") && json_array_size(args) % 2 == 1))
		return err_set(e, -EINVAL, "step %zu: %s has %zu arguments", number, type,
			       json_array_size(args));
	json_array_foreach(args, i, one)
	{
		if (!json_is_string(one) || json_string_length(one) > RECIPE_TEXT_MAX)
			return err_set(e, -EINVAL, "step %zu: an argument is not a text", number);
	}
	return check_text(step, "filesHash", e);
}

int recipe_check(const json_t *recipe, struct err *e)
{
	static const char *const texts[] = { "fromImage", "fromTemplate", "startCmd", "readyCmd" };
	const json_t *steps = json_object_get(recipe, "steps"), *step;
	int r = 0;
	size_t i;

	for (i = 0; r == 0 && i < ARRAY_SIZE(texts); i++)
		r = check_text(recipe, texts[i], e);
	if (r == 0 &&
	    !json_object_get(recipe, "fromImage") == !json_object_get(recipe, "fromTemplate"))
		r = err_set(e, -EINVAL, "expected either fromImage or fromTemplate");
	if (r == 0 && steps && !json_is_null(steps) &&
	    (!json_is_array(steps) || json_array_size(steps) > RECIPE_STEPS_MAX))
		r = err_set(e, -EINVAL, "steps: expected a list of at most %d", RECIPE_STEPS_MAX);
	json_array_foreach(steps, i, step)
	{
		if (r == 0)
			r = check_step(step, i + 1, e);
	}
	return r;
}

/* ---- steps ---- */

static const char *arg(const json_t *args, size_t i)
{
	const char *text = json_string_value(json_array_get(args, i));

	return text && text[0] ? text : NULL;
}

static int in_sandbox(struct recipe *r, const struct runner_command *with, struct err *e)
{
	struct runner_command c = *with;
	int status = -1, rc;

	c.env = (const char *const *)r->env;
	c.timeout = STEP_MS;
	c.line = on_line;
	c.arg = r;
	rc = runner_exec(r->runner, &c, &status, e);
	if (rc < 0 || status == 0)
		return rc;
	return err_set(e, -ECANCELED, "command ended with exit status %d", status);
}

static int step_run(struct recipe *r, const json_t *step, const json_t *args, struct err *e)
{
	const struct runner_command c = { .script = arg(args, 0) ? arg(args, 0) : "true",
					  .user = arg(args, 1) ? arg(args, 1) : r->user,
					  .cwd = r->workdir };

	return in_sandbox(r, &c, e);
}

/* A tar archive, plain or gzipped: gzip has its own first two bytes, which no tar begins with. */
struct archive {
	int fd;
	struct gunzip *gunzip;
	char in[CHUNK];
	const char *pos;
	size_t left;
};

static ssize_t read_archive(void *arg, char *out, size_t n, struct err *e)
{
	struct archive *a = arg;
	ssize_t got = 0;

	for (;;) {
		if (a->gunzip)
			got = gunzip_next(a->gunzip, &a->pos, &a->left, out, n, e);
		if (got != 0)
			return got;
		got = RETRY_EINTR(read(a->fd, a->gunzip ? a->in : out, a->gunzip ? CHUNK : n));
		if (got < 0)
			return err_errno(e, "cannot read the archive");
		if (got == 0 || !a->gunzip)
			return got;
		a->pos = a->in;
		a->left = (size_t)got;
	}
}

static int unpack(struct recipe *r, int fd, struct err *e)
{
	static const struct gunzip_limits limits = { .free = UNPACKED_MAX, .ratio = 1 };
	struct archive *a = calloc(1, sizeof(*a));
	unsigned char magic[2] = { 0 };
	int rc;

	if (!a)
		return err_oom(e);
	a->fd = fd;
	rc = pread(fd, magic, 2, 0) == 2 && magic[0] == 0x1f && magic[1] == 0x8b &&
			     gunzip_new(&limits, &a->gunzip) < 0
		     ? err_oom(e)
		     : runner_unpack(r->runner, copy_dir, "root", read_archive, a, e);
	(void)gunzip_free(a->gunzip);
	free(a);
	return rc;
}

static int step_copy(struct recipe *r, const json_t *step, const json_t *args, struct err *e)
{
	const char *hash = json_string_value(json_object_get(step, "filesHash"));
	const char *const make[] = { "/bin/mkdir", "-p", copy_dir, NULL };
	const char *const move[] = { "/bin/sh",
				     "-c",
				     copy_script,
				     "copy",
				     arg(args, 0) ? arg(args, 0) : ".",
				     arg(args, 1) ? arg(args, 1) : ".",
				     arg(args, 2) ? arg(args, 2) : "",
				     arg(args, 3) ? arg(args, 3) : "",
				     NULL };
	const struct runner_command before = { .argv = make, .user = "root" };
	const struct runner_command after = { .argv = move, .user = "root", .cwd = r->workdir };
	_cleanup_close_ int fd = -EBADF;
	int rc;

	if (!hash)
		return err_set(e, -EINVAL, "COPY has no filesHash");
	rc = template_file_open(r->store, r->build->template, hash, &fd, e);
	if (rc == 0)
		rc = in_sandbox(r, &before, e);
	if (rc == 0)
		rc = unpack(r, fd, e);
	return rc < 0 ? rc : in_sandbox(r, &after, e);
}

static int set_env(struct recipe *r, const char *name, const char *value, struct err *e)
{
	char *text = NULL;
	size_t n = strlen(name), i = 0;

	if (n == 0 || strchr(name, '='))
		return err_set(e, -EINVAL, "ENV: '%.40s' is not a name", name);
	if (asprintf(&text, "%s=%s", name, value) < 0)
		return err_oom(e);
	while (i < r->n_env && strncmp(r->env[i], text, n + 1) != 0)
		i++;
	if (i == RECIPE_ENV_MAX) {
		free(text);
		return err_set(e, -E2BIG, "ENV: more than %d variables", RECIPE_ENV_MAX);
	}
	free(r->env[i]);
	r->env[i] = text;
	r->n_env += i == r->n_env;
	return 0;
}

static int step_env(struct recipe *r, const json_t *step, const json_t *args, struct err *e)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i + 1 < json_array_size(args); i += 2)
		rc = set_env(r, json_string_value(json_array_get(args, i)),
			     json_string_value(json_array_get(args, i + 1)), e);
	return rc;
}

static int step_workdir(struct recipe *r, const json_t *step, const json_t *args, struct err *e)
{
	const char *dir = arg(args, 0);
	const char *const make[] = { "/bin/mkdir", "-p", dir, NULL };
	const struct runner_command c = { .argv = make, .user = "root" };

	if (!dir || dir[0] != '/')
		return err_set(e, -EINVAL, "WORKDIR: expected an absolute path");
	r->workdir = dir;
	return in_sandbox(r, &c, e);
}

static int step_user(struct recipe *r, const json_t *step, const json_t *args, struct err *e)
{
	r->user = arg(args, 0) ? arg(args, 0) : "root";
	return 0;
}

static int (*const actions[])(struct recipe *r, const json_t *step, const json_t *args,
			      struct err *e) = { step_run, step_copy, step_env, step_workdir,
						 step_user };
static_assert(ARRAY_SIZE(actions) == ARRAY_SIZE(types), "each type has its action");

static int do_step(struct recipe *r, const json_t *step, size_t number, size_t of, struct err *e)
{
	const char *type = json_string_value(json_object_get(step, "type"));
	const json_t *args = json_object_get(step, "args");
	size_t k = 0;

	while (!str_eq(types[k].type, type))
		k++;
	(void)snprintf(r->step, sizeof(r->step), "%zu", number);
	say(r, TEMPLATE_INFO, "[%zu/%zu] %s %s", number, of, type,
	    arg(args, 0) ? arg(args, 0) : "");
	return actions[k](r, step, args, e);
}

static int do_steps(struct recipe *r, const json_t *recipe, struct err *e)
{
	const json_t *steps = json_object_get(recipe, "steps"), *step;
	size_t i;
	int rc = 0;

	json_array_foreach(steps, i, step)
	{
		if (rc == 0)
			rc = do_step(r, step, i + 1, json_array_size(steps), e);
	}
	if (rc == 0)
		r->step[0] = '\0';
	return rc;
}

/* ---- start and end of a build ---- */

/* Images are never downloaded: NAME:TAG is looked up on this host. */
static int no_image(const char *image, struct err *e)
{
	return err_set(e, -ENOENT,
		       "no image '%s' on this host, and none is fetched: import it with 'hutch "
		       "image import %s FILE'",
		       image, image);
}

static int find_image(const char *owner, const json_t *recipe, char ret[static IMAGE_NAME_MAX + 1],
		      struct err *e)
{
	const char *image = json_string_value(json_object_get(recipe, "fromImage"));
	const char *from = json_string_value(json_object_get(recipe, "fromTemplate"));

	if (!image)
		return template_find_image(owner, from, ret, e);
	if (strlen(image) > IMAGE_NAME_MAX)
		return err_set(e, -EINVAL, "'%.80s' is not the name of an image", image);
	/* The image of a build belongs to its template, possibly another key's. */
	if (template_is_image(image))
		return no_image(image, e);
	(void)snprintf(ret, IMAGE_NAME_MAX + 1, "%s", image);
	return 0;
}

/* Sets the owner, and hides the sandbox from all but administrators. */
static char *api_text(const struct recipe *r)
{
	_cleanup_json_ json_t *j = NULL;
	char token[BOX_TOKEN + 1];

	box_draw_token(token);
	j = JSON_OBJECT({ "token", json_string(token) }, { "owner", json_string(r->terms->key) },
			{ "template", json_string(r->build->name) },
			{ "build", json_string(r->build->build) });
	return j ? json_write_line(j) : NULL;
}

static int start(struct recipe *r, const char *image, struct err *e)
{
	_cleanup_default_store_ struct default_store store = { 0 };
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_free_ char *api = api_text(r);
	_cleanup_spec_ struct spec spec = { 0 };
	const struct sandbox_options o = { .agent = r->terms->agent,
					   .image = image,
					   .level = r->terms->level,
					   .deadline = BUILD_MS,
					   .api = api,
					   .once = true,
					   .remove = true };
	int fd = -EBADF, rc = api ? default_store_open(&store, NULL, 0, e) : err_oom(e);

	if (rc == 0)
		rc = sandbox_plan(&store.store, &o, &d, &spec, e);
	if (d.errors > 0) {
		(void)diags_first(&d, rc, e);
		return job_conceal_policy(r->terms->all, o.agent, e);
	}
	if (rc == -ENOENT)
		return no_image(image, e);
	if (rc == 0)
		rc = state_root_open(&root, e);
	spec.quota = r->terms->quota;
	if (rc == 0)
		rc = sandbox_start(&root, &spec, &r->sandbox, &fd, e);
	if (rc == 0)
		rc = runner_new(fd, &r->runner, e);
	return rc < 0 && rc != -EUSERS
		       ? job_conceal(r->terms->all, e, "the build's sandbox cannot be started")
		       : rc;
}

static int try_commands(struct recipe *r, const json_t *recipe, struct err *e)
{
	const char *start_cmd = json_string_value(json_object_get(recipe, "startCmd"));
	const char *ready_cmd = json_string_value(json_object_get(recipe, "readyCmd"));
	const struct runner_command c = { .script = start_cmd,
					  .env = (const char *const *)r->env,
					  .cwd = r->workdir,
					  .detach = true };
	int status, rc = 0;

	if (start_cmd && start_cmd[0]) {
		say(r, TEMPLATE_INFO, "start command: %s", start_cmd);
		rc = runner_exec(r->runner, &c, &status, e);
	}
	if (rc == 0 && ready_cmd && ready_cmd[0]) {
		say(r, TEMPLATE_INFO, "waiting for: %s", ready_cmd);
		rc = runner_wait(r->runner, ready_cmd, READY_MS, e);
	}
	return rc;
}

static int keep(struct recipe *r, const json_t *recipe, struct err *e)
{
	char name[IMAGE_NAME_MAX + 1], note[ERR_MSG_MAX] = "";
	struct image_done done = { 0 };
	struct sandbox_commit c = {
		.name = name,
		.config = { .env = (const char *const *)r->env,
			    .workdir = r->workdir,
			    .start = json_string_value(json_object_get(recipe, "startCmd")),
			    .ready = json_string_value(json_object_get(recipe, "readyCmd")) },
	};
	int rc;

	template_image(r->build, name);
	say(r, TEMPLATE_INFO, "making the image");
	rc = sandbox_commit(&r->sandbox, &c, note, &done, e);
	if (rc == 0)
		(void)snprintf(r->digest, sizeof(r->digest), "%s", done.digest);
	if (rc == 0 && note[0])
		say(r, TEMPLATE_WARN, "%s", note);
	return rc < 0 && rc != -EFBIG ? job_conceal(r->terms->all, e, "the image cannot be made")
				      : rc;
}

static int build(struct recipe *r, const json_t *recipe, struct err *e)
{
	char image[IMAGE_NAME_MAX + 1];
	int rc = find_image(r->terms->owner, recipe, image, e);

	if (rc < 0 && rc != -EINVAL && rc != -ENOENT)
		return job_conceal(r->terms->all, e, "the template's image cannot be found");
	if (rc == 0) {
		say(r, TEMPLATE_INFO, "begins with %s", image);
		rc = start(r, image, e);
	}
	if (rc == 0)
		rc = do_steps(r, recipe, e);
	if (rc == 0)
		rc = try_commands(r, recipe, e);
	return rc < 0 ? rc : keep(r, recipe, e);
}

/* ---- the audit log, as for 'hutch image build' ---- */

static void begin_record(const struct recipe *r, struct audit_payload *p)
{
	char image[IMAGE_NAME_MAX + 1];

	template_image(r->build, image);
	audit_put_text(p, "op", "build");
	audit_put_text(p, "image", image);
	audit_put_text(p, "template", r->build->template);
	audit_put_text(p, "build", r->build->build);
	if (r->terms->key[0])
		audit_put_text(p, "key", r->terms->key);
	audit_put_number(p, "uid", getuid());
}

static int record(const struct audit_payload *p, struct err *e)
{
	_cleanup_audit_log_ struct audit_log log = AUDIT_LOG_INIT;
	int rc = audit_open(&log, e);

	return rc < 0 ? rc : audit_host(&log, AUDIT_IMAGE, p, e);
}

/* On an error nothing must be built. */
static int record_intent(const struct recipe *r, struct err *e)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	int rc;

	begin_record(r, &p);
	rc = record(&p, e);
	return rc < 0 ? job_conceal(r->terms->all, e, "the audit log cannot be written") : 0;
}

/* `why`: the error, or NULL. */
static void record_outcome(const struct recipe *r, const struct err *why)
{
	_cleanup_audit_payload_ struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);
	struct err e = ERR_INIT;

	begin_record(r, &p);
	audit_put_text(&p, "result", why ? "failed" : "done");
	if (why)
		audit_put_text(&p, "text", why->msg);
	else
		audit_put_text(&p, "sha256", r->digest);
	if (record(&p, &e) < 0)
		log_error("build %s: not recorded: %s", r->build->build, e.msg);
}

static int build_recorded(struct recipe *r, const json_t *recipe, struct err *e)
{
	int rc = record_intent(r, e);

	if (rc < 0)
		return rc;
	rc = build(r, recipe, e);
	record_outcome(r, rc < 0 ? e : NULL);
	return rc;
}

static void end_sandbox(struct recipe *r)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	struct err e = ERR_INIT, owed = ERR_INIT;

	/* If the sandbox ended first, its directory is ours to remove. */
	if (state_root_open(&root, &e) == 0 &&
	    sandbox_kill(&root, &r->sandbox, NULL, &owed, &e) == 0 && owed.num == 0)
		(void)state_remove(&root, r->sandbox.id);
	if (e.num < 0 || owed.num < 0)
		log_error("build %s: %s", r->build->build, e.num < 0 ? e.msg : owed.msg);
	sandbox_close(&r->sandbox);
}

static void clean_up(struct recipe *r)
{
	r->runner = runner_free(r->runner);
	if (r->sandbox.dir >= 0)
		end_sandbox(r);
	for (size_t i = 0; i < r->n_env; i++)
		free(r->env[i]);
}

int recipe_run(const struct template_store *store, const struct template_build *b,
	       const json_t *recipe, const struct recipe_terms *terms, struct err *e)
{
	struct recipe r = {
		.store = store, .build = b, .terms = terms, .sandbox = SANDBOX_INIT, .user = "root"
	};
	struct err why = ERR_INIT;
	int rc = build_recorded(&r, recipe, &why);

	say(&r, rc < 0 ? TEMPLATE_FAILURE : TEMPLATE_INFO, "%s", rc < 0 ? why.msg : "done");
	clean_up(&r);
	return template_end(store, b->template, b->build, rc < 0 ? why.msg : NULL,
			    r.step[0] ? r.step : NULL, e);
}
