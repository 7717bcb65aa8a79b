/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/store.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/str.h"
#include "fail.h"
#include "policy/yaml-tree.h"
#include "unit.h"

static const struct builtin_file files[] = {
	{ "agents/one.yaml", "one", 3 },
	{ "agents/two.yaml", "two", 3 },
	{ "presets/egress/github.yaml", "gh", 2 },
	{ "presets/egress/npm.yaml", "npm", 3 },
	{ "presets/egress/sub/deep.yaml", "no", 2 },
	{ "presets/egress2/other.yaml", "no", 2 },
};

#define STORE(dirs) POLICY_STORE_INIT(files, ARRAY_SIZE(files), dirs)

/*
 * Two search directories, "x" and "y", below the test's, with the contents of a store; and one that
 * does not exist.
 */
struct places {
	char x[UNIT_PATH_MAX + 8], y[UNIT_PATH_MAX + 8], none[UNIT_PATH_MAX + 8];
	const char *dirs[4];
};

static void make_places(const struct unit_dir *d, struct places *p)
{
	static const char *const below[] = { "x",	 "y",	      "x/agents",
					     "y/agents", "x/presets", "x/presets/egress" };

	for (size_t i = 0; i < ARRAY_SIZE(below); i++)
		assert_int_equal(mkdirat(d->fd, below[i], 0755), 0);
	(void)snprintf(p->x, sizeof(p->x), "%s/x", d->path);
	(void)snprintf(p->y, sizeof(p->y), "%s/y", d->path);
	(void)snprintf(p->none, sizeof(p->none), "%s/none", d->path);
	p->dirs[0] = p->none;
	p->dirs[1] = p->x;
	p->dirs[2] = p->y;
	p->dirs[3] = NULL;
}

