/* SPDX-License-Identifier: Apache-2.0 */
#include "names/rule.h"

#include <string.h>

#include "base/str.h"

int port_parse(const char *s, size_t n, uint16_t *ret, struct err *e)
{
	uint64_t port;

	if (str_to_u64(s, n, UINT16_MAX, &port) < 0 || port == 0)
		return err_set(e, -EINVAL, "the port is a number from 1 to 65535");
	*ret = (uint16_t)port;
	return 0;
}

static const char *const proto_names[] = {
	[RULE_PROTO_DEFAULT] = "default", [RULE_PROTO_ANY] = "any",
	[RULE_PROTO_TLS] = "tls",	  [RULE_PROTO_HTTP] = "http",
	[RULE_PROTO_TLS_ECH] = "tls+ech", [RULE_PROTO_TCP] = "tcp",
};

static const char private_text[] = "private";

static_assert(ARRAY_SIZE(proto_names) == RULE_PROTO_MAX, "a name for every protocol");

const char *rule_proto_name(enum rule_proto p)
{
	return proto_names[p];
}

static enum rule_proto proto_of_port(uint16_t port)
{
	switch (port) {
	case 443:
	case 8443:
		return RULE_PROTO_TLS;
	case 80:
	case 8080:
		return RULE_PROTO_HTTP;
	default:
		return RULE_PROTO_ANY;
	}
}

enum rule_proto rule_proto(const struct rule *r)
{
	return r->proto == RULE_PROTO_DEFAULT ? proto_of_port(r->port) : r->proto;
}

/* Parses PROTOCOL. */
static int parse_proto(const char *s, size_t n, struct rule *rule, struct err *e)
{
	for (enum rule_proto p = RULE_PROTO_TLS; p < RULE_PROTO_MAX; p++)
		if (strlen(proto_names[p]) == n && memcmp(proto_names[p], s, n) == 0) {
			/* Keep equal rules equal: the port's own protocol becomes DEFAULT. */
			rule->proto = p == proto_of_port(rule->port) ? RULE_PROTO_DEFAULT : p;
			return 0;
		}
	return err_set(e, -EINVAL, "after ':PORT/' stands tls, tls+ech, http, tcp or private");
}

/* Parses PROTOCOL, private, or PROTOCOL/private. */
static int parse_suffix(const char *s, size_t n, struct rule *rule, struct err *e)
{
	size_t len = strlen(private_text);

	rule->private = n >= len && memcmp(s + n - len, private_text, len) == 0 &&
			(n == len || s[n - len - 1] == '/');
	if (!rule->private)
		return parse_proto(s, n, rule, e);
	return n == len ? 0 : parse_proto(s, n - len - 1, rule, e);
}

/* Parses PORT, or PORT/SUFFIX. */
static int parse_port(const char *s, size_t n, struct rule *rule, struct err *e)
{
	const char *slash = memchr(s, '/', n);
	size_t len = slash ? (size_t)(slash - s) : n;
	int r = port_parse(s, len, &rule->port, e);

	return r < 0 || !slash ? r : parse_suffix(slash + 1, n - len - 1, rule, e);
}

/*
 * Splits "HOST:PORT" into the length of HOST and the port (0 if there is none). Brackets belong to
 * HOST. Two colons without brackets are an error: an IPv6 address without brackets is ambiguous.
 */
static int split_port(const char *s, size_t n, size_t *ret_host, struct rule *rule, struct err *e)
{
	const char *close = n > 0 && s[0] == '[' ? memchr(s, ']', n) : NULL;
	size_t from = close ? (size_t)(close - s) + 1 : 0;
	const char *colon = memchr(s + from, ':', n - from);
	size_t host = colon ? (size_t)(colon - s) : n;

	if (n > 0 && s[0] == '[' && !close)
		return err_set(e, -EINVAL, "'[' without ']'");
	if (close && host != from)
		return err_set(e, -EINVAL, "after ']' only ':PORT' can follow");
	*ret_host = host;
	if (!colon)
		return 0;
	if (memchr(colon + 1, ':', n - host - 1))
		return err_set(e, -EINVAL, "write an IPv6 address in brackets: [2001:db8::1]:443");
	return parse_port(colon + 1, n - host - 1, rule, e);
}

