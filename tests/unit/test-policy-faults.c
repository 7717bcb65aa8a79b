/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation and every syscall of the compiler fails once. The result is a clean error or the
 * same policy as without the fault, never a wider one.
 *
 * The arena of this program calls malloc() for each piece instead of each block, so that each piece
 * can fail and AddressSanitizer knows where it ends.
 */
#include <limits.h>
#include <stdalign.h>
#include <sys/stat.h>

#include "fail.h"
#include "policy/docs.h"
#include "test-policy.h"

struct arena_block {
	struct arena_block *next;
	alignas(max_align_t) unsigned char data[];
};

void arena_done(struct arena *a)
{
	while (a->blocks) {
		struct arena_block *b = a->blocks;

		a->blocks = b->next;
		free(b);
	}
}

void *arena_alloc(struct arena *a, size_t size)
{
	struct arena_block *b = calloc(1, sizeof(*b) + size);

	if (!b)
		return NULL;
	b->next = a->blocks;
	a->blocks = b;
	return b->data;
}

void *arena_calloc(struct arena *a, size_t n, size_t size)
{
	size_t total;

	return __builtin_mul_overflow(n, size, &total) ? NULL : arena_alloc(a, total);
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
	char *p = arena_alloc(a, n + 1);

	if (p && n > 0)
		memcpy(p, s, n);
	return p;
}

char *arena_strdup(struct arena *a, const char *s)
{
	return arena_strndup(a, s, strlen(s));
}

/* Like FAIL_SWEEP, with ENOMEM for syscalls too: then no other error may occur. */
#define MEMORY_SWEEP(expr)                                                             \
	for (unsigned int n_ = 1, more_ = 1; more_; n_++) {                            \
		size_t fds_ = fail_count_fds();                                        \
		int r_;                                                                \
                                                                                       \
		fail_arm(n_, ENOMEM);                                                  \
		r_ = (expr);                                                           \
		more_ = fail_step(r_, ENOMEM, n_, fds_, #expr, __FILE__, __LINE__);    \
		if (r_ < 0 && r_ != -ENOMEM)                                           \
			fail_msg("%s: call %u failed, which gives %d", #expr, n_, r_); \
	}

static const char child[] =
	"agent: {name: child, summary: A child}\n"
	"extends: parent\n"
	"isolation: {level: gvisor, require: [seccomp]}\n"
	"resources: {cpus: 2, memory: 2GiB, timeout: 5m}\n"
	"egress:\n"
	"  presets: [mail, local]\n"
	"  ports: [443, 8443]\n"
	"  domains: [a.example.org, .github.io, 10.0.0.1]\n"
	"  deny: [no.example.org]\n"
	"  budgets: {names: 7}\n"
	"  http: [{host: a.example.org, methods: [GET], paths: [/a/**], rate: 5}]\n"
	"capabilities:\n"
	"  presets: [tools, more]\n"
	"  packages: [vim, git]\n"
	"  install_scripts: [echo own]\n"
	"filesystem: {workspace: /w, write: [/w, /tmp]}\n"
	"secrets: {KEY: {hosts: [a.example.org, off.example.org], paths: [/a]}}\n"
	"env: {A: '1', B: two, A_TOKEN: new}\n"
	"prompt: {role: Be., presets: [brief, kind]}\n";

static const char parent[] =
	"agent: {name: parent, type: test}\n"
	"extends: grand\n"
	"egress: {presets: [site], domains: [p.example.org]}\n"
	"secrets: {KEY: {hosts: [p.example.org]}, PKEY: {hosts: [p.example.org], header: X-Key}}\n"
	"env: {A: '0', P: p, A_TOKEN: old}\n";

static const char grand[] = "agent: {name: grand, type: test}\n"
			    "egress: {domains: [g.example.org], deny: [.evil.example.org]}\n"
			    "capabilities: {packages: [gdb], install_scripts: [echo grand]}\n"
			    "filesystem: {write: [/g]}\n"
			    "env: {G: g}\n";

static const char local[] = "preset: {kind: egress, name: local, summary: Local, risk: None}\n"
			    "domains: [l.example.org]\n"
			    "deny: [x.l.example.org]\n";

struct scene {
	const struct unit_dir *d;
	const char *dirs[2];
	char child[PATH_MAX], preset[PATH_MAX];
	/* without a fault */
	char digest[POLICY_DIGEST_HEX + 1];
	size_t diags;
	struct policy *p;
	struct policy_store store; /* of `p` */
};

static void put(const struct unit_dir *d, const char *name, const char *text)
{
	unit_dir_write(d, name, text, strlen(text));
}

static int scene_setup(void **state)
{
	struct scene *s = calloc(1, sizeof(*s));
	struct diags d = { 0 };
	struct err e = ERR_INIT;
	void *dir = NULL;

	if (!s || unit_dir_setup(&dir) < 0)
		return -1;
	s->d = dir;
	s->dirs[0] = s->d->path;
	if (mkdirat(s->d->fd, "agents", 0755) < 0 || mkdirat(s->d->fd, "presets", 0755) < 0 ||
	    mkdirat(s->d->fd, "presets/egress", 0755) < 0)
		return -1;
	put(s->d, "child.yaml", child);
	put(s->d, "parent.yaml", parent);
	put(s->d, "agents/parent.yaml", parent); /* for text, which has no directory */
	put(s->d, "agents/grand.yaml", grand);
	put(s->d, "presets/egress/local.yaml", local);
	(void)snprintf(s->child, sizeof(s->child), "%s/child.yaml", s->d->path);
	(void)snprintf(s->preset, sizeof(s->preset), "%s/presets/egress/local.yaml", s->d->path);
	s->store = (struct policy_store)SMALL_STORE(s->dirs);
	assert_int_equal(policy_compile(&s->store, s->child, &d, &s->p, &e), 0);
	digest_of(s->p, s->digest);
	s->diags = d.n;
	/* Shared, private, a secret's host, a host of two secrets, a variable's name. */
	assert_int_equal(d.n, 5);
	diags_done(&d);
	*state = s;
	return 0;
}

static int scene_teardown(void **state)
{
	struct scene *s = *state;
	void *dir = (void *)s->d;
	int r = unit_dir_teardown(&dir);

	(void)policy_free(s->p);
	policy_store_done(&s->store);
	free(s);
	return r;
}

static int compile_once(const struct scene *s, const char *ref)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(s->dirs);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	char digest[POLICY_DIGEST_HEX + 1];
	struct err e = ERR_INIT;
	int r = policy_compile(&store, ref, &d, &p, &e);

	fail_off();
	assert_true((r == 0) == (p != NULL));
	if (r < 0) {
		assert_int_equal(e.num, r);
		assert_true(e.msg[0]);
		return r;
	}
	digest_of(p, digest);
	assert_string_equal(digest, s->digest);
	assert_int_equal(d.n, s->diags);
	return 0;
}

static int compile_text_once(const struct scene *s, const char *text)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(s->dirs);
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_policy_ struct policy *p = NULL;
	char digest[POLICY_DIGEST_HEX + 1];
	struct err e = ERR_INIT;
	int r = policy_compile_text(&store, s->child, text, strlen(text), &d, &p, &e);

	fail_off();
	assert_true((r == 0) == (p != NULL));
	if (r < 0)
		return e.num;
	digest_of(p, digest);
	assert_string_equal(digest, s->digest);
	return 0;
}

