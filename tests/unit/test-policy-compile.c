/* SPDX-License-Identifier: Apache-2.0 */
/* From names and files to a policy: how files are found and merged. */
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "test-policy.h"

#define NAMED(name) "agent: {name: " name ", type: t}\n"

/* A search directory of the store below the test's, with one file after another. */
struct place {
	const struct unit_dir *d;
	const char *dirs[2];
};

static struct place place_make(const struct unit_dir *d)
{
	static const char *const below[] = { "agents", "presets", "presets/egress",
					     "presets/capabilities", "presets/prompts" };

	for (size_t i = 0; i < ARRAY_SIZE(below); i++)
		assert_int_equal(mkdirat(d->fd, below[i], 0755), 0);
	return (struct place){ d, { d->path, NULL } };
}

static void put(const struct place *p, const char *name, const char *text)
{
	unit_dir_write(p->d, name, text, strlen(text));
}

/* Compiles `ref` and compares the diagnostics; "@" stands for the directory. */
static void assert_outcome(struct policy_store *store, const struct place *place, const char *ref,
			   int want, const char *said, const char *msg)
{
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	_cleanup_buf_ struct buf all = BUF_INIT(65536), plain = BUF_INIT(65536);
	struct err e = ERR_INIT;
	size_t n = strlen(place->d->path);
	int r = policy_compile(store, ref, &d, &p, &e);

	for (size_t i = 0; i < d.n; i++) {
		(void)diag_format(&d.list[i], &all);
		(void)buf_putc(&all, '\n');
	}
	if (r < 0)
		(void)buf_puts(&all, e.msg);
	for (const char *s = buf_text(&all); *s; s++) {
		bool here = strncmp(s, place->d->path, n) == 0;

		(void)buf_putc(&plain, here ? '@' : *s);
		s += here ? n - 1 : 0;
	}
	(void)buf_reset(&all);
	(void)buf_printf(&all, "%s%s", said, msg);
	assert_string_equal(buf_text(&plain), buf_text(&all));
	assert_int_equal(r, want);
	assert_true((p != NULL) == (r == 0));
}

TEST(defaults)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_policy_ struct policy *p = compiled(&store, AGENT);

	assert_int_equal(p->level, LEVEL_CONTAINER);
	assert_int_equal(p->require, 0);
	assert_int_equal(p->resources.cpus, 1000);
	assert_int_equal(p->resources.memory, 1 << 30);
	assert_int_equal(p->resources.pids, 512);
	assert_int_equal(p->resources.disk, UINT64_C(2) << 30);
	assert_int_equal(p->resources.output, 16 << 20);
	assert_int_equal(p->resources.timeout, 600000);
	assert_int_equal(p->resources.ttl, 8 * 3600000);
	assert_int_equal(p->resources.idle, 3600000);
	assert_int_equal(p->egress.budgets.bytes_out, 256 << 20);
	assert_int_equal(p->egress.budgets.bytes_in, UINT64_C(16) << 30);
	assert_int_equal(p->egress.budgets.streams, 128);
	assert_int_equal(p->egress.budgets.streams_per_minute, 1200);
	assert_int_equal(p->egress.budgets.names, 512);
	assert_string_equal(p->filesystem.workspace, "/workspace");
	assert_texts(&p->filesystem.read, "/");
	assert_texts(&p->filesystem.write, "/workspace /tmp /var/tmp /home");
	assert_texts(&p->filesystem.execute, "/");
	assert_null(p->summary);
	assert_null(p->prompt.role);
	assert_int_equal(p->env.n + p->secrets.n + p->capabilities.packages.n, 0);
}

TEST(an_empty_list_stays_empty)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_policy_ struct policy *p =
		compiled(&store, AGENT "filesystem: {write: [], execute: []}\n");

	assert_texts(&p->filesystem.write, "");
	assert_texts(&p->filesystem.execute, "");
	assert_texts(&p->filesystem.read, "/");
}