TEST(names)
{
	static const char *const good[] = {
		"a",
		"0",
		"abc",
		"a-b",
		"a-",
		"0-9",
		"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffggg", /* 63 */
	};
	static const char *const bad[] = {
		"",    "-a",
		"A",   "a_b",
		"a.b", "a/b",
		"..",  "\xc3\xa4",
		"a b", "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggg",
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(store_name_valid(good[i], strlen(good[i])));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(store_name_valid(bad[i], strlen(bad[i])));
	assert_false(store_name_valid("a\0b", 3));
	assert_true(store_name_valid("a/b", 1)); /* of this many bytes */
}

static void assert_find(struct policy_store *s, const char *folder, const char *name,
			const char *label, const char *text)
{
	const struct source *src = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(store_find(s, folder, name, NULL, &src, &e), 0);
	assert_string_equal(src->label, label);
	assert_string_equal(src->text, text);
	assert_int_equal(src->len, strlen(text));
}

static void assert_no_find(struct policy_store *s, const char *folder, const char *name,
			   const char *beside, int r, const char *msg)
{
	const struct source *src = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(store_find(s, folder, name, beside, &src, &e), r);
	assert_string_equal(e.msg, msg);
	assert_int_equal(e.num, r);
	assert_null(src);
}

TEST(finds_what_is_built_in)
{
	_cleanup_store_ struct policy_store s = STORE(NULL);

	assert_find(&s, "agents", "one", "agents/one.yaml", "one");
	assert_find(&s, "agents", "two", "agents/two.yaml", "two");
	assert_find(&s, "presets/egress", "github", "presets/egress/github.yaml", "gh");
	assert_find(&s, "presets/egress2", "other", "presets/egress2/other.yaml", "no");
	assert_no_find(&s, "agents", "github", NULL, -ENOENT, "is not known");
	assert_no_find(&s, "agents", "a", NULL, -ENOENT, "is not known");
	assert_no_find(&s, "agents", "zzz", NULL, -ENOENT, "is not known");
	assert_no_find(&s, "agents", "../one", NULL, -ENOENT,
		       "is not a name: names have a-z, 0-9 and hyphens");
	assert_no_find(&s, "agents", "", NULL, -ENOENT,
		       "is not a name: names have a-z, 0-9 and hyphens");
}

TEST(an_empty_store_knows_nothing)
{
	_cleanup_store_ struct policy_store s = POLICY_STORE_INIT(NULL, 0, NULL);

	assert_no_find(&s, "agents", "one", NULL, -ENOENT, "is not known");
}

TEST_IN_DIR(finds_what_is_in_a_directory)
{
	struct unit_dir *d = *state;
	struct places p;
	_cleanup_store_ struct policy_store s = STORE(p.dirs);
	char label[PATH_MAX];

	make_places(d, &p);
	unit_dir_write(d, "y/agents/mine.yaml", "mine", 4);
	unit_dir_write(d, "x/presets/egress/local.yaml", "local", 5);
	(void)snprintf(label, sizeof(label), "%s/agents/mine.yaml", p.y);
	assert_find(&s, "agents", "mine", label, "mine");
	(void)snprintf(label, sizeof(label), "%s/presets/egress/local.yaml", p.x);
	assert_find(&s, "presets/egress", "local", label, "local");
	assert_find(&s, "agents", "one", "agents/one.yaml", "one");
	assert_no_find(&s, "agents", "local", NULL, -ENOENT, "is not known");
}

TEST_IN_DIR(one_name_means_one_thing)
{
	struct unit_dir *d = *state;
	struct places p;
	_cleanup_store_ struct policy_store s = STORE(p.dirs);
	char msg[ERR_MSG_MAX];

	make_places(d, &p);
	unit_dir_write(d, "x/agents/one.yaml", "fake", 4);
	unit_dir_write(d, "x/agents/mine.yaml", "mine", 4);
	unit_dir_write(d, "y/agents/mine.yaml", "mein", 4);
	unit_dir_write(d, "x/agents/two.yaml", "two", 3); /* same contents */
	unit_dir_write(d, "y/agents/two.yaml", "two", 3);
	(void)snprintf(
		msg, sizeof(msg),
		"is in two places, agents/one.yaml (built in) and %s/agents/one.yaml: rename one",
		p.x);
	assert_no_find(&s, "agents", "one", NULL, -EEXIST, msg);
	(void)snprintf(msg, sizeof(msg),
		       "is in two places, %s/agents/mine.yaml and %s/agents/mine.yaml: rename one",
		       p.x, p.y);
	assert_no_find(&s, "agents", "mine", NULL, -EEXIST, msg);
	assert_find(&s, "agents", "two", "agents/two.yaml", "two");
}

TEST_IN_DIR(looks_beside_too)
{
	struct unit_dir *d = *state;
	struct places p;
	_cleanup_store_ struct policy_store s = STORE(p.dirs);
	const struct source *src = NULL;
	char child[PATH_MAX], parent[PATH_MAX], msg[ERR_MSG_MAX];
	struct err e = ERR_INIT;

	make_places(d, &p);
	unit_dir_write(d, "parent.yaml", "here", 4);
	unit_dir_write(d, "one.yaml", "other", 5);
	unit_dir_write(d, "two.yaml", "two", 3);
	(void)snprintf(child, sizeof(child), "%s/child.yaml", d->path);
	(void)snprintf(parent, sizeof(parent), "%s/parent.yaml", d->path);
	assert_int_equal(store_find(&s, "agents", "parent", child, &src, &e), 0);
	assert_string_equal(src->label, parent);
	assert_string_equal(src->text, "here");
	assert_int_equal(store_find(&s, "agents", "two", child, &src, &e), 0);
	assert_string_equal(src->label, "agents/two.yaml");
	(void)snprintf(msg, sizeof(msg),
		       "is in two places, agents/one.yaml (built in) and %s/one.yaml: rename one",
		       d->path);
	assert_no_find(&s, "agents", "one", child, -EEXIST, msg);
	assert_no_find(&s, "agents", "nobody", child, -ENOENT, "is not known");
	assert_no_find(&s, "agents", "parent", NULL, -ENOENT, "is not known");
}

/* An unreadable file is an error and is not skipped. */
TEST_IN_DIR(a_file_that_cannot_be_read_is_an_error)
{
	struct unit_dir *d = *state;
	struct places p;
	_cleanup_store_ struct policy_store s = STORE(p.dirs);
	const struct source *src = NULL;
	struct err e = ERR_INIT;

	make_places(d, &p);
	assert_int_equal(mkdirat(d->fd, "x/agents/one.yaml", 0755), 0);
	assert_int_equal(symlinkat("two.yaml", d->fd, "x/agents/two.yaml"), 0);
	assert_int_equal(store_find(&s, "agents", "one", NULL, &src, &e), -EISDIR);
	assert_int_equal(store_find(&s, "agents", "two", NULL, &src, &e), -ELOOP);
	assert_null(src);
}

TEST(long_paths)
{
	char dir[PATH_MAX + 10], beside[PATH_MAX + 10], msg[ERR_MSG_MAX];
	const char *dirs[] = { dir, NULL };
	_cleanup_store_ struct policy_store s = STORE(dirs), plain = STORE(NULL);
	const struct source *src = NULL;
	const char *const *list = NULL;
	struct err e = ERR_INIT;

	memset(dir, 'd', sizeof(dir));
	memset(beside, 'b', sizeof(beside));
	dir[PATH_MAX - 5] = '\0';
	beside[PATH_MAX + 5] = '\0';
	beside[PATH_MAX + 2] = '/';
	(void)err_set(&e, -ENAMETOOLONG, "'%s' is too long", dir);
	memcpy(msg, e.msg, sizeof(msg));
	assert_no_find(&s, "agents", "mine", NULL, -ENAMETOOLONG, msg);
	assert_int_equal(store_list(&s, "agents", &list, &e), -ENAMETOOLONG);
	assert_int_equal(store_find(&plain, "agents", "mine", beside, &src, &e), -ENAMETOOLONG);
	assert_null(list);
}

TEST_IN_DIR(reads_files_as_they_are)
{
	struct unit_dir *d = *state;
	_cleanup_store_ struct policy_store s = STORE(NULL);
	const struct source *src = NULL;
	_cleanup_free_ char *big = calloc(1, YAML_TEXT_MAX + 1);
	char path[PATH_MAX], msg[ERR_MSG_MAX];
	struct err e = ERR_INIT;

	unit_dir_write(d, "f.yaml", "a\0b", 3);
	(void)snprintf(path, sizeof(path), "%s/f.yaml", d->path);
	assert_int_equal(store_read(&s, path, &src, &e), 0);
	assert_string_equal(src->label, path);
	assert_int_equal(src->len, 3);
	assert_memory_equal(src->text, "a\0b", 4);
	unit_dir_write(d, "empty.yaml", "", 0);
	(void)snprintf(path, sizeof(path), "%s/empty.yaml", d->path);
	assert_int_equal(store_read(&s, path, &src, &e), 0);
	assert_int_equal(src->len, 0);
	assert_string_equal(src->text, "");
	assert_int_equal(store_read(&s, d->path, &src, &e), -EISDIR);
	(void)snprintf(path, sizeof(path), "%s/missing.yaml", d->path);
	(void)snprintf(msg, sizeof(msg), "cannot read '%s': No such file or directory", path);
	assert_int_equal(store_read(&s, path, &src, &e), -ENOENT);
	assert_string_equal(e.msg, msg);
	unit_dir_write(d, "big.yaml", big, YAML_TEXT_MAX + 1);
	(void)snprintf(path, sizeof(path), "%s/big.yaml", d->path);
	assert_int_equal(store_read(&s, path, &src, &e), -EFBIG);
}

static void assert_list(struct policy_store *s, const char *folder, const char *want)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);
	const char *const *list = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(store_list(s, folder, &list, &e), 0);
	for (; *list; list++)
		(void)buf_printf(&b, "%s ", *list);
	assert_string_equal(buf_text(&b), want);
}

