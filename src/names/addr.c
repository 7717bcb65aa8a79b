/* SPDX-License-Identifier: Apache-2.0 */
#include "names/addr.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/str.h"

static int family_of(uint8_t family)
{
	return family == 4 ? AF_INET : AF_INET6;
}

static int parse_prefix(const char *s, size_t n, struct addr *a, struct err *e)
{
	uint64_t max = a->family == 4 ? 32 : 128, prefix;
	struct addr net;

	if (str_to_u64(s, n, max, &prefix) < 0)
		return err_set(e, -EINVAL, "the network length after '/' is a number from 0 to %d",
			       (int)max);
	net = addr_network(a, (uint8_t)prefix);
	if (memcmp(net.bytes, a->bytes, sizeof(net.bytes)) != 0) {
		char text[ADDR_TEXT_MAX];

		return err_set(e, -EINVAL,
			       "bits are set after the network length: did you mean %s?",
			       addr_format(&net, text));
	}
	a->prefix = (uint8_t)prefix;
	return 0;
}

int addr_parse(const char *s, size_t n, struct addr *ret, struct err *e)
{
	char text[INET6_ADDRSTRLEN], back[INET6_ADDRSTRLEN];
	const char *slash = memchr(s, '/', n);
	size_t len = slash ? (size_t)(slash - s) : n;
	struct addr a = { 0 };

	if (len == 0 || len >= sizeof(text) || memchr(s, '\0', len))
		return err_set(e, -EINVAL, "not an IP address");
	memcpy(text, s, len);
	text[len] = '\0';
	a.family = memchr(s, ':', len) ? 6 : 4;
	a.prefix = a.family == 4 ? 32 : 128;
	if (inet_pton(family_of(a.family), text, a.bytes) != 1)
		return err_set(e, -EINVAL, "'%s' is not an IPv%d address in its usual spelling",
			       text, a.family);
	/* inet_pton() accepts several spellings of an IPv6 address; accept only inet_ntop()'s. */
	(void)inet_ntop(family_of(a.family), a.bytes, back, sizeof(back));
	if (!str_eq(text, back) && addr_classify(&a) == ADDR_EMBEDDED)
		return err_set(e, -EINVAL, "'%s' carries an IPv4 address: write that one", text);
	if (!str_eq(text, back))
		return err_set(e, -EINVAL, "'%s' is written %s", text, back);
	if (slash) {
		int r = parse_prefix(slash + 1, n - len - 1, &a, e);

		if (r < 0)
			return r;
	}
	*ret = a;
	return 0;
}

const char *addr_format(const struct addr *a, char out[static ADDR_TEXT_MAX])
{
	char text[INET6_ADDRSTRLEN];
	bool whole = a->prefix == (a->family == 4 ? 32 : 128);
	char len[8];

	(void)inet_ntop(family_of(a->family), a->bytes, text, sizeof(text));
	(void)snprintf(len, sizeof(len), "/%d", a->prefix);
	(void)snprintf(out, ADDR_TEXT_MAX, "%s%s%s%s", a->family == 6 ? "[" : "", text,
		       whole ? "" : len, a->family == 6 ? "]" : "");
	return out;
}

