/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "fail.h"
#include "names/why.h"

static struct ruleset_entry rule(const char *text, bool deny)
{
	struct ruleset_entry entry = { .deny = deny };
	struct err e = ERR_INIT;

	assert_int_equal(rule_parse(text, strlen(text), &entry.rule, &e), 0);
	return entry;
}

static struct target target(const char *text)
{
	struct err e = ERR_INIT;
	struct target t;

	assert_int_equal(target_parse(text, strlen(text), &t, &e), 0);
	return t;
}

TEST(words_and_back)
{
	for (enum why w = WHY_ALLOWED + 1; w < WHY_MAX; w++) {
		assert_true(why_text(w)[0]);
		assert_int_equal(why_parse(why_text(w)), w);
	}
	assert_int_equal(why_parse(""), WHY_ALLOWED);
	assert_int_equal(why_parse("the sandbox ended"), WHY_ALLOWED);
}

/* The last of the three rules without which it would be allowed. */
TEST(who_took_it_away)
{
	const struct ruleset_entry v[] = { rule("web.hutch.test:443", false),
					   rule("api.hutch.test:443", false),
					   rule("bad.hutch.test", true),
					   rule("api.hutch.test:443", true),
					   rule("new.hutch.test:443", false) };
	_cleanup_narrow_ struct narrow w = { 0 };
	const struct why_rules rules = { v, 3, 2, &w };
	struct target web = target("web.hutch.test:443"), api = target("api.hutch.test:443"),
		      other = target("other.hutch.test:443"), bad = target("bad.hutch.test:443"),
		      new = target("new.hutch.test:443"), any = web;
	struct err e = ERR_INIT;

	assert_int_equal(why_denied(&rules, &other), WHY_POLICY);
	assert_int_equal(why_denied(&rules, &bad), WHY_POLICY);
	assert_int_equal(why_denied(&rules, &api), WHY_ADDED);
	assert_int_equal(narrow_add(&w, "-*", 2, &e), 0);
	assert_int_equal(why_denied(&rules, &web), WHY_NARROWED);
	assert_int_equal(why_denied(&rules, &new), WHY_NARROWED);
	assert_int_equal(why_denied(&rules, &other), WHY_POLICY);
	assert_int_equal(why_denied(&rules, &api), WHY_ADDED);
	any.port = 0;
	assert_int_equal(why_denied(&rules, &any), WHY_NARROWED);
	api.port = 0;
	assert_int_equal(why_denied(&rules, &api), WHY_ADDED);
	other.port = 0;
	assert_int_equal(why_denied(&rules, &other), WHY_POLICY);
}

TEST(a_narrow_deny)
{
	const struct ruleset_entry v[] = { rule("192.0.2.0/24:443", false) };
	_cleanup_narrow_ struct narrow w = { 0 };
	const struct why_rules rules = { v, 1, 0, &w };
	struct target t = target("192.0.2.7:443"), port = target("192.0.2.7:80");
	struct err e = ERR_INIT;

	assert_int_equal(narrow_add(&w, "-192.0.2.7", 10, &e), 0);
	assert_int_equal(why_denied(&rules, &t), WHY_NARROWED);
	assert_int_equal(why_denied(&rules, &port), WHY_POLICY);
}

TEST(without_memory)
{
	const struct ruleset_entry v[] = { rule("web.hutch.test:443", false) };
	const struct narrow w = { .only = true };
	const struct why_rules rules = { v, 1, 0, &w };
	struct target t = target("web.hutch.test:443");
	enum why said;

	fail_arm(1, ENOMEM);
	said = why_denied(&rules, &t);
	fail_off();
	assert_int_equal(said, WHY_POLICY);
}