TEST_IN_DIR(lists_are_sorted_and_without_repetition)
{
	struct unit_dir *d = *state;
	struct places p;
	_cleanup_store_ struct policy_store s = STORE(p.dirs);

	make_places(d, &p);
	unit_dir_write(d, "x/agents/zoo.yaml", "", 0);
	unit_dir_write(d, "x/agents/abc.yaml", "", 0);
	unit_dir_write(d, "y/agents/abc.yaml", "", 0);
	unit_dir_write(d, "y/agents/one.yaml", "", 0);
	unit_dir_write(d, "y/agents/on.yaml", "", 0);
	unit_dir_write(d, "y/agents/README.yaml", "", 0);
	unit_dir_write(d, "y/agents/.yaml", "", 0);
	unit_dir_write(d, "y/agents/yaml", "", 0);
	unit_dir_write(d, "y/agents/a.yml", "", 0);
	unit_dir_write(d, "y/agents/a.yaml~", "", 0);
	assert_list(&s, "agents", "abc on one two zoo ");
	assert_list(&s, "presets/egress", "github npm ");
	assert_list(&s, "presets/prompts", "");
	assert_list(&s, "agent", "");
}

TEST_IN_DIR(a_directory_that_cannot_be_listed_is_an_error)
{
	struct unit_dir *d = *state;
	struct places p;
	_cleanup_store_ struct policy_store s = STORE(p.dirs);
	const char *const *list = NULL;
	struct err e = ERR_INIT;

	make_places(d, &p);
	unit_dir_write(d, "x/presets/prompts", "a file", 6);
	assert_int_equal(store_list(&s, "presets/prompts", &list, &e), -ENOTDIR);
	assert_string_equal(e.msg, "cannot list the presets/prompts: Not a directory");
	assert_null(list);
	if (geteuid() == 0)
		return; /* root reads everything */
	assert_int_equal(fchmodat(d->fd, "x/agents", 0, 0), 0);
	assert_int_equal(store_list(&s, "agents", &list, &e), -EACCES);
	assert_int_equal(fchmodat(d->fd, "x/agents", 0755, 0), 0);
}

