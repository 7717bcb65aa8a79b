/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/stat.h>

#include "builtin/builtin.h"
#include "fail.h"
#include "image/ids.h"
#include "sandbox/sandbox.h"
#include "test-policy.h"

#define HEX_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HEX_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

static void add_image(const struct unit_dir *d, const char *name, const char *digest,
		      const char *more)
{
	char path[200], text[1000];

	(void)snprintf(path, sizeof(path), "images/trees/sha256-%s", digest);
	(void)mkdirat(d->fd, path, 0700);
	(void)snprintf(path, sizeof(path), "images/trees/sha256-%s/meta.json", digest);
	unit_dir_write(d, path, "{}", 2);
	(void)snprintf(text, sizeof(text), "{\"name\":\"%s\",\"sha256\":\"%s\"%s}", name, digest,
		       more);
	(void)snprintf(path, sizeof(path), "images/names/%s.json", name);
	unit_dir_write(d, path, text, strlen(text));
}

/* A directory for the image store. */
static int setup(void **state)
{
	_cleanup_image_store_ struct image_store s = IMAGE_STORE_INIT;
	struct err e = ERR_INIT;
	struct unit_dir *d;

	if (unit_dir_setup(state) < 0)
		return -1;
	d = *state;
	if (setenv("HUTCH_STATE_DIR", d->path, 1) < 0)
		return -1;
	return image_store_open(&s, true, &e);
}

/* A user without subordinate ids cannot have images. */
static void need_ids(void)
{
	struct id_ranges ids;
	struct err e = ERR_INIT;

	if (ids_find(&ids, &e) < 0)
		skip();
}

static void plan(struct policy_store *store, const struct sandbox_options *o, struct spec *ret)
{
	_cleanup_diags_ struct diags d = { 0 };
	struct err e = ERR_INIT;

	if (sandbox_plan(store, o, &d, ret, &e) < 0)
		fail_msg("%s", e.msg);
	assert_diags(&d, "");
}

static void no_plan(struct policy_store *store, const struct sandbox_options *o, int want,
		    const char *says)
{
	_cleanup_diags_ struct diags d = { 0 };
	struct spec s = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(sandbox_plan(store, o, &d, &s, &e), want);
	assert_string_equal(e.msg, says);
	assert_int_equal(e.num, want);
	assert_null(s.json);
}

TEST_WITH(the_default_agent, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_store_ struct policy_store store =
		POLICY_STORE_INIT(builtin_files, builtin_files_n, NULL);
	_cleanup_spec_ struct spec s = { 0 };
	const uint64_t optional = UINT64_C(1) << LAYER_CGROUP_CPU |
				  UINT64_C(1) << LAYER_CGROUP_MEMORY |
				  UINT64_C(1) << LAYER_CGROUP_PIDS | UINT64_C(1) << LAYER_LANDLOCK;
	struct id_ranges ids;
	struct err e = ERR_INIT;
	char root[200];

	need_ids();
	add_image(d, "base", HEX_A,
		  ",\"user\":\"user\",\"env\":{\"LANG\":\"C.UTF-8\"},\"workdir\":\"/workspace\"");
	plan(&store, &(struct sandbox_options){ .once = true }, &s);
	assert_string_equal(s.id, "");
	assert_string_equal(s.agent, "default");
	assert_int_equal(strlen(s.policy), POLICY_DIGEST_HEX);
	assert_string_equal(s.image, "base");
	assert_string_equal(s.image_digest, HEX_A);
	(void)snprintf(root, sizeof(root), "%s/images/trees/sha256-" HEX_A "/root", d->path);
	assert_string_equal(s.root, root);
	assert_int_equal(ids_find(&ids, &e), 0);
	assert_int_equal(s.image_uid, ids.uid);
	assert_int_equal(s.image_gid, ids.gid);
	/* an ordinary user of a hybrid host lacks both */
	assert_int_equal(s.require & optional, 0);
	assert_true(s.require & UINT64_C(1) << LAYER_SECCOMP);
	assert_true(s.require & UINT64_C(1) << LAYER_READ_ONLY_ROOT);
	assert_int_equal(s.limits.memory, UINT64_C(1) << 30);
	assert_int_equal(s.limits.pids, 512);
	assert_int_equal(s.limits.cpus, 2000);
	assert_int_equal(s.limits.timeout, 600000);
	assert_string_equal(s.user, "user");
	assert_string_equal(s.workspace, "/workspace");
	assert_int_equal(s.env.n, 1);
	assert_string_equal(s.env.v[0], "LANG=C.UTF-8");
	assert_int_equal(s.read.n, 1);
	assert_int_equal(s.write.n, 5);
	assert_string_equal(s.execute.v[0], "/");
	assert_true(s.once);
	assert_false(s.remove);
}

