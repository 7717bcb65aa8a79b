/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a request into a spec: compiles the policy, finds the image and combines both. The spec is
 * then written and parsed again, so that it owns its strings, and so that a spec that a warden
 * would reject is rejected here. */
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/scratch.h"
#include "policy/value.h"
#include "sandbox/plan-tap.h"
#include "sandbox/sandbox.h"
#include "snapshot/snapshot.h"
#include "vm/host-config.h"

enum {
	USER_MAX = 64, /* the guest channel's limit */
	ROOT_MAX = 4096,
};

static const char default_agent[] = "default", default_image[] = "base";

/* ---- the policy ---- */

#define RESOURCE(name, by)                                                           \
	{                                                                            \
		.key = #name, .at = offsetof(struct policy, resources.name),         \
		.size = sizeof(((struct policy *)NULL)->resources.name), .layer = by \
	}

static const struct {
	const char *key;
	size_t at, size;
	enum layer layer; /* receipt layer that enforces it; LAYER_MAX: Hutch itself, on any host */
} resources[] = {
	RESOURCE(cpus, LAYER_CGROUP_CPU), RESOURCE(memory, LAYER_CGROUP_MEMORY),
	RESOURCE(disk, LAYER_DISK_QUOTA), RESOURCE(scratch, LAYER_MAX),
	RESOURCE(output, LAYER_MAX),	  RESOURCE(pids, LAYER_CGROUP_PIDS),
	RESOURCE(timeout, LAYER_MAX),	  RESOURCE(ttl, LAYER_MAX),
	RESOURCE(idle, LAYER_MAX),
};

static size_t count_resources(const struct sandbox_options *o)
{
	size_t n = 0;

	while (n < ARRAY_SIZE(o->resources) && o->resources[n][0])
		n++;
	return n;
}

/* Letters, digits and dots: enough for every valid value, and nothing special to YAML. */
static bool is_plain(const char *s)
{
	size_t n = 0;

	while (ascii_is_digit(s[n]) || ascii_is_lower(s[n]) || ascii_is_upper(s[n]) || s[n] == '.')
		n++;
	return n > 0 && s[n] == '\0';
}

/* The command line's resources as an agent file, so that they are parsed, checked and explained
 * like a file's. */
static int resources_text(const struct sandbox_options *o, struct buf *b, struct err *e)
{
	(void)buf_puts(b, "agent: {name: command-line, type: command-line}\nresources:\n");
	for (size_t i = 0; i < count_resources(o); i++) {
		const char *key = o->resources[i][0], *value = o->resources[i][1];

		if (!is_plain(key))
			return err_set(e, -EINVAL, "'%.40s' is not a resource", key);
		if (!is_plain(value))
			return err_set(e, -EINVAL, "--%.40s: '%.80s' is not a valid value", key,
				       value);
		(void)buf_printf(b, "  %s: %s\n", key, value);
	}
	return b->err < 0 ? err_oom(e) : 0;
}

static int compile_resources(struct policy_store *store, const struct buf *text, struct diags *d,
			     struct policy **ret, struct err *e)
{
	return policy_compile_text(store, "command line", buf_text(text), text->len, d, ret, e);
}

/* Overrides the policy's resources with those of the command line. Warnings are dropped, because
 * the text stands alone: a "timeout" without a ttl would be checked against the default ttl. Only
 * invalid text is compiled again, into `d`, to report its errors. */
static int overlay(struct policy_store *store, const struct sandbox_options *o, struct policy *p,
		   struct diags *d, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(4096);
	_cleanup_diags_ struct diags own = { 0 };
	_cleanup_policy_ struct policy *more = NULL;
	int r = resources_text(o, &text, e);

	if (r == 0)
		r = compile_resources(store, &text, &own, &more, e);
	if (r == -EINVAL && own.errors > 0)
		r = compile_resources(store, &text, d, &more, e);
	if (r < 0 || !more)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(resources); i++)
		for (size_t k = 0; k < count_resources(o); k++)
			if (str_eq(resources[i].key, o->resources[k][0]))
				memcpy((char *)p + resources[i].at,
				       (const char *)more + resources[i].at, resources[i].size);
	return 0;
}

/* The receipt layers that the command line's resources depend on. A VM has a fixed amount of memory
 * and CPUs, and its own kernel limits its processes: there, only fractions of a CPU need the host's
 * control groups. */