TEST(lists_have_a_limit)
{
	enum {
		MANY = 4097
	};
	static char paths[MANY][32];
	static struct builtin_file many[MANY];
	_cleanup_store_ struct policy_store full = POLICY_STORE_INIT(many, MANY - 1, NULL),
					    over = POLICY_STORE_INIT(many, MANY, NULL);
	const char *const *list = NULL;
	struct err e = ERR_INIT;

	for (size_t i = 0; i < MANY; i++) {
		(void)snprintf(paths[i], sizeof(paths[i]), "agents/a%04zu.yaml", i);
		many[i] = (struct builtin_file){ paths[i], "", 0 };
	}
	assert_int_equal(store_list(&full, "agents", &list, &e), 0);
	assert_string_equal(list[MANY - 2], "a4095");
	assert_null(list[MANY - 1]);
	assert_int_equal(store_list(&over, "agents", &list, &e), -E2BIG);
}

static int find_once(const struct places *p, const char *name)
{
	_cleanup_store_ struct policy_store s = STORE(p->dirs);
	const struct source *src = NULL;
	struct err e = ERR_INIT;
	int r = store_find(&s, "agents", name, NULL, &src, &e);

	assert_true(r == 0 || (r == e.num && e.msg[0]));
	assert_true((r < 0) == (src == NULL));
	if (r == 0)
		assert_string_equal(src->text, name);
	return r;
}

static int list_once(const struct places *p)
{
	_cleanup_store_ struct policy_store s = STORE(p->dirs);
	const char *const *list = NULL;
	struct err e = ERR_INIT;
	int r = store_list(&s, "agents", &list, &e);

	assert_int_equal(r, e.num);
	if (r < 0)
		return r;
	assert_string_equal(list[0], "mine");
	assert_string_equal(list[1], "one");
	assert_string_equal(list[2], "two");
	assert_null(list[3]);
	return 0;
}

TEST_IN_DIR(sweeps)
{
	struct unit_dir *d = *state;
	struct places p;

	make_places(d, &p);
	unit_dir_write(d, "y/agents/mine.yaml", "mine", 4);
	FAIL_SWEEP(find_once(&p, "one"));
	FAIL_SWEEP(find_once(&p, "mine"));
	FAIL_SWEEP(list_once(&p));
}
