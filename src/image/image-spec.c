/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image-spec.h"

#include <sodium.h>
#include <string.h>

#include "base/json-util.h"
#include "base/str.h"
#include "image/unpack.h"
#include "policy/read.h"

static const char base_image[] = "base";

const char *const variant_names[VARIANT_MAX + 1] = {
	[VARIANT_UNSET] = "",  [VARIANT_EXTRACT] = "extract", [VARIANT_ESSENTIAL] = "essential",
	[VARIANT_APT] = "apt", [VARIANT_MINBASE] = "minbase", [VARIANT_IMPORTANT] = "important",
};

#define FIELD(x)      .field = offsetof(struct image_spec, x)
#define FILE_FIELD(x) .in_file = true, .field = offsetof(struct policy_file, x)
#define KIB	      UINT64_C(1024)

/* clang-format off */
static const struct key head_section[] = {
	{ "name", KEY_NAME, FILE_FIELD(name), .required = true, .doc = "The file's name without .yaml." },
	{ "summary", KEY_LINE, FILE_FIELD(summary), .max = 100, .doc = "One line for people." },
	{ 0 }
};

static const struct key image_keys[] = {
	{ "image", KEY_SECTION, .keys = head_section, .required = true, .doc = "Name and summary." },
	{ "suite", KEY_NAME, FIELD(suite), .fallback = "bookworm", .doc = "Release of Debian." },
	{ "variant", KEY_WORD, FIELD(variant), .words = variant_names, .fallback = "apt",
	  .doc = "Which packages are there before any is named." },
	{ "mirrors", KEY_TEXT_LIST, FIELD(mirrors), .max = KIB,
	  .doc = "Where packages come from: URLs, or lines of sources.list." },
	{ "presets", KEY_PRESET_LIST, FIELD(policy.capabilities.presets), .kind = PRESET_CAPABILITIES,
	  .doc = "Capability presets." },
	{ "packages", KEY_PACKAGE_LIST, FIELD(policy.capabilities.packages), .doc = "Debian packages." },
	{ "install_scripts", KEY_TEXT_LIST, FIELD(policy.capabilities.scripts), .max = 64 * KIB,
	  .doc = "Shell scripts run as root in the tree." },
	{ "files", KEY_FILES, FIELD(files), .doc = "Files that are written last." },
	{ "env", KEY_ENV, FIELD(policy.env), .doc = "Environment of scripts and commands." },
	{ "user", KEY_NAME, FIELD(user), .fallback = "user", .doc = "Who commands run as." },
	{ 0 }
};
/* clang-format on */

