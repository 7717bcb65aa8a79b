/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "fail.h"
#include "names/narrow.h"

static struct ruleset_entry rule(const char *text, bool deny)
{
	struct ruleset_entry entry = { .deny = deny };
	struct err e = ERR_INIT;

	assert_int_equal(rule_parse(text, strlen(text), &entry.rule, &e), 0);
	return entry;
}

static void add(struct narrow *w, const char *text)
{
	struct err e = ERR_INIT;

	assert_int_equal(narrow_add(w, text, strlen(text), &e), 0);
}

/* Whether the policy with the narrowing allows this. */
static bool allows(const struct ruleset_entry *policy, size_t n, const struct narrow *w,
		   const char *text)
{
	_cleanup_free_ struct ruleset_entry *left = NULL;
	_cleanup_ruleset_ struct ruleset *set = NULL;
	struct err e = ERR_INIT;
	struct target t;
	size_t n_left = 0;

	assert_int_equal(target_parse(text, strlen(text), &t, &e), 0);
	assert_int_equal(narrow_apply(w, policy, n, &left, &n_left), 0);
	assert_int_equal(ruleset_new(left, n_left, &set), 0);
	return ruleset_check(set, &t).allowed;
}

TEST(nothing_asked_nothing_changed)
{
	const struct ruleset_entry policy[] = { rule("a.example.com:443", false),
						rule("b.example.com", true) };
	const struct narrow none = { 0 };

	assert_true(allows(policy, 2, &none, "a.example.com:443"));
	assert_false(allows(policy, 2, &none, "b.example.com:443"));
}

TEST(only_what_is_named)
{
	const struct ruleset_entry policy[] = { rule(".example.com:443", false),
						rule("one.test.org:22", false),
						rule("bad.example.com", true),
						rule("192.0.2.0/24:80", false) };
	_cleanup_narrow_ struct narrow w = { 0 };

	add(&w, "-*");
	assert_false(allows(policy, 4, &w, "a.example.com:443"));
	add(&w, "+a.example.com");
	add(&w, "+bad.example.com");
	add(&w, "+.test.org");
	add(&w, "+192.0.2.7");
	add(&w, "+other.net");
	assert_true(allows(policy, 4, &w, "a.example.com:443"));
	assert_false(allows(policy, 4, &w, "a.example.com:80"));
	assert_false(allows(policy, 4, &w, "b.example.com:443"));
	assert_false(allows(policy, 4, &w, "bad.example.com:443"));
	assert_true(allows(policy, 4, &w, "one.test.org:22"));
	assert_false(allows(policy, 4, &w, "two.test.org:22"));
	assert_true(allows(policy, 4, &w, "192.0.2.7:80"));
	assert_false(allows(policy, 4, &w, "192.0.2.8:80"));
	assert_false(allows(policy, 4, &w, "other.net:443"));
}

TEST(what_is_denied)
{
	const struct ruleset_entry policy[] = { rule("192.0.2.0/24:80", false),
						rule("example.com:80", false) };
	_cleanup_narrow_ struct narrow w = { 0 };

	add(&w, "-192.0.2.0/28");
	assert_false(allows(policy, 2, &w, "192.0.2.3:80"));
	assert_true(allows(policy, 2, &w, "192.0.2.99:80"));
	assert_true(allows(policy, 2, &w, "example.com:80"));
}

TEST(names_end_at_a_dot)
{
	const struct ruleset_entry policy[] = { rule(".example.com:443", false) };
	_cleanup_narrow_ struct narrow w = { 0 };

	add(&w, "-*");
	add(&w, "+.xexample.com");
	add(&w, "+.com.net");
	assert_false(allows(policy, 1, &w, "a.xexample.com:443"));
	assert_false(allows(policy, 1, &w, "a.example.com:443"));
}