static uint64_t asked_layers(const struct sandbox_options *o, const struct policy *p,
			     const struct engine *engine)
{
	const uint64_t by_machine =
		UINT64_C(1) << LAYER_CGROUP_MEMORY | UINT64_C(1) << LAYER_CGROUP_PIDS |
		(p->resources.cpus % 1000 == 0 ? UINT64_C(1) << LAYER_CGROUP_CPU : 0);
	uint64_t set = 0;

	for (size_t i = 0; o->must_limit && i < ARRAY_SIZE(resources); i++)
		for (size_t k = 0; k < count_resources(o); k++)
			if (resources[i].layer < LAYER_MAX &&
			    str_eq(resources[i].key, o->resources[k][0]))
				set |= UINT64_C(1) << resources[i].layer;
	if (engine_has(engine, ENGINE_OWN_KERNEL))
		set &= ~by_machine;
	/* Nothing else says whether a policy wants them enforced. */
	if (p->resources.disk_bandwidth > 0 || p->resources.disk_ops > 0)
		set |= UINT64_C(1) << LAYER_DISK_QUOTA;
	return set & ~p->require; /* those are required by the policy anyway */
}

/* The command line's value of a resource; NULL: none. */
static const char *asked_value(const struct sandbox_options *o, const char *key)
{
	for (size_t k = 0; k < count_resources(o); k++)
		if (str_eq(o->resources[k][0], key))
			return o->resources[k][1];
	return NULL;
}

/* Only root can mount a file system on a disk. An ordinary user's container writes to memory:
 * reject a requested disk that is larger than memory allows. */
static int check_scratch(const struct sandbox_options *o, const struct policy *p,
			 const struct engine *engine, struct err *e)
{
	const bool user = geteuid() != 0, memory = p->resources.scratch == SCRATCH_MEMORY;
	const uint64_t most = scratch_in_memory(p->resources.disk, p->resources.memory);
	char limit[VALUE_HINT_MAX];

	if (!engine_has(engine, ENGINE_SCRATCH))
		return memory ? err_set(e, -EINVAL,
					"resources.scratch: memory is for containers; a microVM's "
					"disk is a file")
			      : 0;
	if (!o->must_limit || o->best_effort || (!user && !memory))
		return 0;
	if (!memory && asked_value(o, "scratch"))
		return err_set(
			e, -EPERM,
			"--scratch disk is not available on this host: only root can mount a "
			"disk; run hutch as root, use --level microvm, --scratch memory, or "
			"--best-effort");
	if (!asked_value(o, "disk") || most >= p->resources.disk)
		return 0;
	return err_set(e, -EPERM,
		       "--disk %s cannot be enforced on this host: what %s writes is in memory, "
		       "%s at most (three quarters of --memory); raise --memory, %s; or use "
		       "--best-effort",
		       asked_value(o, "disk"), memory ? "it" : "an ordinary user's container",
		       value_format_size(most, limit),
		       memory ? "use --scratch disk" : "run hutch as root, use --level microvm");
}

/* Raises the policy's level to the requested one or to $HUTCH_LEVEL, which holds for all of a
 * host. */
static int raise_level(const struct sandbox_options *o, struct policy *p, struct err *e)
{
	const char *const wishes[] = { o->level, getenv("HUTCH_LEVEL") };

	for (size_t i = 0; i < ARRAY_SIZE(wishes); i++) {
		enum level level;

		if (!wishes[i] || !wishes[i][0])
			continue;
		if (level_parse(wishes[i], &level) < 0)
			return err_set(e, -EINVAL, "'%.40s' is not an isolation level", wishes[i]);
		p->level = MAX(p->level, level);
	}
	return 0;
}

static int make_policy(struct policy_store *store, const struct sandbox_options *o, struct diags *d,
		       struct policy **ret, struct err *e)
{
	_cleanup_policy_ struct policy *p = NULL;
	int r = policy_compile(store, o->agent ? o->agent : default_agent, d, &p, e);

	if (r == 0 && count_resources(o) > 0)
		r = overlay(store, o, p, d, e);
	if (r < 0 || !p)
		return r;
	r = raise_level(o, p, e);
	if (r < 0)
		return r;
	*ret = TAKE_PTR(p);
	return 0;
}

static int check_deadline(const struct sandbox_options *o, const struct policy *p, struct err *e)
{
	if (p->resources.ttl == 0 || o->deadline <= p->resources.ttl)
		return 0;
	return err_set(e, -EINVAL,
		       "a deadline of %llu s is later than the ttl of agent '%s', %llu s",
		       (unsigned long long)o->deadline / 1000, p->name,
		       (unsigned long long)p->resources.ttl / 1000);
}

