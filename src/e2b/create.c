/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates a sandbox. The template is the name of an image. The policy is the agent of the same
 * name, if it exists and is granted to the key; else the first agent granted to the key; else
 * hutchd's default. The request can narrow the policy but never widen it.
 *
 * A job starts the sandbox. The loop then waits for the template's start and ready commands, which
 * belong to the client and may hang. If the client disconnects before the end, the sandbox is
 * killed, because no other client knows it.
 */
#include <string.h>

#include "builtin/default-store.h"
#include "client/launch.h"
#include "e2b/e2b.h"
#include "state/life.h"
#include "template/template.h"

enum {
	READY_MS = 60 * 1000,
};

struct create {
	struct api *api;
	struct request *request;
	struct job *job;
	struct launch *launch; /* waits for the start and ready commands in `id` */
	char id[SPEC_ID + 1];
	char template[E2B_TEMPLATE_MAX + 1];
	char owner[64];
	bool all; /* administrator */
	struct key_grant grant;
	char agent[256];   /* unless the template's name is an agent */
	uint64_t deadline; /* ms */
	enum on_timeout on_timeout;
	json_t *narrow; /* texts */
	char *api_text;
	char **env; /* NULL-terminated */
};

static void create_free(struct create *c)
{
	for (size_t i = 0; c->env && c->env[i]; i++)
		free(c->env[i]);
	free(c->env);
	free(c->api_text);
	json_decref(c->narrow);
	free(c);
}

/* ---- in the child ---- */

/* Only a missing agent leaves the default policy. An unreadable agent file or an ambiguous name is
 * an error: the client would get a policy not meant for this template. */
static int find_agent(struct default_store *s, const struct create *c, const char **agent,
		      struct err *e)
{
	const char *name = c->template;
	const struct source *src = NULL;
	struct err own = ERR_INIT;
	int r;

	/* Clients that build templates choose the name: it may select only granted agents. */
	if (!c->all && !key_grant_has(&c->grant, name))
		return 0;
	r = store_find(&s->store, STORE_AGENTS, name, NULL, &src, &own);

	if (r == 0)
		*agent = name;
	else if (r != -ENOENT)
		return err_set(e, -EIO, "agent '%s' %s", name, own.msg);
	return 0;
}

/* Errors in the policy or the image are for the operator only. */
static int plan_failed(const struct create *c, const char *agent, const struct diags *d, int r,
		       struct err *e)
{
	if (d->errors > 0) {
		(void)diags_first(d, r, e);
		return job_conceal_policy(c->all, agent, e);
	}
	if (r == -ENOENT || r == -ENOMEM || r == -EINVAL)
		return r;
	return job_conceal(c->all, e, "template '%s' cannot be started on this host", c->template);
}

/* NULL-terminated; the texts belong to the list. */
static const char **texts_of(const json_t *list)
{
	const char **v = calloc(json_array_size(list) + 1, sizeof(v[0]));

	for (size_t i = 0; v && i < json_array_size(list); i++)
		v[i] = json_string_value(json_array_get(list, i));
	return v;
}

static int plan(const struct create *c, struct spec *ret, struct err *e)
{
	_cleanup_default_store_ struct default_store store = { 0 };
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_free_ const char **narrow = NULL;
	char image[IMAGE_NAME_MAX + 1];
	struct sandbox_options o = {
		.agent = c->agent,
		.level = c->all ? NULL : c->grant.level,
		.image = image,
		.env = (const char *const *)c->env,
		.api = c->api_text,
	};
	int r = default_store_open(&store, NULL, 0, e);

	if (r == 0)
		r = e2b_snapshot_is_for(c->template, c->owner, c->all, e);
	if (r > 0) {
		o.snapshot = c->template;
		o.image = NULL;
		r = 0;
	} else if (r == 0) {
		r = template_find_image(c->owner, c->template, image, e);
	}
	if (r == 0)
		r = find_agent(&store, c, &o.agent, e);
	if (r < 0)
		return r;
	o.narrow = narrow = texts_of(c->narrow);
	if (!narrow)
		return err_oom(e);
	r = sandbox_plan(&store.store, &o, &d, ret, e);
	return r < 0 ? plan_failed(c, o.agent, &d, r, e) : 0;
}