/* a1 is the oldest; each adds to the lists, and the odd ones set the values. */
static void write_chain(const struct place *place, size_t n)
{
	for (size_t i = 1; i <= n; i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(4096);
		char name[32];

		if (i == 1)
			(void)buf_puts(&b, "agent: {name: a1, type: first, summary: One}\n");
		else
			(void)buf_printf(&b, "agent: {name: a%zu}\nextends: a%zu\n", i, i - 1);
		if (i % 2)
			(void)buf_printf(&b, "resources: {pids: 10%zu}\n", i);
		(void)buf_printf(&b,
				 "isolation: {require: [%s]}\n"
				 "egress: {domains: [h%zu.example.org], ports: [%zu]}\n"
				 "capabilities: {packages: [all, p%zu], install_scripts: [s%zu]}\n"
				 "filesystem: {write: [/w%zu]}\n"
				 "secrets: {S: {hosts: [h%zu.example.org]}}\n"
				 "env: {LAST: '%zu', E%zu: x}\n"
				 "prompt: {role: r%zu}\n",
				 i % 2 ? "seccomp" : "landlock", i, 1000 + i, i, i, i, i, i, i, i);
		(void)snprintf(name, sizeof(name), "agents/a%zu.yaml", i);
		put(place, name, b.data);
	}
}

TEST_IN_DIR(chains_are_joined_from_the_oldest_down)
{
	struct place place = place_make(*state);
	_cleanup_buf_ struct buf packages = BUF_INIT(1000), scripts = BUF_INIT(1000),
				 paths = BUF_INIT(1000);

	write_chain(&place, 8);
	(void)buf_puts(&packages, "all");
	for (size_t n = 1; n <= 8; n++) {
		_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);
		_cleanup_diags_ struct diags d = { 0 };
		_cleanup_policy_ struct policy *p = NULL;
		struct err e = ERR_INIT;
		char name[16], host[64], number[2] = { (char)('0' + n), '\0' };

		(void)snprintf(name, sizeof(name), "a%zu", n);
		(void)policy_compile(&store, name, &d, &p, &e);
		assert_non_null(p);
		assert_string_equal(p->name, name);
		assert_string_equal(p->type, "first");
		if (n == 1)
			assert_string_equal(p->summary, "One");
		else
			assert_null(p->summary);
		assert_int_equal(p->resources.pids, 100 + (n - 1) / 2 * 2 + 1);
		assert_int_equal(p->require,
				 1u << LAYER_SECCOMP | (n > 1 ? 1u << LAYER_LANDLOCK : 0));
		(void)buf_printf(&packages, " p%zu", n);
		(void)buf_printf(&scripts, "%ss%zu", n > 1 ? " " : "", n);
		(void)buf_printf(&paths, "%s/w%zu", n > 1 ? " " : "", n);
		assert_texts(&p->capabilities.packages, packages.data);
		assert_texts(&p->capabilities.scripts, scripts.data);
		assert_texts(&p->filesystem.write, paths.data);
		/* ports are each file's own */
		for (size_t i = 1; i <= n; i++)
			for (size_t k = 1; k <= n; k++) {
				(void)snprintf(host, sizeof(host), "h%zu.example.org:%zu", i,
					       1000 + k);
				assert_int_equal(may_dial(p, host), i == k);
			}
		assert_int_equal(p->secrets.n, 1);
		assert_int_equal(p->secrets.v[0].hosts.n, n);
		assert_int_equal(p->env.n, n + 1);
		assert_string_equal(p->env.v[0].key, "LAST");
		assert_string_equal(p->env.v[0].value, number);
		assert_int_equal(p->prompt.role[1], number[0]);
	}
}

