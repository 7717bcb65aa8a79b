/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "names/rule.h"

static struct rule parse(const char *s)
{
	char *copy = unit_copy(s, strlen(s));
	struct err e = ERR_INIT;
	struct rule r;

	if (rule_parse(copy, strlen(s), &r, &e) < 0)
		fail_msg("'%s': %s", s, e.msg);
	free(copy);
	return r;
}

static void assert_rule(const char *s, enum rule_kind kind, const char *host, unsigned int port)
{
	struct rule r = parse(s);
	char text[RULE_TEXT_MAX];

	assert_int_equal(r.kind, kind);
	assert_string_equal(rule_format_host(&r, text), host);
	assert_int_equal(r.port, port);
}

TEST(reads_every_kind)
{
	assert_rule("github.com", RULE_NAME, "github.com", 0);
	assert_rule("GitHub.com:22", RULE_NAME, "github.com", 22);
	assert_rule(".sentry.io", RULE_SUBTREE, ".sentry.io", 0);
	assert_rule(".sentry.io:65535", RULE_SUBTREE, ".sentry.io", 65535);
	assert_rule("192.0.2.7", RULE_ADDR, "192.0.2.7", 0);
	assert_rule("10.1.0.0/16:5432", RULE_ADDR, "10.1.0.0/16", 5432);
	assert_rule("[2001:db8::1]", RULE_ADDR, "[2001:db8::1]", 0);
	assert_rule("[2001:db8::1]:443", RULE_ADDR, "[2001:db8::1]", 443);
	assert_rule("[fd00::/8]:443", RULE_ADDR, "[fd00::/8]", 443);
}