/* No narrowing allows more than the policy. */
TEST(never_more)
{
	static const char *const hosts[] = { "a.b.com",	  ".b.com",	"b.com",       ".com.net",
					     "x.a.b.com", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.3" };
	static const char *const targets[] = { "a.b.com:1",  "b.com:1",	   "x.a.b.com:1",
					       "y.b.com:1",  "10.1.2.3:1", "10.2.2.3:1",
					       "z.com.net:1" };
	unsigned int seed = 1;

	for (int round = 0; round < 20000; round++) {
		struct ruleset_entry policy[3];
		const struct narrow none = { 0 };
		_cleanup_narrow_ struct narrow w = { 0 };
		char text[64];

		for (size_t i = 0; i < 3; i++) {
			(void)snprintf(text, sizeof(text), "%s:1",
				       hosts[(unsigned int)rand_r(&seed) % ARRAY_SIZE(hosts)]);
			policy[i] = rule(text, rand_r(&seed) % 5 == 0);
		}
		for (int i = rand_r(&seed) % 4; i > 0; i--) {
			(void)snprintf(text, sizeof(text), "%c%s", rand_r(&seed) % 3 ? '+' : '-',
				       hosts[(unsigned int)rand_r(&seed) % ARRAY_SIZE(hosts)]);
			add(&w, rand_r(&seed) % 3 ? text : "-*");
		}
		for (size_t i = 0; i < ARRAY_SIZE(targets); i++)
			if (allows(policy, 3, &w, targets[i]))
				assert_true(allows(policy, 3, &none, targets[i]));
	}
}

TEST(what_is_no_narrowing)
{
	static const char *const wrong[] = { "",   "a.b.com",	   "+",	    "-",
					     "+*", "+a.b.com:443", "-a..b", "+a.b.com/tls",
					     "* ", "-10.0.0.1/8" };
	_cleanup_narrow_ struct narrow w = { 0 };
	struct err e;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		e = (struct err)ERR_INIT;
		assert_int_equal(narrow_add(&w, wrong[i], strlen(wrong[i]), &e), -EINVAL);
		assert_true(e.msg[0]);
	}
	for (int i = 0; i < NARROW_MAX; i++)
		add(&w, "+a.b.com");
	assert_int_equal(narrow_add(&w, "+a.b.com", 8, &e), -E2BIG);
}

static int once(const struct ruleset_entry *policy)
{
	_cleanup_narrow_ struct narrow w = { 0 };
	struct ruleset_entry *left = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;
	int r = narrow_add(&w, "-*", 2, &e);

	if (r == 0)
		r = narrow_add(&w, "+a.b.com", 8, &e);
	if (r == 0)
		r = narrow_apply(&w, policy, 1, &left, &n);
	assert_true(r < 0 || n == 1);
	free(left);
	return r;
}

/* Its texts build the same set again. */
TEST(its_texts)
{
	static const char *const texts[] = { "-*", "+a.example.com", "+.b.example.com",
					     "-c.b.example.com", "-192.0.2.0/24" };
	_cleanup_narrow_ struct narrow w = { 0 };
	char out[NARROW_TEXT_MAX];

	assert_null(narrow_text(&w, 0, out));
	for (size_t i = ARRAY_SIZE(texts); i > 0; i--)
		add(&w, texts[i - 1]);
	assert_string_equal(narrow_text(&w, 0, out), texts[0]);
	assert_string_equal(out, texts[0]);
	assert_string_equal(narrow_text(&w, 1, out), texts[2]);
	assert_string_equal(narrow_text(&w, 2, out), texts[1]);
	assert_string_equal(narrow_text(&w, 3, out), texts[4]);
	assert_string_equal(narrow_text(&w, 4, out), texts[3]);
	assert_null(narrow_text(&w, 5, out));
}

TEST(without_memory)
{
	const struct ruleset_entry policy[] = { rule(".b.com:1", false) };

	FAIL_SWEEP(once(policy));
}

/* A client can exclude private addresses, and never add them. */
TEST(private_is_the_policys)
{
	const struct ruleset_entry policy[] = { rule(".corp.example:443/private", false),
						rule("web.example:443", false) };
	_cleanup_free_ struct ruleset_entry *left = NULL;
	_cleanup_narrow_ struct narrow w = { 0 };
	struct err e = ERR_INIT;
	size_t n = 0;

	assert_int_equal(narrow_add(&w, "+web.example:443/private", 24, &e), -EINVAL);
	assert_int_equal(narrow_add(&w, "+web.example/private", 20, &e), -EINVAL);
	add(&w, "-*");
	add(&w, "+git.corp.example");
	add(&w, "+web.example");
	assert_int_equal(narrow_apply(&w, policy, 2, &left, &n), 0);
	assert_int_equal(n, 2);
	assert_string_equal(left[0].rule.name.text, "git.corp.example");
	assert_true(left[0].rule.private);
	assert_false(left[1].rule.private);
}