TEST(compiling)
{
	const struct scene *s = *state;

	MEMORY_SWEEP(compile_once(s, s->child));
	FAIL_SWEEP(compile_once(s, s->child));
	MEMORY_SWEEP(compile_text_once(s, child));
}

/* Wrong text stays an error, whichever part of the diagnostic cannot be allocated. */
static int refuse_once(const struct scene *s, const char *text)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(s->dirs);
	_cleanup_diags_ struct diags d = { 0 };
	struct policy *p = NULL;
	struct err e = ERR_INIT;
	int r = policy_compile_text(&store, "t.yaml", text, strlen(text), &d, &p, &e);

	assert_null(p);
	assert_true(r == -EINVAL || r == -ENOMEM);
	return r == -EINVAL ? 0 : r;
}

TEST(refusing)
{
	const struct scene *s = *state;

	MEMORY_SWEEP(refuse_once(s,
				 AGENT "extends: parrot\negress: {presets: [sit], domains: [x]}\n"
				       "resources: {memory: 1MB}\nfoo: bar\n"));
	MEMORY_SWEEP(refuse_once(s, AGENT "egress: {deny: ['*']}\nsecrets: {A: {hosts: [x]}}\n"));
}

static int find_once(const struct scene *s, const char *name)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(s->dirs);
	_cleanup_diags_ struct diags d = { 0 };
	struct policy *p = NULL;
	struct err e = ERR_INIT;
	int r = policy_compile(&store, name, &d, &p, &e);

	assert_null(p);
	assert_int_equal(e.num, r);
	return r == -ENOENT ? 0 : r;
}