/* A secret's hosts and paths are joined by its name; rules on requests are appended. */
TEST_IN_DIR(secrets_and_rules_of_a_chain)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	const struct secret *a, *b;
	struct err e = ERR_INIT;

	put(&place, "presets/egress/reader.yaml",
	    "preset: {kind: egress, name: reader, summary: R}\n"
	    "domains: [h.example.org]\n"
	    "http: [{host: h.example.org, methods: [GET]}]\n");
	put(&place, "agents/old.yaml",
	    "agent: {name: old, type: t}\n"
	    "egress:\n"
	    "  presets: [reader]\n"
	    "  domains: [x.example.org, y.example.org]\n"
	    "  http: [{host: x.example.org, paths: [/a]}]\n"
	    "secrets:\n"
	    "  A: {hosts: [x.example.org], paths: [/a]}\n"
	    "  B: {hosts: [y.example.org], form: basic, user: u, optional: true}\n");
	put(&place, "agents/new.yaml",
	    "agent: {name: new}\n"
	    "extends: old\n"
	    "egress: {http: [{host: y.example.org, deny: true}]}\n"
	    "secrets:\n"
	    "  A: {hosts: [y.example.org], paths: [/b, /a]}\n"
	    "  B: {user: v, optional: 'false'}\n");
	assert_int_equal(policy_compile(&store, "new", &d, &p, &e), 0);
	assert_int_equal(p->secrets.n, 2);
	a = &p->secrets.v[0];
	b = &p->secrets.v[1];
	assert_int_equal(a->hosts.n, 2);
	assert_texts(&a->paths, "/a /b");
	assert_int_equal(a->form, AUTH_BEARER);
	assert_int_equal(b->form, AUTH_BASIC);
	assert_string_equal(b->user.text, "v");
	assert_true(str_has_suffix(b->user.pos.src->label, "new.yaml"));
	assert_int_equal(b->optional, 0);
	assert_int_equal(p->egress.http.n, 3);
	assert_string_equal(p->egress.http.v[0].host.name.text, "x.example.org");
	assert_string_equal(p->egress.http.v[1].host.name.text, "y.example.org");
	assert_true(p->egress.http.v[1].deny && !p->egress.http.v[0].deny);
	assert_string_equal(p->egress.http.v[2].host.name.text, "h.example.org");
	assert_true(p->egress.http.v[2].file->is_preset);
}

TEST(at_most_64_secrets)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_buf_ struct buf b = BUF_INIT(8192);

	(void)buf_puts(&b, AGENT "egress: {domains: [.example.org]}\nsecrets:\n");
	for (size_t i = 0; i <= POLICY_SECRETS_MAX; i++)
		(void)buf_printf(&b, "  S%zu: {hosts: [h%zu.example.org]}\n", i, i);
	(void)buf_puts(&b, "  N2345678901234567890123456789012345678901234567890123456789012345: "
			   "{hosts: [h.example.org]}\n");
	assert_refused(&store, buf_text(&b),
		       "t.yaml:68:3: error: secrets.S64: more than 64 secrets\n"
		       "t.yaml:69:3: error: "
		       "secrets.N2345678901234567890123456789012345678901234567890123456789012345: "
		       "the name of a secret has at most 64 bytes\n");
}

TEST_IN_DIR(chains_have_an_end)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);

	for (int i = 1; i <= 9; i++) {
		char name[32], text[64];

		(void)snprintf(name, sizeof(name), "agents/a%d.yaml", i);
		(void)snprintf(text, sizeof(text), "agent: {name: a%d, type: t}\nextends: a%d\n", i,
			       i - 1);
		put(&place, name, i == 1 ? NAMED("a1") : text);
	}
	assert_outcome(&store, &place, "a8", 0, "", "");
	assert_outcome(&store, &place, "a9", -EINVAL,
		       "@/agents/a2.yaml:2:10: error: extends: more than 8 agents extend one "
		       "another\n",
		       "@/agents/a9.yaml: 1 error");
}

TEST_IN_DIR(cycles)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);

	put(&place, "agents/self.yaml", NAMED("self") "extends: self\n");
	put(&place, "agents/x.yaml", NAMED("x") "extends: y\n");
	put(&place, "agents/y.yaml", NAMED("y") "extends: z\n");
	put(&place, "agents/z.yaml", NAMED("z") "extends: x\n");
	assert_outcome(&store, &place, "self", -EINVAL,
		       "@/agents/self.yaml:2:10: error: extends: 'self' extends itself through "
		       "@/agents/self.yaml\n",
		       "@/agents/self.yaml: 1 error");
	assert_outcome(&store, &place, "x", -EINVAL,
		       "@/agents/z.yaml:2:10: error: extends: 'x' extends itself through "
		       "@/agents/z.yaml\n",
		       "@/agents/x.yaml: 1 error");
}

