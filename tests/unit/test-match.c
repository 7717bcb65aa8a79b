/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "fail.h"
#include "names/match.h"

/* "+github.com:443" allows, "-.x.com" denies; ids count from 0. */
static int make(const char *const *rules, struct ruleset **ret)
{
	struct ruleset_entry entries[32];
	size_t n = 0;

	for (; rules[n]; n++) {
		struct err e = ERR_INIT;

		entries[n] =
			(struct ruleset_entry){ .deny = rules[n][0] == '-', .id = (uint32_t)n };
		if (rule_parse(rules[n] + 1, strlen(rules[n] + 1), &entries[n].rule, &e) < 0)
			fail_msg("'%s': %s", rules[n], e.msg);
	}
	return ruleset_new(entries, n, ret);
}

static struct verdict check(const struct ruleset *s, const char *text)
{
	struct err e = ERR_INIT;
	struct target t;

	if (target_parse(text, strlen(text), &t, &e) < 0)
		fail_msg("'%s': %s", text, e.msg);
	return ruleset_check(s, &t);
}

#define RULES(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void assert_allowed(const struct ruleset *s, const char *text, uint32_t id)
{
	struct verdict v = check(s, text);

	if (!v.allowed)
		fail_msg("%s is denied", text);
	assert_null(v.deny);
	assert_int_equal(v.allow->id, id);
}

static void assert_denied(const struct ruleset *s, const char *text)
{
	if (check(s, text).allowed)
		fail_msg("%s is allowed", text);
}

TEST(nothing_is_allowed_by_default)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;
	struct verdict v;

	assert_int_equal(ruleset_new(NULL, 0, &s), 0);
	v = check(s, "github.com:443");
	assert_false(v.allowed);
	assert_null(v.allow);
	assert_null(v.deny);
	assert_denied(s, "1.2.3.4:443");
}

TEST(names_match_at_labels)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;

	assert_int_equal(make(RULES("+github.com:443", "+.sentry.io:443", "+github.com:22"), &s),
			 0);
	assert_allowed(s, "github.com:443", 0);
	assert_allowed(s, "GITHUB.com:22", 2);
	assert_denied(s, "github.com:80");
	assert_denied(s, "api.github.com:443");
	assert_denied(s, "evil-github.com:443");
	assert_denied(s, "github.com.evil.com:443");
	assert_allowed(s, "sentry.io:443", 1);
	assert_allowed(s, "a.sentry.io:443", 1);
	assert_allowed(s, "a.b.c.sentry.io:443", 1);
	assert_denied(s, "notsentry.io:443");
	assert_denied(s, "sentry.io.evil.com:443");
	assert_denied(s, "sentry.io:444");
}

TEST(deny_wins)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;
	struct verdict v;

	assert_int_equal(make(RULES("+.x.com:443", "-bad.x.com", "+a.bad.x.com:443",
				    "-.deep.x.com:443", "+ok.deep.x.com:443", "+ok.deep.x.com:80"),
			      &s),
			 0);
	assert_allowed(s, "x.com:443", 0);
	v = check(s, "bad.x.com:443");
	assert_false(v.allowed);
	assert_int_equal(v.deny->id, 1);
	assert_int_equal(v.allow->id, 0);
	assert_allowed(s, "a.bad.x.com:443", 2); /* "bad.x.com" is only that name */
	assert_denied(s, "ok.deep.x.com:443");	 /* however specific the allow rule */
	assert_allowed(s, "ok.deep.x.com:80", 5);
	assert_denied(s, "deep.x.com:443");
}

TEST(most_specific_allow_is_named)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;

	assert_int_equal(make(RULES("+.x.com:443", "+.a.x.com:443", "+b.a.x.com:443"), &s), 0);
	assert_allowed(s, "b.a.x.com:443", 2);
	assert_allowed(s, "c.a.x.com:443", 1);
	assert_allowed(s, "c.x.com:443", 0);
}

TEST(addresses_are_not_names)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;

	assert_int_equal(make(RULES("+10.1.0.0/16:5432", "-10.1.2.0/24", "+10.1.2.3:5432",
				    "+[2001:db8::/32]:443", "+192.0.2.7:443", "+x.com:443"),
			      &s),
			 0);
	assert_allowed(s, "10.1.9.9:5432", 0);
	assert_denied(s, "10.1.9.9:443");
	assert_denied(s, "10.1.2.3:5432");
	assert_denied(s, "10.2.0.1:5432");
	assert_allowed(s, "[2001:db8::5]:443", 3);
	assert_denied(s, "[2001:db9::5]:443");
	assert_allowed(s, "192.0.2.7:443", 4);
	assert_denied(s, "192.0.2.8:443");
}