static const struct builtin_file files[] = {
	BUILTIN("agents/middle.yaml", "agent: {name: middle, type: test}\n"
				      "isolation: {level: gvisor}\n"),
	BUILTIN("agents/plain.yaml", "agent: {name: plain, type: test}\n"
				     "resources: {ttl: 10h}\n"
				     "env: {A: policy, B: policy}\n"),
	BUILTIN("agents/slow.yaml", "agent: {name: slow, type: test}\n"
				    "resources: {disk_ops: 100}\n"),
	BUILTIN("agents/strict.yaml", "agent: {name: strict, type: test}\n"
				      "isolation: {require: [cgroup-memory]}\n"),
	BUILTIN("agents/tight.yaml", "agent: {name: tight, type: test}\n"
				     "isolation: {level: microvm}\n"),
	BUILTIN("agents/tools.yaml", "agent: {name: tools, type: test}\n"
				     "capabilities: {packages: [gdb]}\n"),
	FLOOR_FILE,
};

#define STORE POLICY_STORE_INIT(files, ARRAY_SIZE(files), NULL)

TEST_WITH(the_policys_variables_win, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_store_ struct policy_store store = STORE;
	_cleanup_spec_ struct spec s = { 0 };

	need_ids();
	add_image(d, "base", HEX_A, ",\"env\":{\"A\":\"image\",\"C\":\"x=y\"}");
	plan(&store, &(struct sandbox_options){ .agent = "plain", .remove = true }, &s);
	assert_int_equal(s.env.n, 3);
	assert_string_equal(s.env.v[0], "A=policy");
	assert_string_equal(s.env.v[1], "C=x=y");
	assert_string_equal(s.env.v[2], "B=policy");
	assert_string_equal(s.user, "");
	assert_true(s.remove);
}

TEST_WITH(which_image, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_store_ struct policy_store store = STORE;
	struct sandbox_options o = { .agent = "plain" };
	_cleanup_spec_ struct spec own = { 0 }, base = { 0 }, named = { 0 };

	need_ids();
	no_plan(&store, &o, -ENOENT, "no image 'base': build it with 'hutch image build base'");
	/* An agent with its own packages needs its own image, not the default one. */
	no_plan(&store, &(struct sandbox_options){ .agent = "tools" }, -ENOENT,
		"agent 'tools' has no image: build it with 'hutch image build tools'");
	no_plan(&store, &(struct sandbox_options){ .agent = "tools", .image = "base" }, -ENOENT,
		"no image 'base': build it with 'hutch image build base'");
	add_image(d, "base", HEX_A, "");
	plan(&store, &o, &base);
	assert_string_equal(base.image, "base");
	add_image(d, "plain", HEX_B, "");
	plan(&store, &o, &own);
	assert_string_equal(own.image, "plain");
	assert_string_equal(own.image_digest, HEX_B);
	o.image = "base";
	plan(&store, &o, &named);
	assert_string_equal(named.image, "base");
	o.image = "other";
	no_plan(&store, &o, -ENOENT, "no image 'other': build it with 'hutch image build other'");
	o.image = "../base";
	no_plan(&store, &o, -EINVAL,
		"the image '../base' cannot be read: '../base' is not a name: " IMAGE_NAME_RULE);
	assert_int_equal(setenv("HUTCH_STATE_DIR", "/nonexistent/x", 1), 0);
	o.image = NULL;
	no_plan(&store, &o, -ENOENT, "no image 'base': build it with 'hutch image build base'");
}

TEST_WITH(users, setup, unit_dir_teardown)
{
	static const struct {
		const char *info, *option, *want;
	} cases[] = {
		{ "", NULL, "" },
		{ ",\"user\":\"app\"", NULL, "app" },
		{ ",\"user\":\"app:staff\"", NULL, "app" },
		{ ",\"user\":\"1000:1001\"", NULL, "1000:1001" },
		{ ",\"user\":\"1000:staff\"", NULL, "1000" },
		{ ",\"user\":\"app\"", "root", "root" },
	};
	struct unit_dir *d = *state;
	_cleanup_store_ struct policy_store store = STORE;
	struct sandbox_options o = { .agent = "plain" };

	need_ids();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_spec_ struct spec s = { 0 };

		add_image(d, "base", HEX_A, cases[i].info);
		o.user = cases[i].option;
		plan(&store, &o, &s);
		assert_string_equal(s.user, cases[i].want);
	}
	o.user = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
	no_plan(&store, &o, -EINVAL,
		"image 'base': 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' "
		"is not the name of a user");
}