TEST(not_finding)
{
	MEMORY_SWEEP(find_once(*state, "plane"));
}

static int validate_once(const struct scene *s, const char *path, size_t diags)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(s->dirs);
	_cleanup_diags_ struct diags d = { 0 };
	struct err e = ERR_INIT;
	int r = policy_validate(&store, path, &d, &e);

	assert_true(r == 0 || (e.num == r && e.msg[0]));
	if (r == 0)
		assert_int_equal(d.n, diags);
	return r;
}

TEST(validating)
{
	const struct scene *s = *state;

	MEMORY_SWEEP(validate_once(s, s->child, s->diags));
	FAIL_SWEEP(validate_once(s, s->child, s->diags));
	MEMORY_SWEEP(validate_once(s, s->preset, 0));
	FAIL_SWEEP(validate_once(s, s->preset, 0));
}

static int canonical_once(const struct scene *s)
{
	char digest[POLICY_DIGEST_HEX + 1];
	_cleanup_free_ char *text = NULL;
	int r = policy_canonical(s->p, &text, digest);

	assert_true((r == 0) == (text != NULL));
	if (r == 0)
		assert_string_equal(digest, s->digest);
	return r;
}

TEST(canonical)
{
	MEMORY_SWEEP(canonical_once(*state));
}

static int explain_once(const struct scene *s, const char *where, size_t ports, size_t presets)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	struct explanation x = { .n_ports = 99 };
	struct target t;
	struct err e = ERR_INIT;
	int r;

	assert_int_equal(target_parse(where, strlen(where), &t, &e), 0);
	r = policy_explain(s->p, &store, &t, &x, &e);
	if (r == 0) {
		assert_int_equal(x.n_ports, ports);
		assert_int_equal(x.n_presets, presets);
		assert_false(x.verdict.allowed);
	} else {
		assert_int_equal(x.n_ports, 99);
	}
	return r;
}

TEST(explaining)
{
	MEMORY_SWEEP(explain_once(*state, "a.example.org:22", 2, 0));
	MEMORY_SWEEP(explain_once(*state, "web.mail.example.org:444", 1, 0));
	MEMORY_SWEEP(explain_once(*state, "x.no.example.org:443", 0, 0));
}

static int head_once(const char *name, const char *risk)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_diags_ struct diags d = { 0 };
	struct policy_head h = { .label = "untouched" };
	struct err e = ERR_INIT;
	int r = policy_preset_head(&store, PRESET_EGRESS, name, &d, &h, &e);

	if (r < 0) {
		assert_string_equal(h.label, "untouched");
		return r;
	}
	assert_string_equal(h.name, name);
	assert_non_null(h.summary);
	assert_true((h.risk != NULL) == (risk != NULL));
	return r;
}

TEST(heads)
{
	MEMORY_SWEEP(head_once("mail", "Sends mail"));
	MEMORY_SWEEP(head_once("site", NULL));
}

static int docs_once(const char *want)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
	struct err e = ERR_INIT;
	int r = policy_docs(&store, &b, &e);

	if (r == 0)
		assert_string_equal(b.data, want);
	return r;
}

static int docs_json_once(const json_t *want)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_json_ json_t *j = NULL;
	struct err e = ERR_INIT;
	int r = policy_docs_json(&store, &j, &e);

	fail_off();
	assert_true((r == 0) == (j != NULL));
	if (r == 0)
		assert_true(json_equal(j, want));
	return r;
}

TEST(documenting)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(NULL);
	_cleanup_buf_ struct buf b = BUF_INIT(1024 * 1024);
	_cleanup_json_ json_t *j = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(policy_docs(&store, &b, &e), 0);
	assert_int_equal(policy_docs_json(&store, &j, &e), 0);
	MEMORY_SWEEP(docs_once(b.data));
	MEMORY_SWEEP(docs_json_once(j));
}

static int list_once(const struct scene *s)
{
	_cleanup_store_ struct policy_store store = SMALL_STORE(s->dirs);
	const char *const *list = NULL;
	struct err e = ERR_INIT;
	int r = store_list(&store, "presets/egress", &list, &e);

	assert_true((r == 0) == (list != NULL));
	if (r == 0)
		assert_true(str_eq(list[0], "floor") && str_eq(list[1], "local") &&
			    str_eq(list[2], "mail") && str_eq(list[3], "site") && !list[4]);
	return r;
}

TEST(listing)
{
	MEMORY_SWEEP(list_once(*state));
	FAIL_SWEEP(list_once(*state));
}

int main(void)
{
	return unit_run(scene_setup, scene_teardown);
}