/* Errors of an ancestor have their positions in its own file. */
TEST_IN_DIR(broken_ancestors)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);

	put(&place, "agents/not-yaml.yaml", "a: [");
	put(&place, "agents/list.yaml", "- a\n");
	put(&place, "agents/c1.yaml", NAMED("c1") "extends: not-yaml\n");
	put(&place, "agents/c2.yaml", NAMED("c2") "extends: list\n");
	put(&place, "agents/plain.yaml", NAMED("plain"));
	put(&place, "agents/c3.yaml", NAMED("c3") "extends: plain\n");
	assert_outcome(&store, &place, "c1", -EINVAL,
		       "@/agents/not-yaml.yaml:2:1: error: not YAML: did not find expected node "
		       "content while parsing a flow node\n",
		       "@/agents/c1.yaml: 1 error");
	assert_outcome(&store, &place, "c2", -EINVAL,
		       "@/agents/list.yaml:1:1: error: expected a mapping, found a list\n",
		       "@/agents/c2.yaml: 1 error");
	assert_outcome(&store, &place, "c3", -EINVAL,
		       "@/agents/c3.yaml:2:10: error: extends: agent 'plain' is in two places, "
		       "agents/plain.yaml (built in) and @/agents/plain.yaml: rename one\n",
		       "@/agents/c3.yaml: 1 error");
}

/* An agent found by name must have that name; a file given by path need not. */
TEST_IN_DIR(names_of_files)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);
	char path[PATH_MAX];

	unit_dir_write(place.d, "agents/mine.yaml", AGENT, strlen(AGENT));
	put(&place, "agents/child.yaml", NAMED("child") "extends: mine\n");
	assert_outcome(&store, &place, "mine", -EINVAL,
		       "@/agents/mine.yaml:1:15: error: agent.name: 'a' does not match the file "
		       "name\n",
		       "@/agents/mine.yaml: 1 error");
	assert_outcome(&store, &place, "child", -EINVAL,
		       "@/agents/mine.yaml:1:15: error: agent.name: 'a' does not match the file "
		       "name\n",
		       "@/agents/child.yaml: 1 error");
	(void)snprintf(path, sizeof(path), "%s/agents/mine.yaml", place.d->path);
	assert_outcome(&store, &place, path, 0, "", "");
}

TEST_IN_DIR(a_child_that_isolates_less_is_noted)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);

	put(&place, "agents/vm.yaml", NAMED("vm") "isolation: {level: microvm}\n");
	put(&place, "agents/less.yaml", NAMED("less") "extends: vm\nisolation: {level: gvisor}\n");
	put(&place, "agents/same.yaml", NAMED("same") "extends: vm\n");
	put(&place, "agents/more.yaml",
	    NAMED("more") "extends: plain\nisolation: {level: gvisor}\n");
	assert_outcome(&store, &place, "less", 0,
		       "@/agents/less.yaml:3:20: warning: isolation.level: 'gvisor' is weaker "
		       "than 'microvm', the level of the agent it extends\n",
		       "");
	assert_outcome(&store, &place, "same", 0, "", "");
	assert_outcome(&store, &place, "more", 0, "", "");
}

/* A summary describes one agent; an heir without a summary has none, and the policy is the same. */
TEST_IN_DIR(summaries_are_not_inherited)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);
	_cleanup_policy_ struct policy *parent = NULL, *heir = NULL;
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_free_ char *text = NULL;
	char digest[POLICY_DIGEST_HEX + 1];
	struct err e = ERR_INIT;

	put(&place, "agents/told.yaml", "agent: {name: told, type: t, summary: Does one thing}\n");
	put(&place, "agents/heir.yaml", "agent: {name: heir}\nextends: told\n");
	assert_int_equal(policy_compile(&store, "told", &d, &parent, &e), 0);
	assert_string_equal(parent->summary, "Does one thing");
	assert_int_equal(policy_compile(&store, "heir", &d, &heir, &e), 0);
	assert_string_equal(heir->type, "t");
	assert_null(heir->summary);
	assert_int_equal(policy_canonical(heir, &text, digest), 0);
}