TEST_WITH(resources_of_the_command_line, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_store_ struct policy_store store = STORE;
	struct sandbox_options o = { .agent = "plain" };
	_cleanup_spec_ struct spec plain = { 0 }, s = { 0 }, same = { 0 };

	need_ids();
	add_image(d, "base", HEX_A, "");
	plan(&store, &o, &plain);
	o.resources[0][0] = "memory";
	o.resources[0][1] = "256MiB";
	o.resources[1][0] = "cpus";
	o.resources[1][1] = "0.5";
	/* longer than the default ttl, but not than the agent's: no warning */
	o.resources[2][0] = "timeout";
	o.resources[2][1] = "9h";
	plan(&store, &o, &s);
	assert_int_equal(s.limits.memory, UINT64_C(256) << 20);
	assert_int_equal(s.limits.cpus, 500);
	assert_int_equal(s.limits.timeout, 9 * 3600 * 1000);
	assert_int_equal(s.limits.ttl, 10 * 3600 * 1000);
	assert_int_equal(s.limits.pids, 512);
	/* the hash covers the enforced limits */
	assert_string_not_equal(s.policy, plain.policy);
	assert_string_equal(s.agent, "plain");
	o.resources[0][1] = "1GiB";
	o.resources[1][0] = NULL;
	plan(&store, &o, &same);
	assert_string_equal(same.policy, plain.policy);
}

static uint64_t asked_bits(struct policy_store *store, const struct sandbox_options *o,
			   uint64_t *ret_require)
{
	_cleanup_spec_ struct spec s = { 0 };

	plan(store, o, &s);
	*ret_require = s.require;
	return s.limits_asked;
}

/* A limit requested by name is required of the host, unless another option waives it by name. */
TEST_WITH(limits_are_required, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	const uint64_t memory = UINT64_C(1) << LAYER_CGROUP_MEMORY,
		       pids = UINT64_C(1) << LAYER_CGROUP_PIDS,
		       cpu = UINT64_C(1) << LAYER_CGROUP_CPU,
		       disk = UINT64_C(1) << LAYER_DISK_QUOTA, all = memory | pids | cpu | disk;
	_cleanup_store_ struct policy_store store = STORE;
	struct sandbox_options o = { .agent = "plain",
				     .resources = { { "memory", "256MiB" },
						    { "cpus", "0.5" },
						    { "pids", "64" },
						    { "disk", "64MiB" },
						    { "timeout", "9s" } } };
	uint64_t require;

	need_ids();
	add_image(d, "base", HEX_A, "");
	/* Limits of a policy, an API client or a model: best effort. */
	assert_int_equal(asked_bits(&store, &o, &require), 0);
	assert_int_equal(require & all, 0);
	o.must_limit = true;
	assert_int_equal(asked_bits(&store, &o, &require), all);
	assert_int_equal(require & all, all);
	o.best_effort = true;
	assert_int_equal(asked_bits(&store, &o, &require), all);
	assert_int_equal(require & all, 0);
	/* A VM has its own memory and processes, and whole CPUs. */
	o.best_effort = false;
	o.level = "microvm";
	assert_int_equal(asked_bits(&store, &o, &require), cpu | disk);
	o.resources[1][1] = "2";
	assert_int_equal(asked_bits(&store, &o, &require), disk);
	/* Limits of disk I/O are never best effort, unless an option says so. */
	o = (struct sandbox_options){ .agent = "slow" };
	assert_int_equal(asked_bits(&store, &o, &require), disk);
	assert_int_equal(require & all, disk);
	o.best_effort = true;
	assert_int_equal(asked_bits(&store, &o, &require), disk);
	assert_int_equal(require & all, 0);
	/* A layer that the policy itself requires stays required; options do not change it. */
	o = (struct sandbox_options){ .agent = "strict",
				      .must_limit = true,
				      .best_effort = true,
				      .resources = { { "memory", "256MiB" } } };
	assert_int_equal(asked_bits(&store, &o, &require), 0);
	assert_int_equal(require & memory, memory);
}