/* Does this look like an attempt at an IPv4 address or network: only digits, dots and one slash? */
static bool looks_like_ipv4(const char *s, size_t n)
{
	bool digit = false;

	for (size_t i = 0; i < n; i++) {
		if (!ascii_is_digit(s[i]) && s[i] != '.' && s[i] != '/')
			return false;
		digit |= ascii_is_digit(s[i]);
	}
	return digit;
}

static int parse_bracketed(const char *s, size_t n, struct addr *ret, struct err *e)
{
	struct addr a;
	int r = addr_parse(s + 1, n - 2, &a, e);

	if (r < 0)
		return r;
	if (a.family != 6)
		return err_set(e, -EINVAL,
			       "brackets are for IPv6; write an IPv4 address without them");
	if (addr_classify(&a) == ADDR_EMBEDDED)
		return err_set(e, -EINVAL,
			       "this IPv6 address carries an IPv4 address: write that one");
	*ret = a;
	return 0;
}

static int parse_rule(const char *s, size_t n, struct rule *ret, struct err *e);

/* Writes ": did you mean '...'?" if the `n` bytes at `s` are a valid rule; otherwise "". */
static const char *suggest(const char *s, size_t n, char *out, size_t size)
{
	struct rule rule;
	struct err e;

	out[0] = '\0';
	if (parse_rule(s, n, &rule, &e) == 0)
		(void)snprintf(out, size, ": did you mean '%.*s'?", (int)n, s);
	return out;
}

/* Rejects a URL and suggests its HOST[:PORT], without scheme, user and path. */
static int refuse_url(const char *s, size_t n, const char *scheme, struct err *e)
{
	const char *host = scheme + 3, *end = host;
	char hint[RULE_TEXT_MAX + 32];

	for (; end < s + n && !strchr("/?#", *end); end++)
		if (*end == '@')
			host = end + 1;
	return err_set(e, -EINVAL, "a rule is a name, not a URL%s",
		       suggest(host, (size_t)(end - host), hint, sizeof(hint)));
}

/* Rejects URLs and '*', which people write by habit, and suggests the intended rule. */
static int check_habits(const char *s, size_t n, struct err *e)
{
	const char *scheme = memmem(s, n, "://", 3);
	char meant[RULE_TEXT_MAX + 2], hint[RULE_TEXT_MAX + 32];

	if (scheme)
		return refuse_url(s, n, scheme, e);
	if (n == 0 || s[0] != '*')
		return 0;
	if (n == 1 || s[1] == ':')
		return err_set(e, -EINVAL, "there is no rule for everything: name the hosts");
	/* "*.x", "**.x" and "*x" all mean ".x". */
	for (; n > 0 && (s[0] == '*' || s[0] == '.'); s++)
		n--;
	(void)snprintf(meant, sizeof(meant), ".%.*s", (int)MIN(n, (size_t)RULE_TEXT_MAX), s);
	return err_set(e, -EINVAL,
		       "'*' is not used; a dot in front means the name and all below it%s",
		       suggest(meant, strlen(meant), hint, sizeof(hint)));
}

static int parse_subtree(const char *s, size_t n, struct rule *ret, struct err *e)
{
	int r;

	if (n > 1 && !memchr(s + 1, '.', n - 1))
		return err_set(e, -EINVAL, "'%.*s' is a whole top-level domain: name the hosts",
			       (int)MIN(n, (size_t)64), s);
	r = name_parse_at(s, n, 1, &ret->name, e);
	/* Leave room for one more label and its dot, so that names below can exist. */
	if (r == 0 && ret->name.len > NAME_TEXT_MAX - 2)
		return err_set(e, -EINVAL, "the name is too long to have names below it");
	ret->kind = RULE_SUBTREE;
	return r;
}