TEST(refuses_with_a_reason)
{
	static const struct unit_row rows[] = {
		{ "", "empty" },
		{ ".", "empty" },
		{ ":443", "empty" },
		{ "*", "no rule for everything" },
		{ "*:443", "no rule for everything" },
		{ "**.x.com", "did you mean '.x.com'" },
		{ "*x.com", "did you mean '.x.com'" },
		{ "*.com", "the name and all below it" },
		{ "*.x.com:22", "did you mean '.x.com:22'" },
		{ ".*x.com", "'*' at byte 2" },
		{ "*.x.com", "did you mean '.x.com'" },
		{ "https://x.com/a?b", "did you mean 'x.com'" },
		{ "http://x.com:80", "did you mean 'x.com:80'" },
		{ "https://user:pw@x.com/", "did you mean 'x.com'" },
		{ "https://", "not a URL" },
		{ ".com", "top-level domain" },
		{ "..x.com", "empty" },
		{ "x.com:", "number from 1 to 65535" },
		{ "x.com:0", "number from 1 to 65535" },
		{ "x.com:65536", "number from 1 to 65535" },
		{ "x.com:-1", "number from 1 to 65535" },
		{ "x.com:+1", "number from 1 to 65535" },
		{ "x.com:0443", "number from 1 to 65535" },
		{ "x.com:443 ", "number from 1 to 65535" },
		{ "x.com:https", "number from 1 to 65535" },
		{ "x.com:1:2", "brackets" },
		{ "::1", "brackets" },
		{ "2001:db8::1", "brackets" },
		{ "[::1", "without ']'" },
		{ "[::1]x", "only ':PORT'" },
		{ "[::1]x:3", "only ':PORT'" },
		{ "[1.2.3.4]", "without them" },
		{ "[::ffff:1.2.3.4]", "carries an IPv4" },
		{ "[::FFFF:1.2.3.4]", "carries an IPv4" },
		{ "[2002:102:304::1]", "carries an IPv4" },
		{ "[]", "not an IP address" },
		{ "1.2.3", "usual spelling" },
		{ "0177.0.0.1", "usual spelling" },
		{ "2130706433", "usual spelling" },
		{ "0x7f.1", "ends in a number" },
		{ "10.0.0.1/8", "did you mean" },
		{ "x.com/24", "'/'" },
		{ "x.com/tls", "'/'" },
		{ "x.com:443/", "stands tls" },
		{ "x.com:443/TLS", "stands tls" },
		{ "x.com:443/tls ", "stands tls" },
		{ "x.com:443/any", "stands tls" },
		{ "x.com:443/default", "stands tls" },
		{ "x.com:443/tls/tls", "stands tls" },
		{ "x.com:/tls", "number from 1 to 65535" },
		{ "x.com/private", "'/'" },
		{ "x.com:443/privat", "stands tls" },
		{ "x.com:443/xprivate", "stands tls" },
		{ "x.com:443//private", "stands tls" },
		{ "x.com:443/private/", "stands tls" },
		{ "x.com:443/private/private", "stands tls" },
		{ "x.com:443/private/tls", "stands tls" },
		{ "10.0.0.1:443/private", "is for names" },
		{ "[fd00::1]:443/tls/private", "is for names" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		char *copy = unit_copy(rows[i].given, strlen(rows[i].given));
		struct err e = ERR_INIT;
		struct rule r;

		assert_int_equal(rule_parse(copy, strlen(rows[i].given), &r, &e), -EINVAL);
		if (!strstr(e.msg, rows[i].wanted))
			fail_msg("'%s': expected '%s' in '%s'", rows[i].given, rows[i].wanted,
				 e.msg);
		free(copy);
	}
}

TEST(subtree_leaves_room_below)
{
	char s[256];
	struct err e = ERR_INIT;
	struct rule r;

	memset(s, 'b', sizeof(s));
	s[0] = s[64] = s[128] = s[192] = '.';
	assert_int_equal(rule_parse(s, 1 + 251, &r, &e), 0);
	assert_int_equal(rule_parse(s, 1 + 252, &r, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "names below it"));
}

TEST(targets_are_one_place)
{
	struct err e = ERR_INIT;
	struct target t;

	assert_int_equal(target_parse("GitHub.com:443", 14, &t, &e), 0);
	assert_false(t.is_addr);
	assert_string_equal(t.name.text, "github.com");
	assert_int_equal(t.port, 443);
	assert_int_equal(target_parse("192.0.2.7:80", 12, &t, &e), 0);
	assert_true(t.is_addr);
	assert_int_equal(target_parse("github.com", 10, &t, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "port is missing"));
	assert_int_equal(target_parse(".github.com:443", 15, &t, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "one name is asked for"));
	assert_int_equal(target_parse("10.0.0.0/8:443", 14, &t, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "not a network"));
	assert_int_equal(target_parse("github.com\0:443", 15, &t, &e), -EINVAL);
}

TEST(protocols)
{
	static const struct {
		const char *s, *text;
		enum rule_proto proto;
	} rows[] = {
		{ "x.com", "x.com", RULE_PROTO_ANY },
		{ "x.com:443", "x.com:443", RULE_PROTO_TLS },
		{ "x.com:8443/tls", "x.com:8443", RULE_PROTO_TLS },
		{ "x.com:80", "x.com:80", RULE_PROTO_HTTP },
		{ "x.com:8080/http", "x.com:8080", RULE_PROTO_HTTP },
		{ "x.com:22", "x.com:22", RULE_PROTO_ANY },
		{ ".x.com:5000/tls", ".x.com:5000/tls", RULE_PROTO_TLS },
		{ "x.com:443/http", "x.com:443/http", RULE_PROTO_HTTP },
		{ "x.com:443/tls+ech", "x.com:443/tls+ech", RULE_PROTO_TLS_ECH },
		{ "10.0.0.0/8:443/tcp", "10.0.0.0/8:443/tcp", RULE_PROTO_TCP },
		{ "[2001:db8::1]:80/tcp", "[2001:db8::1]:80/tcp", RULE_PROTO_TCP },
		{ "x.com:443/private", "x.com:443/private", RULE_PROTO_TLS },
		{ "x.com:443/tls/private", "x.com:443/private", RULE_PROTO_TLS },
		{ ".x.com:22/tcp/private", ".x.com:22/tcp/private", RULE_PROTO_TCP },
	};
	char text[RULE_TEXT_MAX];
	struct target t;
	struct err e;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct rule r = parse(rows[i].s);

		assert_string_equal(rule_format(&r, text), rows[i].text);
		assert_int_equal(rule_proto(&r), rows[i].proto);
	}
	/* A target does not select the protocol. */
	assert_int_equal(target_parse("x.com:443/tls", 13, &t, &e), -EINVAL);
	assert_int_equal(target_parse("x.com:443/tcp", 13, &t, &e), -EINVAL);
	assert_int_equal(target_parse("1.2.3.4/32:443", 14, &t, &e), 0);
}

TEST(private_rules)
{
	struct rule plain = parse("x.com:443"), open = parse("x.com:443/private"),
		    tcp = parse("x.com:443/tcp"), other = parse("x.com:80"),
		    below = parse(".x.com:443");
	char name[NAME_TEXT_MAX + 1], longest[RULE_TEXT_MAX + 64], text[RULE_TEXT_MAX];
	struct err e = ERR_INIT;
	struct target t;

	assert_false(plain.private);
	assert_true(open.private);
	assert_true(rule_same_place(&plain, &open));
	assert_true(rule_same_place(&open, &tcp));
	assert_false(rule_same_place(&plain, &other));
	assert_false(rule_same_place(&plain, &below));
	assert_int_equal(target_parse("x.com:443/private", 17, &t, &e), -EINVAL);
	/* The longest possible rule keeps all of its text. */
	memset(name, 'b', sizeof(name));
	name[63] = name[127] = name[191] = '.';
	name[253] = '\0';
	(void)snprintf(longest, sizeof(longest), "%s:65535/tls+ech/private", name);
	open = parse(longest);
	assert_string_equal(rule_format(&open, text), longest);
}