/* The first match wins, so exceptions come before the ranges that contain them. */
/* clang-format off */
static const struct {
	const char *net;
	enum addr_class class;
} classes[] = {
	{ "169.254.169.254", ADDR_METADATA },
	{ "169.254.170.2", ADDR_METADATA },	/* AWS ECS task credentials */
	{ "100.100.100.200", ADDR_METADATA },	/* Alibaba Cloud */
	{ "168.63.129.16", ADDR_METADATA },	/* Azure's wire server, in a public range */
	{ "192.0.0.192", ADDR_METADATA },	/* Oracle Cloud */
	{ "fd00:ec2::254", ADDR_METADATA },
	{ "fd20:ce::254", ADDR_METADATA },	/* Google Cloud */
	{ "127.0.0.0/8", ADDR_LOOPBACK },
	{ "10.0.0.0/8", ADDR_PRIVATE },
	{ "172.16.0.0/12", ADDR_PRIVATE },
	{ "192.168.0.0/16", ADDR_PRIVATE },
	{ "100.64.0.0/10", ADDR_SHARED },
	{ "169.254.0.0/16", ADDR_LINK_LOCAL },
	{ "0.0.0.0/8", ADDR_RESERVED },
	{ "192.0.0.0/24", ADDR_RESERVED },
	{ "192.0.2.0/24", ADDR_RESERVED },
	{ "192.88.99.0/24", ADDR_RESERVED },
	{ "198.18.0.0/15", ADDR_RESERVED },
	{ "198.51.100.0/24", ADDR_RESERVED },
	{ "203.0.113.0/24", ADDR_RESERVED },
	{ "224.0.0.0/4", ADDR_MULTICAST },
	{ "240.0.0.0/4", ADDR_RESERVED },
	{ "::1", ADDR_LOOPBACK },
	{ "::ffff:0.0.0.0/96", ADDR_EMBEDDED },
	{ "::/96", ADDR_EMBEDDED },		/* "IPv4-compatible", and the unspecified address */
	{ "64:ff9b::/96", ADDR_EMBEDDED },	/* NAT64 */
	{ "64:ff9b:1::/48", ADDR_EMBEDDED },
	{ "2001::/32", ADDR_EMBEDDED },		/* Teredo */
	{ "2002::/16", ADDR_EMBEDDED },		/* 6to4 */
	{ "fe80::/10", ADDR_LINK_LOCAL },
	{ "fec0::/10", ADDR_PRIVATE },
	{ "fc00::/7", ADDR_PRIVATE },
	{ "ff00::/8", ADDR_MULTICAST },
	{ "2001:2::/48", ADDR_RESERVED },
	{ "2001:10::/28", ADDR_RESERVED },
	{ "2001:20::/28", ADDR_RESERVED },
	{ "2001:db8::/32", ADDR_RESERVED },
	{ "3fff::/20", ADDR_RESERVED },
	{ "2000::/3", ADDR_PUBLIC },		/* all allocated IPv6; the rest is reserved */
};
/* clang-format on */

static struct addr row(size_t i)
{
	static struct addr nets[ARRAY_SIZE(classes)]; /* cache: the broker calls this often */
	struct err e;

	if (nets[i].family == 0 &&
	    addr_parse(classes[i].net, strlen(classes[i].net), &nets[i], &e) < 0)
		abort(); /* a typo in the table; a unit test parses every row */
	return nets[i];
}

enum addr_class addr_classify(const struct addr *a)
{
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		struct addr net = row(i);

		/* A network that overlaps a special range gets its class. */
		if (addr_within(a, &net) ||
		    (classes[i].class != ADDR_PUBLIC && addr_within(&net, a)))
			return classes[i].class;
	}
	return a->family == 4 ? ADDR_PUBLIC : ADDR_RESERVED;
}

bool addr_class_row(size_t i, struct addr *ret, enum addr_class *ret_class)
{
	if (i >= ARRAY_SIZE(classes))
		return false;
	*ret = row(i);
	*ret_class = classes[i].class;
	return true;
}

DEFINE_NAMES(addr_class_name, enum addr_class, ADDR_CLASS_MAX, "unknown", [ADDR_PUBLIC] = "public",
	     [ADDR_LOOPBACK] = "loopback", [ADDR_PRIVATE] = "private",
	     [ADDR_SHARED] = "shared (carrier-grade NAT)", [ADDR_LINK_LOCAL] = "link-local",
	     [ADDR_METADATA] = "cloud metadata", [ADDR_MULTICAST] = "multicast",
	     [ADDR_RESERVED] = "reserved", [ADDR_EMBEDDED] = "IPv4 embedded in IPv6");

struct addr addr_network(const struct addr *a, uint8_t prefix)
{
	struct addr net = *a;

	for (unsigned int i = 0; i < sizeof(net.bytes); i++) {
		unsigned int keep = prefix > i * 8 ? prefix - i * 8 : 0;

		if (keep < 8)
			net.bytes[i] &= (uint8_t)(0xff00U >> keep);
	}
	net.prefix = prefix;
	return net;
}

bool addr_within(const struct addr *a, const struct addr *net)
{
	struct addr cut;

	if (a->family != net->family || a->prefix < net->prefix)
		return false;
	cut = addr_network(a, net->prefix);
	return memcmp(cut.bytes, net->bytes, sizeof(cut.bytes)) == 0;
}