TEST_IN_DIR(references)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);
	char path[PATH_MAX];

	put(&place, "agents/mine.yaml", NAMED("mine"));
	put(&place, "side.yaml", AGENT "extends: base\n");
	put(&place, "base.yaml", NAMED("base") "resources: {pids: 77}\n");
	put(&place, "empty.yaml", "");
	assert_outcome(&store, &place, "plain", 0, "", "");
	assert_outcome(&store, &place, "mine", 0, "", "");
	assert_outcome(&store, &place, "plane", -ENOENT, "",
		       "agent 'plane' is not known; did you mean 'plain'?");
	assert_outcome(&store, &place, "quite-other", -ENOENT, "",
		       "agent 'quite-other': is not known");
	assert_outcome(&store, &place, "no name", -ENOENT, "",
		       "agent 'no name': is not a name: names have a-z, 0-9 and hyphens");
	assert_outcome(&store, &place, "missing.yaml", -EIO, "",
		       "cannot read 'missing.yaml': No such file or directory");
	(void)snprintf(path, sizeof(path), "%s/side.yaml", place.d->path);
	assert_outcome(&store, &place, path, 0, "", "");
	(void)snprintf(path, sizeof(path), "%s/empty.yaml", place.d->path);
	assert_outcome(&store, &place, path, -EINVAL,
		       "@/empty.yaml:1:1: error: the file is empty\n", "@/empty.yaml: 1 error");
	put(&place, "agents/plain.yaml", NAMED("plain"));
	assert_outcome(&store, &place, "plain", -EEXIST, "",
		       "agent 'plain': is in two places, agents/plain.yaml (built in) and "
		       "@/agents/plain.yaml: "
		       "rename one");
}

TEST(presets_are_added_in_order)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_policy_ struct policy *p = compiled(
		&store, AGENT "env: {WHO: agent}\n"
			      "egress: {presets: [site, mail]}\n"
			      "capabilities: {presets: [tools, more], packages: [git, vim], "
			      "install_scripts: [echo own]}\n"
			      "prompt: {role: Me., presets: [kind, brief]}\n");
	static const char *const env[][2] = { { "WHO", "agent" },
					      { "TOOLS", "1" },
					      { "MORE", "1" } };

	assert_texts(&p->capabilities.packages, "git vim curl zip");
	assert_texts(&p->capabilities.scripts, "echo tools echo more echo own");
	assert_texts(&p->prompt.fragments, "Be kind.\n Be brief.");
	assert_int_equal(p->egress.presets.n, 2);
	assert_int_equal(p->env.n, ARRAY_SIZE(env));
	for (size_t i = 0; i < p->env.n; i++) {
		assert_string_equal(p->env.v[i].key, env[i][0]);
		assert_string_equal(p->env.v[i].value, env[i][1]);
	}
}

TEST(among_presets_the_first_sets_the_environment)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_policy_ struct policy *p =
		compiled(&store, AGENT "capabilities: {presets: [more, tools]}\n");

	assert_string_equal(p->env.v[0].key, "WHO");
	assert_string_equal(p->env.v[0].value, "more");
}