TEST(repetition_is_dropped)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;
	const struct ruleset_entry *v;
	size_t n;

	assert_int_equal(make(RULES("-z.com", "+b.com:443", "+a.com:443", "+b.com:443", "+b.com:22",
				    "-z.com", "+.b.com:443", "+1.2.3.4:1", "+1.2.3.0/24:1"),
			      &s),
			 0);
	v = ruleset_entries(s, &n);
	assert_int_equal(n, 7);
	assert_string_equal(v[0].rule.name.text, "a.com");
	assert_int_equal(v[1].rule.port, 22);
	assert_int_equal(v[2].id, 1); /* the first of the two */
	assert_int_equal(v[3].rule.kind, RULE_SUBTREE);
	assert_int_equal(v[4].rule.addr.prefix, 24);
	assert_true(v[6].deny);
	assert_int_equal(v[6].id, 0);
}

TEST(many_ports_of_one_name)
{
	struct ruleset_entry *entries = calloc(65535, sizeof(*entries));
	_cleanup_ruleset_ struct ruleset *s = NULL;
	struct rule base;
	struct err e = ERR_INIT;
	char text[32];

	assert_int_equal(rule_parse("x.com", 5, &base, &e), 0);
	for (uint32_t i = 0; i < 65535; i++) {
		entries[i] = (struct ruleset_entry){ .rule = base, .id = i };
		entries[i].rule.port = (uint16_t)(i + 1);
		if (i == 8079)
			entries[i].deny = true;
	}
	assert_int_equal(ruleset_new(entries, 65535, &s), 0);
	free(entries);
	for (unsigned int port = 1; port <= 65535; port += 257) {
		(void)snprintf(text, sizeof(text), "x.com:%u", port);
		assert_allowed(s, text, port - 1);
	}
	assert_denied(s, "x.com:8080");
}

static bool knows(const struct ruleset *s, const char *text)
{
	struct err e = ERR_INIT;
	struct name name;

	assert_int_equal(name_parse(text, strlen(text), &name, &e), 0);
	return ruleset_knows(s, &name);
}

/* A name is allowed as long as one port is. */
TEST(a_name_is_known_on_some_port)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;
	char deep[NAME_TEXT_MAX + 1];

	assert_int_equal(make(RULES("+github.com:443", "+github.com:22", "-github.com:443",
				    "+.a.io:1", "+b.a.io:2", "-.c.a.io", "-d.a.io:1", "+10.0.0.1:1",
				    "-e.com:5", "+f.com:5", "-f.com:5"),
			      &s),
			 0);
	assert_true(knows(s, "github.com") && knows(s, "a.io") && knows(s, "x.a.io"));
	assert_true(knows(s, "b.a.io"));
	assert_false(knows(s, "x.github.com") || knows(s, "c.a.io") || knows(s, "x.c.a.io"));
	assert_false(knows(s, "d.a.io") || knows(s, "e.com") || knows(s, "f.com"));
	assert_true(knows(s, "x.d.a.io"));
	/* As many labels as there can be. */
	for (size_t i = 0; i < sizeof(deep) - 1; i++)
		deep[i] = i % 2 ? 'x' : '.';
	memcpy(deep + sizeof(deep) - 6, ".a.io", 6);
	assert_true(knows(s, deep + 1));
}

TEST(has_a_limit)
{
	struct ruleset *s = NULL;
	struct ruleset_entry none = { 0 };

	assert_int_equal(ruleset_new(&none, RULESET_MAX + 1, &s), -E2BIG);
	assert_null(s);
	assert_null(ruleset_free(NULL));
}

static int make_and_free(void)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;

	return make(RULES("+a.com:443", "-b.com"), &s);
}

TEST(survives_failing_calls)
{
	FAIL_SWEEP(make_and_free());
}

TEST(the_strictest_protocol_counts)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;

	assert_int_equal(make(RULES("+x.com:22/tcp", "+x.com:22", "+x.com:22/tls", "+y.com:443/tcp",
				    "+y.com:443", "+.z.com:443/tcp", "+a.z.com:443"),
			      &s),
			 0);
	assert_int_equal(rule_proto(&check(s, "x.com:22").allow->rule), RULE_PROTO_TLS);
	assert_int_equal(rule_proto(&check(s, "y.com:443").allow->rule), RULE_PROTO_TLS);
	/* Among different hosts the most specific counts. */
	assert_int_equal(rule_proto(&check(s, "b.z.com:443").allow->rule), RULE_PROTO_TCP);
	assert_int_equal(rule_proto(&check(s, "a.z.com:443").allow->rule), RULE_PROTO_TLS);
}

/* `private` also holds beside a rule without it, but only for its own host and port. */
TEST(private_is_kept)
{
	_cleanup_ruleset_ struct ruleset *s = NULL;

	assert_int_equal(
		make(RULES("+x.com:443", "+x.com:443/private", "+x.com:80", "+y.com:22/tcp/private",
			   "+y.com:22", "+.z.com:443/private", "+a.z.com:443"),
		     &s),
		0);
	assert_true(check(s, "x.com:443").allow->rule.private);
	assert_false(check(s, "x.com:80").allow->rule.private);
	/* The strictest protocol still counts. */
	assert_true(check(s, "y.com:22").allow->rule.private);
	assert_int_equal(rule_proto(&check(s, "y.com:22").allow->rule), RULE_PROTO_ANY);
	assert_true(check(s, "b.z.com:443").allow->rule.private);
	assert_false(check(s, "a.z.com:443").allow->rule.private);
}