struct image_spec *image_spec_free(struct image_spec *s)
{
	if (s) {
		arena_done(&s->policy.arena);
		free(s);
	}
	return NULL;
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts and removes duplicates: their order in the file does not matter. */
static void sort_packages(struct text_list *list)
{
	size_t n = 0;

	if (list->n > 1)
		qsort(list->v, list->n, sizeof(list->v[0]), compare_text);
	for (size_t i = 0; i < list->n; i++)
		if (n == 0 || !str_eq(list->v[n - 1], list->v[i]))
			list->v[n++] = list->v[i];
	list->n = n;
}

static json_t *pairs_json(const struct pair_list *list)
{
	json_t *object = json_object();

	for (size_t i = 0; object && i < list->n; i++)
		if (json_put(object, list->v[i].key, json_string(list->v[i].value)) < 0) {
			json_decref(object);
			return NULL;
		}
	return object;
}

/* "build" must change when hutch builds something else from the same spec. */
static int make_digest(struct image_spec *s)
{
	_cleanup_json_ json_t *j = JSON_OBJECT(
		{ "build", json_integer(1) }, { "suite", json_string(s->suite) },
		{ "variant", json_string(variant_names[s->variant]) },
		{ "user", json_string(s->user) },
		{ "mirrors", json_texts(s->mirrors.v, s->mirrors.n) },
		{ "packages", json_texts(s->policy.capabilities.packages.v,
					 s->policy.capabilities.packages.n) },
		{ "scripts",
		  json_texts(s->policy.capabilities.scripts.v, s->policy.capabilities.scripts.n) },
		{ "files", pairs_json(&s->files) }, { "env", pairs_json(&s->policy.env) });
	_cleanup_free_ char *text = j ? json_write_canonical(j) : NULL;
	unsigned char sum[crypto_hash_sha256_BYTES];

	if (!text)
		return -ENOMEM;
	(void)crypto_hash_sha256(sum, (const unsigned char *)text, strlen(text));
	(void)sodium_bin2hex(s->digest, sizeof(s->digest), sum, sizeof(sum));
	return 0;
}

static bool label_is(const char *label, const char *name)
{
	const char *slash = strrchr(label, '/'), *base = slash ? slash + 1 : label;
	size_t n = strlen(name);

	return strncmp(base, name, n) == 0 && str_eq(base + n, ".yaml");
}

static void check(struct image_spec *s, const struct policy_file *f, bool by_name, struct diags *d)
{
	bool below;

	if (by_name && f->name && !label_is(f->src->label, f->name))
		diag_add(d, DIAG_ERROR, f->head_pos, "image.name", NULL,
			 "'%s' stands in a file of another name", f->name);
	if (s->variant == VARIANT_EXTRACT && s->policy.capabilities.scripts.n > 0)
		diag_add(d, DIAG_ERROR, f->head_pos, "install_scripts", NULL,
			 "nothing is run in an image of variant extract");
	for (size_t i = 0; i < s->files.n; i++)
		if (unpack_is_mount_point(s->files.v[i].key + 1, &below) || below)
			diag_add(d, DIAG_ERROR, s->files.v[i].pos, "files", NULL,
				 "'%s' is covered by a mount in every sandbox", s->files.v[i].key);
	for (size_t i = 0; i < s->mirrors.n; i++)
		if (s->mirrors.v[i][0] == '-' || strchr(s->mirrors.v[i], '\n'))
			diag_add(d, DIAG_ERROR, f->head_pos, "mirrors", NULL,
				 "'%s' is neither a URL nor a line of sources.list",
				 s->mirrors.v[i]);
}

static int read_image(struct policy_store *store, const struct source *src, bool by_name,
		      struct diags *d, struct image_spec **ret, struct err *e)
{
	_cleanup_image_spec_ struct image_spec *s = calloc(1, sizeof(*s));
	struct policy_file f = { .src = src };
	const struct yaml_node *root;
	int r;

	if (!s)
		return err_oom(e);
	root = yaml_read(&s->policy.arena, src, d);
	if (root) {
		policy_read(&s->policy, &f, image_keys, root, d);
		policy_add_capabilities(store, &s->policy, d);
		policy_read_fallbacks(&s->policy, image_keys, d);
		check(s, &f, by_name, d);
	}
	r = diags_outcome(d, src->label, e);
	if (r < 0)
		return r;
	s->name = f.name;
	s->summary = f.summary;
	*ret = TAKE_PTR(s);
	return 0;
}

static int add_texts(struct image_spec *s, struct text_list *to, const struct text_list *more)
{
	const char **v = arena_calloc(&s->policy.arena, to->n + more->n + 1, sizeof(v[0]));

	for (size_t i = 0; v && i < to->n; i++)
		v[i] = to->v[i];
	for (size_t i = 0; v && i < more->n; i++) {
		v[to->n + i] = arena_strdup(&s->policy.arena, more->v[i]);
		if (!v[to->n + i])
			return -ENOMEM;
	}
	if (!v)
		return -ENOMEM;
	to->v = v;
	to->n = to->cap = to->n + more->n;
	return 0;
}

/* The agent's variables override those with the same name. */
static int add_pairs(struct image_spec *s, struct pair_list *to, const struct pair_list *more)
{
	struct pair *v = arena_calloc(&s->policy.arena, to->n + more->n + 1, sizeof(v[0]));
	size_t n = to->n;

	if (!v)
		return -ENOMEM;
	if (n > 0)
		memcpy(v, to->v, n * sizeof(v[0]));
	for (size_t i = 0; i < more->n; i++) {
		size_t at = 0;

		while (at < n && !str_eq(v[at].key, more->v[i].key))
			at++;
		v[at] = (struct pair){ arena_strdup(&s->policy.arena, more->v[i].key),
				       arena_strdup(&s->policy.arena, more->v[i].value),
				       more->v[i].pos };
		if (!v[at].key || !v[at].value)
			return -ENOMEM;
		n += at == n;
	}
	*to = (struct pair_list){ v, n, to->n + more->n };
	return 0;
}

static int read_agent(struct policy_store *store, const char *ref, struct diags *d,
		      struct image_spec **ret, struct err *e)
{
	_cleanup_image_spec_ struct image_spec *s = NULL;
	_cleanup_policy_ struct policy *p = NULL;
	const struct source *src = NULL;
	int r = policy_compile(store, ref, d, &p, e);