/* ---- the image ---- */

/* Whether the agent's own image contains more than the default image. */
static bool adds_to_image(const struct policy *p)
{
	return p->capabilities.packages.n > 0 || p->capabilities.scripts.n > 0;
}

static int no_image(const struct sandbox_options *o, const struct policy *p, const char *name,
		    struct err *e)
{
	if (!o->image && o->agent && adds_to_image(p))
		return err_set(e, -ENOENT,
			       "agent '%s' has no image: build it with 'hutch image build %s'",
			       p->name, o->agent);
	return err_set(e, -ENOENT, "no image '%s': build it with 'hutch image build %s'", name,
		       name);
}

/* The requested image; else the agent's own, if it exists; else the default. */
static int get_image(const struct sandbox_options *o, const struct policy *p, const char **ret_name,
		     json_t **ret, struct err *e)
{
	_cleanup_image_store_ struct image_store s = IMAGE_STORE_INIT;
	const char *name = o->image ? o->image : p->name;
	struct err own = ERR_INIT; /* the agent may have no image of its own */
	bool is_open;
	int r = image_store_open(&s, false, &own);

	is_open = r == 0;
	if (is_open)
		r = image_store_get(&s, name, ret, &own);
	if (r == -ENOENT && !o->image) {
		name = default_image;
		r = is_open ? image_store_get(&s, name, ret, &own) : r;
	}
	if (r == -ENOENT)
		return no_image(o, p, name, e);
	if (r < 0) {
		*e = own;
		return r;
	}
	*ret_name = name;
	return 0;
}

static bool is_digits(const char *s, size_t n)
{
	size_t i = 0;

	while (i < n && ascii_is_digit(s[i]))
		i++;
	return n > 0 && i == n;
}

/* The guest accepts a name, a uid or "uid:gid": cuts the group off "name:group". */
static const char *image_user(const json_t *image, struct arena *a)
{
	const char *user = json_string_value(json_object_get(image, "user"));
	const char *colon = user ? strchr(user, ':') : NULL;

	if (!user)
		return "";
	if (!colon ||
	    (is_digits(user, (size_t)(colon - user)) && is_digits(colon + 1, strlen(colon + 1))))
		return user;
	return arena_strndup(a, user, (size_t)(colon - user));
}

/* ---- both ---- */

static const char *variable(struct arena *a, const char *name, const char *value)
{
	size_t n = strlen(name) + strlen(value) + 2;
	char *s = arena_alloc(a, n);

	if (s)
		(void)snprintf(s, n, "%s=%s", name, value);
	return s;
}

/* Adds NAME=value, or replaces the one of the same name. */
static void set_env(struct spec_list *list, const char *text)
{
	size_t name = strcspn(text, "=") + 1, i = 0;

	while (i < list->n && strncmp(list->v[i], text, name) != 0)
		i++;
	list->v[i] = text;
	list->n += i == list->n;
}

static size_t count_env(const struct sandbox_options *o)
{
	size_t n = 0;

	while (o->env && o->env[n])
		n++;
	return n;
}

/* The image's variables, those for hutch-tap's CA, then the policy's, then the requested ones:
 * later ones win. The variables of secrets are set last. */
static int make_env(const struct sandbox_options *o, const json_t *image, const struct policy *p,
		    struct arena *a, struct spec *s, struct err *e)
{
	json_t *env = json_object_get(image, "env"), *value;
	size_t n = count_env(o);
	struct spec_list list = {
		arena_calloc(a, json_object_size(env) + p->env.n + n + plan_tap_env_max(s) + 1,
			     sizeof(list.v[0])),
		0
	};
	const char *name, *text;
	int r;

	if (!list.v)
		return err_oom(e);
	json_object_foreach(env, name, value)
	{
		if (!json_is_string(value))
			continue;
		if (!(text = variable(a, name, json_string_value(value))))
			return err_oom(e);
		set_env(&list, text);
	}
	plan_tap_env_first(s, set_env, &list);
	for (size_t i = 0; i < p->env.n; i++) {
		if (!(text = variable(a, p->env.v[i].key, p->env.v[i].value)))
			return err_oom(e);
		set_env(&list, text);
	}
	for (size_t i = 0; i < n; i++)
		set_env(&list, o->env[i]);
	r = sandbox_check_env(s, o->env, n, e);
	if (r == 0)
		r = plan_tap_env_last(s, a, set_env, &list, e);
	if (r == 0)
		s->env = list;
	return r;
}

