/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "names/addr.h"

static struct addr parse(const char *s)
{
	struct err e = ERR_INIT;
	struct addr a;

	if (addr_parse(s, strlen(s), &a, &e) < 0)
		fail_msg("'%s': %s", s, e.msg);
	return a;
}

static void assert_refused(const char *s, size_t n, const char *why)
{
	char *copy = unit_copy(s, n);
	struct err e = ERR_INIT;
	struct addr a;

	assert_int_equal(addr_parse(copy, n, &a, &e), -EINVAL);
	if (!strstr(e.msg, why))
		fail_msg("'%s': expected '%s' in '%s'", s, why, e.msg);
	free(copy);
}

TEST(one_spelling)
{
	static const struct {
		const char *in, *out;
	} good[] = {
		{ "192.0.2.7", "192.0.2.7" },		{ "0.0.0.0", "0.0.0.0" },
		{ "10.1.0.0/16", "10.1.0.0/16" },	{ "1.2.3.4/32", "1.2.3.4" },
		{ "2001:db8::1", "[2001:db8::1]" },	{ "::1", "[::1]" },
		{ "2001:db8::/32", "[2001:db8::/32]" }, { "::/0", "[::/0]" },
	};
	char text[ADDR_TEXT_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct addr a = parse(good[i].in);

		assert_string_equal(addr_format(&a, text), good[i].out);
	}
}

TEST(refuses_other_spellings)
{
	static const char *const bad[] = {
		"",
		"1.2.3",
		"1.2.3.4.5",
		"01.2.3.4",
		"0177.0.0.1",
		"0x7f.0.0.1",
		"256.1.1.1",
		"1.2.3.4 ",
		" 1.2.3.4",
		"1.2.3.4/",
		"1.2.3.4/33",
		"1.2.3.4/08",
		"1.2.3.4/-1",
		"2001:DB8::1",
		"2001:db8:0:0:0:0:0:1",
		"fe80::1%eth0",
		"::1/129",
		"[::1]",
		":::",
		"1:2:3:4:5:6:7:8:9",
		"11111111111111111111111111111111111111111111111111111111111111",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_refused(bad[i], strlen(bad[i]), "");
	assert_refused("1.2.3.4\0", 8, "not an IP address");
	assert_refused("10.0.0.1/8", 10, "did you mean 10.0.0.0/8?");
	assert_refused("2001:db8::1/32", 14, "did you mean [2001:db8::/32]?");
	assert_refused("2001:DB8::1", 11, "is written 2001:db8::1");
}

TEST(knows_what_is_where)
{
	static const struct {
		const char *addr;
		enum addr_class class;
	} rows[] = {
		{ "1.1.1.1", ADDR_PUBLIC },
		{ "127.0.0.1", ADDR_LOOPBACK },
		{ "127.255.255.255", ADDR_LOOPBACK },
		{ "10.0.0.0", ADDR_PRIVATE },
		{ "11.0.0.0", ADDR_PUBLIC },
		{ "172.15.255.255", ADDR_PUBLIC },
		{ "172.16.0.1", ADDR_PRIVATE },
		{ "172.31.255.255", ADDR_PRIVATE },
		{ "172.32.0.0", ADDR_PUBLIC },
		{ "192.168.1.1", ADDR_PRIVATE },
		{ "100.64.0.1", ADDR_SHARED },
		{ "100.127.255.255", ADDR_SHARED },
		{ "100.128.0.0", ADDR_PUBLIC },
		{ "169.254.1.1", ADDR_LINK_LOCAL },
		{ "169.254.169.254", ADDR_METADATA },
		{ "168.63.129.16", ADDR_METADATA },
		{ "100.100.100.200", ADDR_METADATA },
		{ "0.0.0.0", ADDR_RESERVED },
		{ "198.18.0.1", ADDR_RESERVED },
		{ "198.19.255.255", ADDR_RESERVED },
		{ "198.20.0.0", ADDR_PUBLIC },
		{ "224.0.0.1", ADDR_MULTICAST },
		{ "239.255.255.255", ADDR_MULTICAST },
		{ "240.0.0.1", ADDR_RESERVED },
		{ "255.255.255.255", ADDR_RESERVED },
		{ "10.0.0.0/8", ADDR_PRIVATE },
		{ "::1", ADDR_LOOPBACK },
		{ "::", ADDR_EMBEDDED },
		{ "::ffff:1.2.3.4", ADDR_EMBEDDED },
		{ "64:ff9b::102:304", ADDR_EMBEDDED },
		{ "2002:102:304::", ADDR_EMBEDDED },
		{ "2001::1", ADDR_EMBEDDED },
		{ "fe80::1", ADDR_LINK_LOCAL },
		{ "fc00::1", ADDR_PRIVATE },
		{ "fd00:ec2::254", ADDR_METADATA },
		{ "ff02::1", ADDR_MULTICAST },
		{ "2606:4700::1111", ADDR_PUBLIC },
		{ "2001:db8::1", ADDR_RESERVED },
		{ "4000::1", ADDR_RESERVED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct addr a = parse(rows[i].addr);

		if (addr_classify(&a) != rows[i].class)
			fail_msg("%s is %s", rows[i].addr, addr_class_name(addr_classify(&a)));
	}
}

TEST(networks_hold_addresses)
{
	struct addr net = parse("10.1.0.0/16"), in = parse("10.1.255.255"), out = parse("10.2.0.0");
	struct addr wide = parse("10.0.0.0/8"), six = parse("::1"), odd = parse("10.1.128.0/17");

	assert_true(addr_within(&in, &net));
	assert_false(addr_within(&out, &net));
	assert_false(addr_within(&six, &net));
	assert_true(addr_within(&net, &wide));
	assert_false(addr_within(&wide, &net));
	assert_true(addr_within(&odd, &net));
	assert_true(addr_within(&net, &net));
}