static int bound(const struct create *c, struct spec *spec, struct err *e)
{
	if (spec->limits.ttl > 0 && c->deadline > spec->limits.ttl)
		return err_set(e, -EINVAL, "timeout: the policy '%s' ends a sandbox after %llu s",
			       spec->agent, (unsigned long long)(spec->limits.ttl / 1000));
	spec->deadline = c->deadline;
	spec->on_timeout = c->on_timeout;
	return 0;
}

/* Adds the start and ready commands of the template to the result. */
static int put_commands(const char *image, json_t *result, struct err *e)
{
	static const char *const keys[] = { "start", "ready" };
	_cleanup_image_store_ struct image_store s = IMAGE_STORE_INIT;
	_cleanup_json_ json_t *j = NULL;
	int r = image_store_open(&s, false, e);

	if (r == 0)
		r = image_store_get(&s, image, &j, e);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(keys); i++) {
		json_t *text = json_object_get(j, keys[i]);

		if (json_is_string(text) && json_put(result, keys[i], json_incref(text)) < 0)
			r = err_oom(e);
	}
	return r;
}

static int work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_spec_ struct spec spec = { 0 };
	_cleanup_json_ json_t *result = NULL;
	struct err owed = ERR_INIT, ignored = ERR_INIT;
	const struct create *c = arg;
	int r = plan(c, &spec, e);

	if (r == 0)
		r = bound(c, &spec, e);
	if (r < 0)
		return r;
	r = state_root_open(&root, e);
	spec.quota = c->all || !quota_limits(&c->grant.quota) ? NULL : &c->grant.quota;
	if (r == 0)
		r = sandbox_start(&root, &spec, &b, NULL, e);
	if (r < 0 && r != -ENOMEM && r != -EUSERS)
		return job_conceal(c->all, e, "the sandbox cannot be started");
	if (r < 0)
		return r;
	result = JSON_OBJECT({ "id", json_string(b.id) }, { "owner", json_string(c->owner) });
	r = result ? 0 : err_oom(e);
	if (r == 0 && !(spec.machine.snapshot && spec.machine.snapshot[0]))
		r = put_commands(spec.image, result, e);
	if (r < 0)
		(void)sandbox_kill(&root, &b, "hutchd: its start command cannot be read", &owed,
				   &ignored);
	else
		*ret = TAKE_PTR(result);
	return r;
}

/* ---- started ---- */

static void answer(struct create *c)
{
	struct request *r = c->request;
	struct box *b = box_find(c->api, c->id);

	if (!b) {
		request_fail(r, 500, "sandbox %s ended right after its start: see the audit log",
			     c->id);
		return;
	}
	c->api->counts.created++;
	request_answer(r, 201, e2b_sandbox(b));
}

static void launched(void *arg, const struct err *e)
{
	struct create *c = arg;
	struct request *r = c->request;
	const struct err why = *e;
	char id[SPEC_ID + 1];

	c->launch = launch_free(c->launch);
	if (why.num == 0) {
		answer(c);
		return;
	}
	memcpy(id, c->id, sizeof(id));
	r->data = NULL;
	r->drop = NULL;
	create_free(c);
	e2b_kill_failed(r, id, &why);
}

static int launch(struct create *c, const struct box *b, const struct launch_terms *t,
		  struct err *e)
{
	int fd = -EBADF, r = sandbox_connect(&b->sandbox, &fd, e);

	return r < 0 ? r : launch_new(c->api->config->loop, fd, t, launched, c, &c->launch, e);
}