TEST(ports_are_of_their_file)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_policy_ struct policy *p =
		compiled(&store, AGENT "egress: {domains: [own.example.org, 'own.example.org:22'], "
				       "presets: [mail, site], ports: [8080, 8443]}\n");
	static const struct {
		const char *where;
		bool allowed;
	} cases[] = {
		{ "own.example.org:8080", true },
		{ "own.example.org:8443", true },
		{ "own.example.org:22", true },
		{ "own.example.org:443", false },
		{ "mail.example.org:465", true },
		{ "mail.example.org:993", true },
		{ "mail.example.org:443", false },
		{ "mail.example.org:8080", false },
		{ "web.mail.example.org:443", true },
		{ "web.mail.example.org:465", false },
		{ "www.example.org:443", true },
		{ "www.example.org:8080", false },
		{ "x.static.example.org:443", true },
		{ "static.example.org:443", true },
		{ "ads.static.example.org:443", false },
		{ "example.org:443", false },
		{ "192.0.2.1:443", false },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(may_dial(p, cases[i].where), cases[i].allowed);
}

/* In any agent and any notation. */
TEST(the_floor_stands)
{
	static const char text[] = AGENT "egress:\n"
					 "  ports: [22, 80, 443]\n"
					 "  domains:\n"
					 "    - metadata.example.com\n"
					 "    - .metadata.example.com\n"
					 "    - a.metadata.example.com:80\n"
					 "    - relay.example.com\n"
					 "    - .example.com\n";
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(policy_compile_text(&store, "t", text, strlen(text), &d, &p, &e), 0);
	assert_true(d.n > 0); /* with a diagnostic */
	assert_true(may_dial(p, "www.example.com:443"));
	assert_false(may_dial(p, "metadata.example.com:443"));
	assert_false(may_dial(p, "a.metadata.example.com:80"));
	assert_false(may_dial(p, "b.a.metadata.example.com:22"));
	assert_true(may_dial(p, "relay.example.com:443"));
	assert_false(may_dial(p, "relay.example.com:22"));
}

TEST_IN_DIR(no_policy_without_the_floor)
{
	static const struct builtin_file none[] = { BUILTIN("agents/plain.yaml", NAMED("plain")) };
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store bare = POLICY_STORE_INIT(none, 1, NULL),
					    full = SMALL_STORE(place.dirs);

	assert_outcome(&bare, &place, "plain", -EINVAL,
		       "agents/plain.yaml:1:8: error: egress.presets[0]: preset 'floor' is not "
		       "known\n",
		       "agents/plain.yaml: 1 error");
	/* nor can another one take its place */
	put(&place, "presets/egress/floor.yaml",
	    "preset: {kind: egress, name: floor, summary: Open}\n");
	assert_outcome(&full, &place, "plain", -EINVAL,
		       "agents/plain.yaml:1:8: error: egress.presets[0]: preset 'floor' is in two "
		       "places, presets/egress/floor.yaml (built in) and "
		       "@/presets/egress/floor.yaml: rename one\n",
		       "agents/plain.yaml: 1 error");
}

TEST_IN_DIR(wrong_presets)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);

	put(&place, "agents/u1.yaml", NAMED("u1") "egress: {presets: [named, placed, headless]}\n");
	put(&place, "presets/egress/named.yaml",
	    "preset: {kind: egress, name: other, summary: S}\n");
	put(&place, "presets/egress/placed.yaml",
	    "preset: {kind: prompts, name: placed, summary: S}\n");
	put(&place, "presets/egress/headless.yaml", "domains: []\n");
	assert_outcome(
		&store, &place, "u1", -EINVAL,
		"@/presets/egress/headless.yaml:1:1: error: preset: missing; expected a mapping\n"
		"@/presets/egress/named.yaml:1:30: error: preset.name: 'other' does not match the "
		"file name\n"
		"@/presets/egress/placed.yaml:1:16: error: preset.kind: 'prompts' preset in "
		"the folder of egress presets\n",
		"@/agents/u1.yaml: 3 errors");
	put(&place, "agents/u2.yaml", NAMED("u2") "capabilities: {presets: [keys, not-yaml]}\n");
	put(&place, "presets/capabilities/keys.yaml",
	    "preset: {kind: capabilities, name: keys, summary: S}\ndomains: [a.example.org]\n");
	put(&place, "presets/capabilities/not-yaml.yaml", "&a b");
	assert_outcome(&store, &place, "u2", -EINVAL,
		       "@/presets/capabilities/keys.yaml:2:1: error: domains: unknown key; "
		       "expected one of: preset, packages, install_scripts, env\n"
		       "@/presets/capabilities/not-yaml.yaml:1:1: error: anchors (&a) are not used "
		       "here: write the value out\n",
		       "@/agents/u2.yaml: 2 errors");
	put(&place, "agents/u3.yaml", NAMED("u3") "prompt: {presets: [mute]}\n");
	put(&place, "presets/prompts/mute.yaml", "preset: {kind: prompts, name: mute}\n");
	assert_outcome(&store, &place, "u3", -EINVAL,
		       "@/presets/prompts/mute.yaml:1:1: error: text: missing; expected text\n"
		       "@/presets/prompts/mute.yaml:1:9: error: preset.summary: missing; expected "
		       "one line of text\n",
		       "@/agents/u3.yaml: 2 errors");
}