/* The environment, and what hutch-tap needs. A saved VM keeps its placeholders. */
static int take_tap(const struct sandbox_options *o, const json_t *image, const struct policy *p,
		    const struct spec *was, struct arena *a, struct spec *s, struct err *e)
{
	int r;

	s->agent = p->name;
	r = plan_tap(p, a, s, e);
	if (r == 0)
		r = make_env(o, image, p, a, s, e);
	if (r < 0)
		return r;
	r = plan_tap_fill(was, a, s);
	return r < 0 ? err_set(e, r, "cannot make placeholders of secrets: %s", strerror(-r)) : 0;
}

/* The allow or the deny rules, as texts. */
static int make_rules(const struct policy *p, bool deny, struct arena *a, struct spec_list *ret)
{
	size_t n = 0, kept = 0;
	const struct ruleset_entry *entries = ruleset_entries(p->egress.rules, &n);
	const char **v = arena_calloc(a, n + 1, sizeof(v[0]));
	char text[RULE_TEXT_MAX];

	for (size_t i = 0; v && i < n; i++) {
		if (entries[i].deny != deny)
			continue;
		(void)rule_format(&entries[i].rule, text);
		if (!(v[kept++] = arena_strndup(a, text, strlen(text))))
			return -ENOMEM;
	}
	*ret = (struct spec_list){ v, kept };
	return v ? 0 : -ENOMEM;
}

static int make_egress(const struct policy *p, struct arena *a, struct spec *s)
{
	s->egress.bytes_out = p->egress.budgets.bytes_out;
	s->egress.bytes_in = p->egress.budgets.bytes_in;
	s->egress.streams = p->egress.budgets.streams;
	s->egress.streams_per_minute = p->egress.budgets.streams_per_minute;
	s->egress.names = p->egress.budgets.names;
	if (make_rules(p, false, a, &s->egress.allow) < 0)
		return -ENOMEM;
	return make_rules(p, true, a, &s->egress.deny);
}

/* spec_write() only reads the list, so the cast is safe. */
static struct spec_list narrow_of(const struct sandbox_options *o)
{
	struct spec_list l = { (const char **)o->narrow, 0 };

	while (l.v && l.v[l.n])
		l.n++;
	return l;
}

static struct spec_list list_of(const struct text_list *l)
{
	return (struct spec_list){ l->v, l->n };
}

static void take_output(const struct policy *p, struct spec *s)
{
	s->filter = "";
	if (p->output.action == OUTPUT_OFF)
		return;
	s->filter = output_action_names[p->output.action];
	s->filter_rules = list_of(&p->output.rules);
}

static void take_policy(const struct policy *p, const struct engine *engine, struct spec *s)
{
	s->agent = p->name;
	s->require = p->require;
	s->level = engine->level;
	s->engine = engine->name;
	s->nested = p->nested == NESTED_YES;
	take_output(p, s);
	s->in_memory = p->resources.scratch == SCRATCH_MEMORY;
	s->limits.cpus = p->resources.cpus;
	s->limits.memory = p->resources.memory;
	s->limits.disk = p->resources.disk;
	s->limits.output = p->resources.output;
	s->limits.disk_bandwidth = p->resources.disk_bandwidth;
	s->limits.disk_ops = p->resources.disk_ops;
	s->limits.pids = p->resources.pids;
	s->limits.timeout = p->resources.timeout;
	s->limits.ttl = p->resources.ttl;
	s->limits.idle = p->resources.idle;
	s->workspace = p->filesystem.workspace;
	s->read = list_of(&p->filesystem.read);
	s->write = list_of(&p->filesystem.write);
	s->execute = list_of(&p->filesystem.execute);
}

/* `root` gets the path of the tree in the canonical form that a spec requires. */
static int take_image(const json_t *image, char root[static ROOT_MAX], struct spec *s,
		      struct err *e)
{
	const char *path = json_string_value(json_object_get(image, "root"));
	struct id_ranges ids = { 0 };
	int r = ids_find(&ids, e);

	if (r < 0)
		return r;
	s->image_digest = json_string_value(json_object_get(image, "sha256"));
	s->image_uid = ids.uid;
	s->image_gid = ids.gid;
	s->root = root;
	/* image_store_get() has checked the digest and set the root. */
	assert(path && s->image_digest);
	r = path_canonical(path, root, ROOT_MAX);
	return r < 0 ? err_set(e, r, "the path of the image's tree is invalid: '%.120s'", path) : 0;
}

