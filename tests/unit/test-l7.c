/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>
#include <time.h>

#include "l7/l7.h"

static void assert_path(const char *s, const char *want)
{
	char *copy = unit_copy(s, strlen(s)), path[L7_PATH_MAX + 1];
	const char *why = NULL;

	if (l7_path(copy, strlen(s), path, &why) < 0)
		fail_msg("'%s': %s", s, why);
	assert_string_equal(path, want);
	/* The canonical form is its own canonical form. */
	assert_int_equal(l7_path(want, strlen(want), path, &why), 0);
	assert_string_equal(path, want);
	free(copy);
}

static void assert_refused(const char *s, size_t n, const char *want)
{
	char *copy = unit_copy(s, n), path[L7_PATH_MAX + 1] = "kept";
	const char *why = NULL;

	if (l7_path(copy, n, path, &why) == 0)
		fail_msg("'%.*s' is allowed as '%s'", (int)n, s, path);
	if (!strstr(why, want))
		fail_msg("'%.*s': expected '%s' in '%s'", (int)n, s, want, why);
	assert_string_equal(path, "kept");
	free(copy);
}

#define REFUSE(s, why) assert_refused(s, sizeof(s) - 1, why)

TEST(one_canonical_path)
{
	assert_path("/", "/");
	assert_path("/a", "/a");
	assert_path("/a/", "/a/");
	assert_path("/%61%7e%2D%5f%2e", "/a~-_.");
	assert_path("/%2e%2E%2e", "/...");
	assert_path("/.a", "/.a");
	assert_path("/a..", "/a..");
	assert_path("/a%20b%c3%a9", "/a%20b%C3%A9");
	assert_path("/a+b%2bc", "/a+b%2Bc");
	assert_path("/v1/models:list", "/v1/models:list");
	assert_path("/@acme%2fpkg", "/@acme%2Fpkg");
	assert_path("/x%3by", "/x%3By");
	assert_path("/%253A", "/%253A");
	assert_path("/100%25", "/100%25");
	assert_path("/%25zz", "/%25zz");
	assert_path("/a*b", "/a*b");
}

TEST(refuses_a_wrong_beginning)
{
	REFUSE("", "begins with");
	REFUSE("*", "begins with");
	REFUSE("a", "begins with");
	REFUSE("http://a.com/", "begins with");
	REFUSE("%2fa", "begins with");
	REFUSE("\\a", "begins with");
}

TEST(refuses_ambiguous_segments)
{
	REFUSE("//", "empty segment");
	REFUSE("//a", "empty segment");
	REFUSE("/a//b", "empty segment");
	REFUSE("/a//", "empty segment");
	REFUSE("/%2f", "empty segment");
	REFUSE("/%2Fa", "empty segment");
	REFUSE("/a%2F/b", "empty segment");
	REFUSE("/a%2f%2fb", "empty segment");
	REFUSE("/.", "'.' or '..'");
	REFUSE("/..", "'.' or '..'");
	REFUSE("/a/./b", "'.' or '..'");
	REFUSE("/a/../b", "'.' or '..'");
	REFUSE("/a/%2e%2e/b", "'.' or '..'");
	REFUSE("/a/%2E%2e/b", "'.' or '..'");
	REFUSE("/a/.%2e", "'.' or '..'");
	REFUSE("/a/%2e/", "'.' or '..'");
	REFUSE("/a%2f..%2fb", "'.' or '..'");
	REFUSE("/a/..%2Fb", "'.' or '..'");
	REFUSE("/a%2f%2e%2e", "'.' or '..'");
}

TEST(refuses_bytes)
{
	REFUSE("/a\\b", "backslash");
	REFUSE("/a/..\\b", "backslash");
	REFUSE("/a%5cb", "encoded backslash");
	REFUSE("/a%5Cb", "encoded backslash");
	REFUSE("/a;b", "';'");
	REFUSE("/a/..;/b", "';'");
	REFUSE("/a;jsessionid=1", "';'");
	REFUSE("/a?b", "'?'");
	REFUSE("/a#b", "'?'");
	REFUSE("/a\0b", "control");
	REFUSE("/a%00", "encoded control");
	REFUSE("/a%0d%0aX:y", "encoded control");
	REFUSE("/a%7f", "encoded control");
	REFUSE("/a b", "space");
	REFUSE("/a\tb", "space");
	REFUSE("/a\r\n", "space");
	REFUSE("/a\x7f", "space");
	REFUSE("/\xc3\xa9", "not ASCII");
}