static int parse_host(const char *s, size_t n, struct rule *ret, struct err *e)
{
	if (n > 0 && s[0] == '[') {
		ret->kind = RULE_ADDR;
		return parse_bracketed(s, n, &ret->addr, e);
	}
	if (looks_like_ipv4(s, n)) {
		ret->kind = RULE_ADDR;
		return addr_parse(s, n, &ret->addr, e);
	}
	if (n > 0 && s[0] == '.')
		return parse_subtree(s, n, ret, e);
	ret->kind = RULE_NAME;
	return name_parse(s, n, &ret->name, e);
}

static int parse_rule(const char *s, size_t n, struct rule *ret, struct err *e)
{
	struct rule rule = { 0 };
	size_t host = 0;
	int r = split_port(s, n, &host, &rule, e);

	if (r == 0)
		r = parse_host(s, host, &rule, e);
	if (r == 0 && rule.private && rule.kind == RULE_ADDR)
		r = err_set(e, -EINVAL,
			    "'/private' is for names: a rule for an address needs no suffix");
	if (r == 0)
		*ret = rule;
	return r;
}

int rule_parse(const char *s, size_t n, struct rule *ret, struct err *e)
{
	int r = check_habits(s, n, e);

	return r < 0 ? r : parse_rule(s, n, ret, e);
}

int target_parse(const char *s, size_t n, struct target *ret, struct err *e)
{
	struct target t = { 0 };
	struct rule rule = { 0 };
	const char *colon;
	int r = rule_parse(s, n, &rule, e);

	if (r < 0)
		return r;
	if (rule.kind == RULE_SUBTREE)
		return err_set(e, -EINVAL, "one name is asked for, not '.%s'", rule.name.text);
	t.is_addr = rule.kind == RULE_ADDR;
	if (t.is_addr && rule.addr.prefix != (rule.addr.family == 4 ? 32 : 128))
		return err_set(e, -EINVAL, "one address is asked for, not a network");
	if (rule.port == 0)
		return err_set(
			e, -EINVAL,
			"the port is missing: write it as NAME:PORT, such as github.com:443");
	colon = memrchr(s, ':', n);
	if (memchr(colon, '/', (size_t)(s + n - colon)))
		return err_set(e, -EINVAL,
			       "only rules have a suffix after the port: write NAME:PORT");
	t.port = rule.port;
	t.name = rule.name;
	t.addr = rule.addr;
	*ret = t;
	return 0;
}

const char *rule_format_host(const struct rule *r, char out[static RULE_TEXT_MAX])
{
	if (r->kind == RULE_ADDR) {
		char text[ADDR_TEXT_MAX];

		(void)snprintf(out, RULE_TEXT_MAX, "%s", addr_format(&r->addr, text));
	} else {
		(void)snprintf(out, RULE_TEXT_MAX, "%s%s", r->kind == RULE_SUBTREE ? "." : "",
			       r->name.text);
	}
	return out;
}

const char *rule_format(const struct rule *r, char out[static RULE_TEXT_MAX])
{
	size_t n = strlen(rule_format_host(r, out));

	if (r->port != 0)
		n += (size_t)snprintf(out + n, RULE_TEXT_MAX - n, ":%u", r->port);
	if (r->proto != RULE_PROTO_DEFAULT)
		n += (size_t)snprintf(out + n, RULE_TEXT_MAX - n, "/%s", proto_names[r->proto]);
	if (r->private)
		(void)snprintf(out + n, RULE_TEXT_MAX - n, "/%s", private_text);
	return out;
}

bool rule_same_place(const struct rule *a, const struct rule *b)
{
	char x[RULE_TEXT_MAX], y[RULE_TEXT_MAX];

	return a->port == b->port && str_eq(rule_format_host(a, x), rule_format_host(b, y));
}