static int take_user(const struct sandbox_options *o, const json_t *image, struct arena *a,
		     struct spec *s, struct err *e)
{
	s->user = o->user ? o->user : image_user(image, a);
	if (!s->user)
		return err_oom(e);
	/* An image's user may be empty, which means the default; a requested user may not. */
	if ((o->user && str_eq(o->user, "")) || strlen(s->user) > USER_MAX ||
	    !utf8_valid(s->user, strlen(s->user)))
		return err_set(e, -EINVAL, "'%.80s' is not the name of a user", s->user);
	return 0;
}

static int own_texts(const struct spec *s, struct spec *ret, struct err *e)
{
	_cleanup_free_ char *text = spec_write(s);

	return text ? spec_parse(text, strlen(text), ret, e) : err_oom(e);
}

static int load_config(struct host_config *ret, struct err *e)
{
	int r = host_config_load(ret, e);

	if (r == 0)
		return 0;
	/* Not -EINVAL: this is the operator's mistake, which an API client must not see. */
	e->num = r == -ENOMEM ? r : -EIO;
	return err_wrap(e, "the configuration of this host");
}

/* Never an engine below the policy's level. */
static int choose_engine(const struct policy *p, const struct host_config *config,
			 const struct engine **ret, struct err *e)
{
	int r = engine_choose(p->level, host_config_engine(config), ret, e);

	return r < 0 ? err_wrap(e, "agent '%s'", p->name) : 0;
}

/* Loads the host's configuration, and checks that the policy and this host support the options. */
static int check_options(const struct sandbox_options *o, const struct policy *p,
			 struct host_config *config, const struct engine **ret, struct err *e)
{
	int r = check_deadline(o, p, e);

	if (r < 0)
		return r;
	r = load_config(config, e);
	if (r < 0)
		return r;
	r = choose_engine(p, config, ret, e);
	return r < 0 ? r : check_scratch(o, p, *ret, e);
}

static void take_options(const struct sandbox_options *o, const struct policy *p,
			 const struct host_config *config, const struct engine *engine,
			 struct spec *s)
{
	s->egress.narrow = narrow_of(o);
	s->egress.proxy = config->egress_proxy;
	if (s->tap)
		s->tap_roots = config->tap_roots;
	s->deadline = o->deadline;
	s->on_timeout = o->on_timeout;
	s->once = o->once;
	s->remove = o->remove || config->keep_ended == 0;
	s->api = o->api ? o->api : "";
	s->created = clock_wall();
	take_policy(p, engine, s);
	s->limits_asked = asked_layers(o, p, engine);
	if (!o->best_effort)
		s->require |= s->limits_asked;
}

int sandbox_plan(struct policy_store *store, const struct sandbox_options *asked, struct diags *d,
		 struct spec *ret, struct err *e)
{
	_cleanup_arena_ struct arena a = ARENA_INIT;
	_cleanup_policy_ struct policy *p = NULL;
	_cleanup_json_ json_t *image = NULL;
	_cleanup_free_ char *canonical = NULL;
	_cleanup_spec_ struct spec was = { 0 };
	struct host_config config = HOST_CONFIG_INIT;
	struct sandbox_options own = *asked;
	const struct sandbox_options *o = &own;
	struct spec s = { .id = "" };
	char digest[POLICY_DIGEST_HEX + 1], root[ROOT_MAX];
	const struct engine *engine = NULL;
	int r = make_policy(store, o, d, &p, e);

	if (r < 0 || !p)
		return r;
	r = check_options(o, p, &config, &engine, e);
	if (r < 0)
		return r;
	/* A snapshot has its own image; see sandbox_use_snapshot(). */
	if (o->snapshot) {
		r = snapshot_spec(o->snapshot, &was, e);
		if (r < 0)
			return r;
		own.image = was.image;
	}
	r = get_image(o, p, &s.image, &image, e);
	if (r == 0)
		r = take_tap(o, image, p, &was, &a, &s, e);
	if (r < 0)
		return r;
	if (policy_canonical(p, &canonical, digest) < 0 || make_egress(p, &a, &s) < 0)
		return err_oom(e);
	s.policy = digest;
	take_options(o, p, &config, engine, &s);
	r = take_image(image, root, &s, e);
	if (r == 0)
		r = take_user(o, image, &a, &s, e);
	if (r == 0)
		r = own_texts(&s, ret, e);
	if (r < 0)
		return err_wrap(e, "image '%s'", s.image);
	ret->policy_text = TAKE_PTR(canonical);
	r = o->snapshot ? sandbox_use_snapshot(o->snapshot, ret, e) : 0;
	if (r < 0)
		spec_done(ret);
	return r;
}