/* It has no head, so its position comes from elsewhere. */
TEST_IN_DIR(presets_that_are_no_mappings)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);
	_cleanup_diags_ struct diags d = { 0 };
	struct policy_head head;
	struct err e = ERR_INIT;

	put(&place, "agents/u.yaml", NAMED("u") "capabilities: {presets: [list]}\n");
	put(&place, "presets/capabilities/list.yaml", "- a\n");
	assert_outcome(&store, &place, "u", -EINVAL,
		       "@/presets/capabilities/list.yaml:1:1: error: preset.kind: 'egress' preset "
		       "in the folder of capabilities presets\n"
		       "@/presets/capabilities/list.yaml:1:1: error: expected a mapping, found a "
		       "list\n",
		       "@/agents/u.yaml: 2 errors");
	assert_int_equal(policy_preset_head(&store, PRESET_CAPABILITIES, "list", &d, &head, &e),
			 -EINVAL);
}

static void assert_valid(struct policy_store *store, const struct place *place, const char *name,
			 int want, const char *said)
{
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_buf_ struct buf b = BUF_INIT(65536);
	struct err e = ERR_INIT;
	char path[PATH_MAX];
	int r;

	(void)snprintf(path, sizeof(path), "%s/%s", place->d->path, name);
	r = policy_validate(store, path, &d, &e);
	for (size_t i = 0; i < d.n; i++) {
		assert_string_equal(d.list[i].pos.src->label, path);
		(void)buf_printf(&b, "%u:%u: %s: %s\n", d.list[i].pos.line, d.list[i].pos.column,
				 d.list[i].key, d.list[i].text);
	}
	assert_string_equal(buf_text(&b), said);
	assert_int_equal(r, want);
	assert_int_equal(e.num, want);
}

TEST_IN_DIR(validates_agents_and_presets)
{
	static const struct {
		const char *name, *text;
		int want;
		const char *said;
	} cases[] = {
		{ "a.yaml", AGENT "extends: plain\negress: {presets: [site]}\n", 0, "" },
		{ "b.yaml", AGENT "x: 1\n", -EINVAL,
		  "2:1: x: unknown key; expected one of: agent, extends, isolation, resources, "
		  "egress, capabilities, filesystem, output, secrets, llm, env, prompt\n" },
		{ "e.yaml", "preset: {kind: egress, name: e, summary: S}\ndomains: [.a.example]\n",
		  0, "" },
		{ "c.yaml", "preset: {kind: capabilities, name: c, summary: S}\npackages: [vim]\n",
		  0, "" },
		{ "p.yaml", "preset: {kind: prompts, name: p, summary: S}\ntext: T\n", 0, "" },
		{ "w.yaml", "preset: {kind: egress, name: w, summary: S}\ndomains: [8.8.8.8]\n", 0,
		  "2:11: domains[0]: '8.8.8.8' is an address: its owner may change, and no "
		  "certificate is checked against it\n" },
		{ "n.yaml", "preset: {kind: egress, name: m, summary: S}\n", -EINVAL,
		  "1:30: preset.name: 'm' does not match the file name\n" },
		{ "k.yaml", "preset: {kind: egres, name: k, summary: S}\n", -EINVAL,
		  "1:16: preset.kind: 'egres' is not one of: egress, capabilities, prompts\n" },
		{ "l.yaml", "preset: {kind: [egress], name: l, summary: S}\n", -EINVAL,
		  "1:16: preset.kind: expected one of: egress, capabilities, prompts, found a "
		  "list\n" },
		{ "s.yaml", "preset: s\n", -EINVAL,
		  "1:9: preset: expected a mapping, found 's'\n" },
		{ "t.yaml", "preset: {kind: prompts, name: t, summary: S}\ntext: A\ntext: B\n",
		  -EINVAL, "3:1: text: written twice; the first stands at line 2\n" },
		{ "i.yaml", "- preset\n", -EINVAL, "1:1: : expected a mapping, found a list\n" },
		{ "y.yaml", "preset: *x\n", -EINVAL,
		  "1:9: : aliases (*x) are not used here: write the value out\n" },
	};
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		put(&place, cases[i].name, cases[i].text);
		assert_valid(&store, &place, cases[i].name, cases[i].want, cases[i].said);
	}
	assert_valid(&store, &place, "missing.yaml", -EIO, "");
}