static void started(struct create *c, const json_t *result)
{
	const struct launch_terms t = {
		.start = json_string_value(json_object_get(result, "start")),
		.ready = json_string_value(json_object_get(result, "ready")),
		.limit_ms = READY_MS,
	};
	const char *id = json_string_value(json_object_get(result, "id"));
	struct err e = ERR_INIT;
	const struct box *b;

	(void)snprintf(c->id, sizeof(c->id), "%s", id ?: "?");
	b = box_find(c->api, c->id);
	if (!b || (!t.start && !t.ready))
		answer(c);
	else if (launch(c, b, &t, &e) < 0)
		launched(c, &e);
}

static void done(void *arg, const json_t *result, const struct err *e)
{
	struct create *c = arg;
	struct request *r = c->request;
	char text[REQUEST_TEXT_MAX];

	c->job = NULL;
	if (!result && e->num == -ENOENT)
		request_fail(r, 404, "template '%s': %s", c->template,
			     request_reason(r, 404, e, text));
	else if (!result)
		request_fail_err(r, e);
	else {
		request_enter(r);
		started(c, result);
		request_leave();
	}
}

static const struct job_ops ops = { .work = work, .done = done };

static void kill_unwanted(void *api, const json_t *result)
{
	const char *id = json_string_value(json_object_get(result, "id"));

	if (id)
		e2b_kill_unwanted(api, json_string_value(json_object_get(result, "owner")) ?: "",
				  id);
}

static void drop(struct request *r)
{
	struct create *c = r->data;

	if (c->job)
		job_abandon(c->job, kill_unwanted, c->api);
	if (c->launch) {
		c->launch = launch_free(c->launch);
		e2b_kill_unwanted(c->api, c->owner, c->id);
	}
	create_free(c);
}

/* ---- request ---- */

static int take_template(const json_t *body, struct create *c, struct err *e)
{
	const char *name = NULL;
	int r = json_get_string(body, "templateID", E2B_TEMPLATE_MAX, &name, e);

	if (r < 0)
		return err_set(e, -EINVAL, "templateID is missing or too long");
	(void)snprintf(c->template, sizeof(c->template), "%s", name);
	return 0;
}

static bool texts_only(const json_t *object, size_t max, size_t text_max)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object) || json_object_size(object) > max)
		return false;
	json_object_foreach((json_t *)object, key, value)
	{
		if (!json_is_string(value) || strlen(key) > text_max ||
		    json_string_length(value) > text_max)
			return false;
	}
	return true;
}

static bool env_name_valid(const char *s)
{
	if (!*s || ascii_is_digit(*s))
		return false;
	for (; *s; s++)
		if (!ascii_is_lower(ascii_lower(*s)) && !ascii_is_digit(*s) && *s != '_')
			return false;
	return true;
}

static int take_env(const json_t *body, struct create *c, struct err *e)
{
	json_t *env = json_object_get(body, "envVars"), *value;
	const char *name;
	size_t n = 0;

	if (!env || json_is_null(env))
		return 0;
	if (!texts_only(env, E2B_ENV_MAX, 128 * 1024))
		return err_set(e, -EINVAL, "envVars: expected an object of texts");
	c->env = calloc(json_object_size(env) + 1, sizeof(c->env[0]));
	if (!c->env)
		return err_oom(e);
	json_object_foreach(env, name, value)
	{
		if (!env_name_valid(name))
			return err_set(e, -EINVAL, "envVars: '%.40s' is not a name", name);
		if (asprintf(&c->env[n], "%s=%s", name, json_string_value(value)) < 0) {
			c->env[n] = NULL;
			return err_oom(e);
		}
		n++;
	}
	return 0;
}

static bool is_true(const json_t *body, const char *key)
{
	return json_is_true(json_object_get(body, key));
}

static bool is_false(const json_t *body, const char *key)
{
	return json_is_false(json_object_get(body, key));
}