TEST(refuses_encodings)
{
	REFUSE("/%", "malformed");
	REFUSE("/%2", "malformed");
	REFUSE("/%2g", "malformed");
	REFUSE("/%g2", "malformed");
	REFUSE("/%u002f", "malformed");
	REFUSE("/%%32%65", "malformed");
	REFUSE("/% 2", "malformed");
	REFUSE("/%252e%252e", "twice");
	REFUSE("/%252E", "twice");
	REFUSE("/a%252fb", "twice");
	REFUSE("/a%255cb", "twice");
	REFUSE("/a%253bb", "twice");
	REFUSE("/a%2500", "twice");
	REFUSE("/a%25252f", "twice");
	/* Overlong "/" and ".", surrogates, Latin-1. */
	REFUSE("/%c0%af", "UTF-8");
	REFUSE("/%c0%ae%c0%ae", "UTF-8");
	REFUSE("/%e0%80%af", "UTF-8");
	REFUSE("/%f0%80%80%ae", "UTF-8");
	REFUSE("/%ed%a0%80", "UTF-8");
	REFUSE("/%e9", "UTF-8");
	/* A character must not be split by an encoded slash. */
	REFUSE("/%c3%2f%a9", "UTF-8");
}

TEST(limits_the_length)
{
	char s[L7_PATH_MAX + 2], path[L7_PATH_MAX + 1];
	const char *why = NULL;

	memset(s, 'a', sizeof(s));
	s[0] = '/';
	assert_int_equal(l7_path(s, L7_PATH_MAX, path, &why), 0);
	assert_int_equal(strlen(path), L7_PATH_MAX);
	assert_refused(s, L7_PATH_MAX + 1, "too long");
}

TEST(methods)
{
	struct err e = ERR_INIT;

	assert_int_equal(l7_method_check("GET", 3, &e), 0);
	assert_int_equal(l7_method_check("M-SEARCH", 8, &e), 0);
	assert_int_equal(l7_method_check("", 0, &e), -EINVAL);
	assert_string_equal(e.msg, "a method is empty");
	assert_int_equal(l7_method_check("Get", 3, &e), -EINVAL);
	assert_string_equal(e.msg, "a method is in upper case, such as GET");
	assert_int_equal(l7_method_check("GET ", 4, &e), -EINVAL);
	assert_string_equal(e.msg, "byte 4 is not part of a method such as GET");
	assert_int_equal(l7_method_check("-GET", 4, &e), -EINVAL);
	assert_int_equal(l7_method_check("GET\0", 4, &e), -EINVAL);
	assert_int_equal(l7_method_check("AAAAAAAAAAAAAAAAAAAAAAAAA", 25, &e), -EINVAL);
	assert_string_equal(e.msg, "a method has 25 bytes, at most 24");
}

TEST(patterns)
{
	static const char *const good[] = {
		"/",	   "/**", "/a/**/b", "/v1/model-*", "/*/*.git",
		"/@a%2F*", "/a/", "/%2a",    "/a*b*c",	    "/**/x/**"
	};
	static const struct unit_row bad[] = {
		{ "", "a path begins with '/'" },
		{ "*", "a path begins with '/'" },
		{ "**", "a path begins with '/'" },
		{ "a/b", "a path begins with '/'" },
		{ "/a//b", "a path has an empty segment" },
		{ "/a/../b", "a path has a segment '.' or '..'" },
		{ "/a?b=c", "a path ends before '?' and '#'" },
		{ "/a**", "'**' is a whole segment: write /** for everything below" },
		{ "/a/**.js", "'**' is a whole segment: write /** for everything below" },
		{ "/***", "'**' is a whole segment: write /** for everything below" },
		{ "/a b", "a path has a space or control byte" },
	};
	struct err e = ERR_INIT;
	char s[L7_PATTERN_MAX + 1];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (l7_pattern_check(good[i], strlen(good[i]), &e) < 0)
			fail_msg("'%s': %s", good[i], e.msg);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		size_t n = strlen(bad[i].given);

		assert_int_equal(l7_pattern_check(bad[i].given, n, &e), -EINVAL);
		assert_string_equal(e.msg, bad[i].wanted);
	}
	memset(s, '/', sizeof(s));
	assert_int_equal(l7_pattern_check(s, sizeof(s), &e), -EINVAL);
	assert_string_equal(e.msg, "a path has 1025 bytes, at most 1024");
}