	if (r == 0)
		r = store_find(store, STORE_IMAGES, base_image, NULL, &src, e);
	if (r == 0)
		r = read_image(store, src, true, d, &s, e);
	if (r < 0)
		return r;
	assert(s && p);
	if (add_texts(s, &s->policy.capabilities.packages, &p->capabilities.packages) < 0 ||
	    add_texts(s, &s->policy.capabilities.scripts, &p->capabilities.scripts) < 0 ||
	    add_pairs(s, &s->policy.env, &p->env) < 0)
		return err_oom(e);
	s->name = arena_strdup(&s->policy.arena, p->name);
	s->summary = p->summary ? arena_strdup(&s->policy.arena, p->summary) : NULL;
	if (!s->name || (p->summary && !s->summary))
		return err_oom(e);
	*ret = TAKE_PTR(s);
	return 0;
}

/* An image file has the key `image`; its own reader reports errors in the rest. */
static bool is_image(const struct source *src)
{
	_cleanup_arena_ struct arena arena = ARENA_INIT;
	_cleanup_diags_ struct diags scratch = { 0 };
	const struct yaml_node *root = yaml_read(&arena, src, &scratch);

	return root && root->kind == YAML_MAP && yaml_get(root, "image");
}

static int not_known(struct policy_store *store, const char *ref, struct err *e)
{
	static const char *const folders[] = { STORE_IMAGES, STORE_AGENTS };
	const char *const *known = NULL, *close = NULL;
	struct err ignored;

	for (size_t i = 0; !close && i < ARRAY_SIZE(folders); i++)
		if (store_list(store, folders[i], &known, &ignored) == 0)
			close = str_closest(ref, known);
	if (close)
		return err_set(e, -ENOENT, "no image or agent '%s'; did you mean '%s'?", ref,
			       close);
	return err_set(e, -ENOENT, "no image or agent '%s'", ref);
}

static int read_ref(struct policy_store *store, const char *ref, struct diags *d,
		    struct image_spec **ret, struct err *e)
{
	bool path = strchr(ref, '/') || str_has_suffix(ref, ".yaml");
	const struct source *src = NULL, *agent = NULL;
	struct err own = ERR_INIT;
	int k, r = path ? store_read(store, ref, &src, e)
			: store_find(store, STORE_IMAGES, ref, NULL, &src, e);

	if (path && r < 0 && r != -ENOMEM)
		return e->num = -EIO;
	if (path && r == 0)
		return is_image(src) ? read_image(store, src, false, d, ret, e)
				     : read_agent(store, ref, d, ret, e);
	if (r < 0 && r != -ENOENT)
		return err_wrap(e, "image '%s'", ref);
	k = store_find(store, STORE_AGENTS, ref, NULL, &agent, &own);
	if (k < 0 && k != -ENOENT)
		return err_set(e, k, "agent '%s': %s", ref, own.msg);
	if (k < 0)
		return r == 0 ? read_image(store, src, true, d, ret, e) : not_known(store, ref, e);
	if (r == 0)
		return err_set(
			e, -EEXIST,
			"'%s' is an image (%s) and an agent (%s): rename one, or give the path",
			ref, src->label, agent->label);
	return read_agent(store, ref, d, ret, e);
}

int image_spec_read(struct policy_store *store, const char *ref, struct diags *d,
		    struct image_spec **ret, struct err *e)
{
	_cleanup_image_spec_ struct image_spec *s = NULL;
	int r = read_ref(store, ref, d, &s, e);

	if (r < 0)
		return r;
	assert(s);
	sort_packages(&s->policy.capabilities.packages);
	if (make_digest(s) < 0)
		return err_oom(e);
	*ret = TAKE_PTR(s);
	return 0;
}