TEST_WITH(wrong_resources, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_store_ struct policy_store store = STORE;
	_cleanup_diags_ struct diags diags = { 0 }, more = { 0 };
	struct sandbox_options o = { .agent = "plain", .resources = { { "memory", "lots" } } };
	struct spec s = { 0 };
	struct err e = ERR_INIT;

	add_image(d, "base", HEX_A, "");
	assert_int_equal(sandbox_plan(&store, &o, &diags, &s, &e), -EINVAL);
	assert_int_equal(diags.errors, 1);
	assert_string_equal(diags.list[0].pos.src->label, "command line");
	assert_string_equal(diags.list[0].key, "resources.memory");
	o.resources[0][1] = "1GiB\nsecrets: {}";
	no_plan(&store, &o, -EINVAL, "--memory: '1GiB\nsecrets: {}' is not a valid value");
	o.resources[0][1] = "";
	no_plan(&store, &o, -EINVAL, "--memory: '' is not a valid value");
	o.resources[0][1] = "{x}";
	no_plan(&store, &o, -EINVAL, "--memory: '{x}' is not a valid value");
	o.resources[0][0] = "a: b";
	no_plan(&store, &o, -EINVAL, "'a: b' is not a resource");
	o.resources[0][0] = "moon";
	o.resources[0][1] = "1";
	assert_int_equal(sandbox_plan(&store, &o, &more, &s, &e), -EINVAL);
	assert_string_equal(more.list[0].key, "resources.moon");
}

static bool plans_a_machine(const struct sandbox_options *o)
{
	_cleanup_store_ struct policy_store store = STORE;
	_cleanup_spec_ struct spec s = { 0 };

	plan(&store, o, &s);
	assert_null(s.machine.kernel); /* its parts are looked up at the start */
	return s.level == LEVEL_MICROVM;
}

/* The policy's level; a request may raise it, and never lower it. */
TEST_WITH(levels_are_raised_and_never_lowered, setup, unit_dir_teardown)
{
	static const struct {
		const char *agent, *level, *env;
		bool machine;
	} cases[] = {
		{ "plain", NULL, NULL, false },
		{ "plain", "", "", false },
		{ "plain", "container", "container", false },
		{ "plain", "microvm", NULL, true },
		{ "plain", NULL, "microvm", true },
		{ "plain", "container", "microvm", true },
		{ "plain", "microvm", "container", true },
		{ "tight", NULL, NULL, true },
		{ "tight", "container", "container", true },
		{ "tight", "microvm", "microvm", true },
		{ "middle", "microvm", NULL, true },
		{ "middle", NULL, "microvm", true },
	};
	struct unit_dir *d = *state;

	need_ids();
	add_image(d, "base", HEX_A, "");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct sandbox_options o = { .agent = cases[i].agent,
						   .level = cases[i].level };

		(void)unsetenv("HUTCH_LEVEL");
		if (cases[i].env)
			(void)setenv("HUTCH_LEVEL", cases[i].env, 1);
		assert_int_equal(plans_a_machine(&o), cases[i].machine);
	}
	(void)unsetenv("HUTCH_LEVEL");
}

/* The hash covers the enforced level. */
TEST_WITH(a_level_is_part_of_the_policy, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_store_ struct policy_store store = STORE;
	_cleanup_spec_ struct spec plain = { 0 }, raised = { 0 };

	need_ids();
	add_image(d, "base", HEX_A, "");
	plan(&store, &(struct sandbox_options){ .agent = "plain" }, &plain);
	plan(&store, &(struct sandbox_options){ .agent = "plain", .level = "microvm" }, &raised);
	assert_string_not_equal(plain.policy, raised.policy);
}

/* A request for a stronger level never results in a container. */
TEST_WITH(levels_that_are_not_there, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_store_ struct policy_store store = STORE;

	add_image(d, "base", HEX_A, "");
	no_plan(&store, &(struct sandbox_options){ .agent = "middle" }, -ENOTSUP,
		"agent 'middle': this version has no engine of isolation level 'gvisor': use "
		"container or microvm");
	no_plan(&store, &(struct sandbox_options){ .agent = "plain", .level = "gvisor" }, -ENOTSUP,
		"agent 'plain': this version has no engine of isolation level 'gvisor': use "
		"container or microvm");
	no_plan(&store, &(struct sandbox_options){ .agent = "plain", .level = "MicroVM" }, -EINVAL,
		"'MicroVM' is not an isolation level");
	(void)setenv("HUTCH_LEVEL", "vm", 1);
	no_plan(&store, &(struct sandbox_options){ .agent = "plain" }, -EINVAL,
		"'vm' is not an isolation level");
	(void)unsetenv("HUTCH_LEVEL");
}

static int make_plan(void)
{
	_cleanup_store_ struct policy_store store = STORE;
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_spec_ struct spec s = { 0 };
	struct err e = ERR_INIT;
	const struct sandbox_options o = { .agent = "plain", .resources = { { "pids", "7" } } };

	return sandbox_plan(&store, &o, &d, &s, &e);
}

TEST_WITH(faults, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;

	need_ids();
	add_image(d, "base", HEX_A, ",\"user\":\"a:b\",\"env\":{\"A\":\"b\"}");
	FAIL_SWEEP(make_plan());
}