/* A pattern, and paths: it matches all but those after "!". */
TEST(matching)
{
	static const struct unit_row rows[] = {
		{ "/", "/ !/a" },
		{ "/**", "/ /a /a/ /a/b/c" },
		{ "/*", "/a /a/ !/ !/a/b" },
		{ "/a", "/a /a/ !/ !/A !/ab !/a/b" },
		{ "/a/", "/a /a/ !/a/b" },
		{ "/a/**", "/a /a/ /a/b /a/b/c !/ab !/b/a" },
		{ "/a/*", "/a/b /a/b/ !/a !/a/ !/a/b/c" },
		{ "/a/*/c", "/a/b/c !/a/c !/a/b/b/c" },
		{ "/**/c", "/c /a/c /a/b/c /c/c !/c/a !/ac" },
		{ "/a/**/c", "/a/c /a/b/c /a/c/c /a/c/b/c !/a !/c !/a/c/b" },
		{ "/a/**/b/**/c", "/a/b/c /a/x/b/y/z/c /a/b/b/c/c !/a/c/b !/a/c !/a/b" },
		{ "/**/a/*/b", "/a/x/b /a/a/x/b /a/x/a/y/b !/a/b !/a/x/y/b" },
		{ "/**/**", "/ /a/b" },
		{ "/model-*", "/model- /model-4 !/model !/model-4/x" },
		{ "/*.git/info", "/x.git/info /.git/info !/xgit/info" },
		{ "/a*b*c", "/abc /axbxc /abbcc /abcbc !/ab !/acb !/abcb" },
		{ "/*a", "/a /aa /ba !/ab" },
		/* One unit, whatever its spelling. */
		{ "/a+b", "/a+b /a%2Bb" },
		{ "/a%2bb", "/a+b /a%2Bb" },
		{ "/%61", "/a" },
		{ "/a|b", "/a%7Cb /a|b" },
		{ "/a*b", "/a%C3%A9b /a%20b /a*b" },
		{ "/a%2Ab", "/a*b /a%2Ab !/axb" },
		{ "/a*%A9", "/a%C3%A9 !/aC3A9" },
		/* An encoded slash has two readings; both must match. */
		{ "/@acme%2f*", "/@acme%2Fpkg !/@acme/pkg !/@acme%2Fa/b !/@acme" },
		{ "/@acme/*", "/@acme/pkg !/@acme%2Fpkg" },
		{ "/*", "!/a%2Fb" },
		{ "/p/**", "/p/a%2Fb /p/a%2Fb/c !/p%2Fa" },
		{ "/p/*%2F*/x", "/p/a%2Fb/x !/p/a/x !/p/a%2Fb%2Fc/x" },
		{ "/a", "!/a%2F" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char list[256], *rest = list, *path;

		(void)snprintf(list, sizeof(list), "%s", rows[i].wanted);
		while ((path = strsep(&rest, " "))) {
			bool want = path[0] != '!';
			char canonical[L7_PATH_MAX + 1];
			const char *why = "";

			path += !want;
			if (l7_path(path, strlen(path), canonical, &why) < 0)
				fail_msg("'%s': %s", path, why);
			if (l7_pattern_match(rows[i].given, canonical) != want)
				fail_msg("'%s' and '%s': expected %d", rows[i].given, path, want);
		}
	}
}

/* Patterns and paths that take exponential time in a recursive matcher. */
TEST(matches_in_bounded_time)
{
	char pattern[L7_PATTERN_MAX + 1] = "", path[L7_PATH_MAX + 1] = "";
	clock_t begin = clock();
	size_t n = 0;

	for (n = 0; n + 6 < L7_PATTERN_MAX; n += 5)
		memcpy(pattern + n, "/**/a", 6);
	memcpy(pattern + n, "/b", 3);
	for (n = 0; n + 2 <= L7_PATH_MAX; n += 2)
		memcpy(path + n, "/a", 3);
	assert_false(l7_pattern_match(pattern, path));
	memset(pattern, 0, sizeof(pattern));
	pattern[0] = '/';
	for (n = 1; n + 3 < L7_PATTERN_MAX; n += 2)
		memcpy(pattern + n, "*a", 3);
	pattern[n] = 'b';
	memset(path + 1, 'a', L7_PATH_MAX - 1);
	assert_false(l7_pattern_match(pattern, path));
	memset(path + 1, 'a', L7_PATH_MAX - 1);
	assert_true(clock() - begin < CLOCKS_PER_SEC);
}

static struct name host(const char *s)
{
	struct err e = ERR_INIT;
	struct name n;

	assert_int_equal(name_parse(s, strlen(s), &n, &e), 0);
	return n;
}

/* A rule of a table: texts separated by spaces; "-" is an empty list. */
struct row {
	const char *host, *methods, *paths;
	bool deny;
};

struct rules {
	struct l7_rule v[16];
	const char *text[16][2][8];
	char copy[16][2][128];
	size_t n;
};

static struct l7_list words(const char *s, char *copy, const char **v)
{
	struct l7_list list = { .v = v };
	char *rest = copy, *word;

	strcpy(copy, s);
	while (strcmp(s, "-") != 0 && (word = strsep(&rest, " ")))
		v[list.n++] = word;
	return list;
}

static void rules_of(const struct row *rows, size_t n, struct rules *ret)
{
	struct err e = ERR_INIT;

	ret->n = n;
	for (size_t i = 0; i < n; i++) {
		struct l7_rule *r = &ret->v[i];

		*r = (struct l7_rule){ .deny = rows[i].deny, .at = "" };
		assert_int_equal(rule_parse(rows[i].host, strlen(rows[i].host), &r->host, &e), 0);
		r->methods = words(rows[i].methods, ret->copy[i][0], ret->text[i][0]);
		r->paths = words(rows[i].paths, ret->copy[i][1], ret->text[i][1]);
	}
}

static void assert_verdict(const struct rules *rules, const char *name, const char *method,
			   const char *path, bool allowed, int rule, int near)
{
	const struct name h = host(name);
	char canonical[L7_PATH_MAX + 1];
	struct l7_request q = { .host = &h, .method = method, .path = canonical };
	const char *why;
	struct l7_verdict v;

	assert_int_equal(l7_path(path, strlen(path), canonical, &why), 0);
	v = l7_check(rules->v, rules->n, &q);
	if (v.allowed != allowed || v.rule != rule || v.near != near)
		fail_msg("%s %s%s: allowed %d, rule %d, near %d", method, name, path, v.allowed,
			 v.rule, v.near);
}

TEST(verdicts)
{
	static const struct row rows[] = {
		{ "api.github.com", "GET HEAD", "/repos/acme/**", false },
		{ "api.github.com", "POST", "/repos/acme/*/issues /graphql", false },
		{ "api.github.com", "-", "/repos/acme/secret/**", true },
		{ ".deny.example", "DELETE", "-", true },
		{ ".all.example", "-", "-", false },
		{ "no.all.example", "-", "-", true },
	};
	struct rules r;

	rules_of(rows, ARRAY_SIZE(rows), &r);
	assert_verdict(&r, "api.github.com", "GET", "/repos/acme/x", true, 0, -1);
	assert_verdict(&r, "api.github.com", "POST", "/repos/acme/x/issues", true, 1, -1);
	assert_verdict(&r, "api.github.com", "POST", "/graphql/", true, 1, -1);
	/* The nearest rule: the path matches, or most of it does. */
	assert_verdict(&r, "api.github.com", "POST", "/repos/acme/x/hooks", false, -1, 0);
	assert_verdict(&r, "api.github.com", "GET", "/graphql", false, -1, 1);
	assert_verdict(&r, "api.github.com", "PUT", "/gr", false, -1, 1);
	/* Deny wins, whatever else matches; in both readings of a slash. */
	assert_verdict(&r, "api.github.com", "GET", "/repos/acme/secret", false, 2, -1);
	assert_verdict(&r, "api.github.com", "GET", "/repos/acme/secret/x", false, 2, -1);
	assert_verdict(&r, "api.github.com", "GET", "/repos/acme/secret%2Fx", false, 2, -1);
	assert_verdict(&r, "api.github.com", "GET", "/repos/acme%2Fx", false, -1, 0);
	/* In any case, because a server may read both as one; an allow rule only as written. */
	assert_verdict(&r, "api.github.com", "GET", "/repos/acme/SECRET/x", false, 2, -1);
	assert_verdict(&r, "api.github.com", "GET", "/repos/acme/Secret%2fx", false, 2, -1);
	assert_verdict(&r, "api.github.com", "GET", "/repos/acme/%53ecret", false, 2, -1);
	assert_verdict(&r, "api.github.com", "GET", "/repos/ACME/x", false, -1, 0);
	/* Only deny rules: everything else is allowed. */
	assert_verdict(&r, "a.deny.example", "GET", "/", true, -1, -1);
	assert_verdict(&r, "a.deny.example", "DELETE", "/", false, 3, -1);
	assert_verdict(&r, "deny.example", "delete", "/", false, 3, -1);
	assert_verdict(&r, "xdeny.example", "DELETE", "/", true, -1, -1);
	/* Everything, and a deny rule of everything. */
	assert_verdict(&r, "a.all.example", "PUT", "/x", true, 4, -1);
	assert_verdict(&r, "no.all.example", "GET", "/", false, 5, -1);
	/* No rule names these. */
	assert_verdict(&r, "github.com", "GET", "/", true, -1, -1);
	assert_verdict(&r, "x.api.github.com", "GET", "/", true, -1, -1);
}

TEST(names_hosts)
{
	static const struct row rows[] = { { "a.example", "-", "-", false },
					   { ".b.example", "-", "-", true } };
	struct name yes[] = { host("a.example"), host("b.example"), host("x.b.example") };
	struct name no[] = { host("x.a.example"), host("xb.example"), host("example.com") };
	struct rules r;

	rules_of(rows, ARRAY_SIZE(rows), &r);
	for (size_t i = 0; i < ARRAY_SIZE(yes); i++)
		assert_true(l7_names(r.v, r.n, &yes[i]));
	for (size_t i = 0; i < ARRAY_SIZE(no); i++)
		assert_false(l7_names(r.v, r.n, &no[i]));
	assert_false(l7_names(r.v, 0, &yes[0]));
}

TEST(formats_rules)
{
	static const struct row rows[] = {
		{ "a.example", "GET HEAD", "/a/** /b", false },
		{ "a.example", "-", "/a", false },
		{ "a.example", "GET", "-", false },
		{ "a.example", "-", "-", true },
	};
	static const char *const want[] = { "GET, HEAD /a/**, /b", "any method /a", "GET any path",
					    "everything" };
	char out[64];
	struct rules r;

	rules_of(rows, ARRAY_SIZE(rows), &r);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_string_equal(l7_rule_format(&r.v[i], out, sizeof(out)), want[i]);
	assert_string_equal(l7_rule_format(&r.v[0], out, 20), "GET, HEAD /a/**, /b");
	assert_string_equal(l7_rule_format(&r.v[0], out, 19), "GET, HEAD /a/**...");
	assert_string_equal(l7_rule_format(&r.v[0], out, 4), "...");
}