static int take_life(const json_t *body, uint64_t otherwise, struct create *c, struct err *e)
{
	uint64_t seconds = 0;
	int r = e2b_timeout(body, "timeout", otherwise, &seconds, e);

	if (r < 0)
		return r;
	if (seconds == 0)
		return err_set(e, -EINVAL, "timeout: expected at least 1 second");
	c->deadline = seconds * 1000;
	c->on_timeout = is_true(body, "autoPause") ? ON_TIMEOUT_PAUSE : ON_TIMEOUT_END;
	if (is_false(body, "autoPauseMemory"))
		return err_set(e, -EINVAL,
			       "autoPauseMemory: a pause without its memory is none that this "
			       "version has");
	return 0;
}

/* Makes the JSON that is kept in the sandbox's spec. */
static int make_api(const struct request *r, const json_t *body, struct create *c, struct err *e)
{
	const json_t *metadata = json_object_get(body, "metadata");
	const json_t *resume = json_object_get(body, "autoResume");
	const json_t *asked = json_object_get(body, "network");
	_cleanup_json_ json_t *network = NULL, *j = NULL;
	char token[BOX_TOKEN + 1], traffic[BOX_TOKEN + 1];
	bool internet = !is_false(body, "allow_internet_access");
	int rc = e2b_network(asked, &network, e);

	if (rc < 0)
		return rc;
	if (metadata && !json_is_null(metadata) &&
	    !texts_only(metadata, E2B_METADATA_MAX, E2B_METADATA_TEXT_MAX))
		return err_set(e, -EINVAL,
			       "metadata: expected an object of at most %d texts of at most %d "
			       "bytes",
			       E2B_METADATA_MAX, E2B_METADATA_TEXT_MAX);
	box_draw_token(token);
	box_draw_token(traffic);
	j = JSON_OBJECT({ "token", json_string(token) }, { "template", json_string(c->template) },
			{ "owner", json_string(r->owner) }, { "internet", json_boolean(internet) },
			{ "auto_resume", json_boolean(is_true(resume, "enabled")) });
	if (!j)
		return err_oom(e);
	if (json_is_object(metadata) &&
	    json_put(j, "metadata", json_incref((json_t *)metadata)) < 0)
		return err_oom(e);
	if (network && json_put(j, "network", json_incref(network)) < 0)
		return err_oom(e);
	if (is_false(asked, "allowPublicTraffic") &&
	    json_put(j, "traffic", json_string(traffic)) < 0)
		return err_oom(e);
	rc = e2b_narrow(network, internet, &c->narrow, e);
	if (rc < 0)
		return rc;
	c->api_text = json_write_line(j);
	if (c->api_text && strlen(c->api_text) > SPEC_API_MAX)
		return err_set(e, -EINVAL, "metadata and network are too large");
	return c->api_text ? 0 : err_oom(e);
}

static void start(struct request *r, uint64_t otherwise)
{
	struct create *c = calloc(1, sizeof(*c));
	struct err e = ERR_INIT;
	int rc;

	if (!c) {
		request_fail(r, 503, "out of memory");
		return;
	}
	*c = (struct create){ .api = r->api, .request = r, .all = r->role == ROLE_ADMIN };
	(void)snprintf(c->owner, sizeof(c->owner), "%s", r->owner);
	(void)snprintf(c->agent, sizeof(c->agent), "%s", request_agent(r));
	c->grant = r->grant;
	r->data = c;
	r->drop = drop;
	rc = take_template(r->body, c, &e);
	if (rc == 0)
		rc = take_env(r->body, c, &e);
	if (rc == 0)
		rc = take_life(r->body, otherwise, c, &e);
	if (rc == 0)
		rc = make_api(r, r->body, c, &e);
	if (rc == 0)
		rc = job_start(r->api->pools[POOL_START], r->owner, &ops, c, &c->job, &e);
	if (rc < 0)
		request_fail_err(r, &e);
}

static void have_v1(struct request *r)
{
	start(r, E2B_TIMEOUT_DEFAULT_V1);
}

static void have_v2(struct request *r)
{
	start(r, E2B_TIMEOUT_DEFAULT);
}

void e2b_create(struct request *r)
{
	request_json(r, false, have_v1);
}

void e2b_create_v2(struct request *r)
{
	request_json(r, false, have_v2);
}