TEST_IN_DIR(heads)
{
	struct place place = place_make(*state);
	_cleanup_store_ struct policy_store store = SMALL_STORE(place.dirs);
	_cleanup_diags_ struct diags d = { 0 };
	struct policy_head h = { .name = "untouched" };
	struct err e = ERR_INIT;

	assert_string_equal(preset_folder(PRESET_PROMPTS), "presets/prompts");
	put(&place, "presets/egress/bad.yaml", "preset: {kind: egress, name: bad}\n");
	assert_int_equal(policy_preset_head(&store, PRESET_EGRESS, "nix", &d, &h, &e), -ENOENT);
	assert_string_equal(h.name, "untouched");
	assert_int_equal(policy_preset_head(&store, PRESET_EGRESS, "mail", &d, &h, &e), 0);
	assert_string_equal(h.name, "mail");
	assert_string_equal(h.summary, "Mail");
	assert_string_equal(h.risk, "Sends mail");
	assert_string_equal(h.label, "presets/egress/mail.yaml");
	assert_int_equal(policy_preset_head(&store, PRESET_PROMPTS, "brief", &d, &h, &e), 0);
	assert_string_equal(h.summary, "Short answers");
	assert_null(h.risk);
	assert_int_equal(policy_preset_head(&store, PRESET_EGRESS, "bad", &d, &h, &e), -EINVAL);
	assert_int_equal(d.n, 1);
	assert_string_equal(h.name, "brief");
}

TEST(text_may_hold_anything)
{
	static const char text[] = "agent: {name: a, type: t}\n\0# behind";
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_diags_ struct diags d = { 0 };
	struct policy *p = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(policy_compile_text(&store, "l", text, sizeof(text) - 1, &d, &p, &e),
			 -EINVAL);
	assert_diags(&d, "l:2:1: error: control character 0x00 in the text\n");
	assert_string_equal(e.msg, "l: 1 error");
	assert_null(policy_free(NULL));
}

/* Only a file can refer to files beside it: text received over a wire must not reach our
 * directory. */
TEST_IN_DIR(text_is_beside_nothing)
{
	const struct unit_dir *dir = *state;
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_close_ int was = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	static const char text[] = NAMED("a") "extends: lonely\n";
	struct policy *p = NULL;
	struct err e = ERR_INIT;

	unit_dir_write(dir, "lonely.yaml", NAMED("lonely"), strlen(NAMED("lonely")));
	assert_int_equal(fchdir(dir->fd), 0);
	assert_int_equal(policy_compile_text(&store, "a.yaml", text, strlen(text), &d, &p, &e),
			 -EINVAL);
	assert_int_equal(fchdir(was), 0);
	assert_diags(&d, "a.yaml:2:10: error: extends: agent 'lonely' is not known\n");
	assert_null(p);
}
