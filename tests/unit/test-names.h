/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated names, and a second implementation of the grammar and the matcher, slow and obviously
 * right: it works on the text of the rules, one after the other, with strcmp.
 */
#pragma once

#include "unit.h"

#include <string.h>

#include "base/str.h"
#include "names/match.h"

static inline uint64_t next_random(uint64_t *s)
{
	/* splitmix64 */
	uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15));

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* ---- the slow side ---- */

static const char *const rules[] = {
	"+github.com:443",
	"+github.com:22",
	"+.github.com:443",
	"-gist.github.com",
	"-.raw.github.com:443",
	"+api.raw.github.com:443",
	"+.sentry.io:443",
	"-evil.sentry.io",
	"+a.b:443",
	"+.a.b:80",
	"+pypi.org:443",
	"+files.pythonhosted.org:443",
	"-.doh.example",
	"+x.doh.example:443",
	"+.c.b.a:443",
	"-c.b.a:443",
	"+xn--bcher-kva.example:443",
	"+0x7f.1.com:443",
	"+b.com:443",
	"-.b.com:22",
	"+.b.com:22",
};

/* Is `s` a label: 1 to 63 letters, digits and hyphens, no hyphen at either end? */
static inline bool slow_label(const char *s)
{
	size_t n = strlen(s);

	if (n < 1 || n > 63 || s[0] == '-' || s[n - 1] == '-')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-", s[i]))
			return false;
	return true;
}

static inline bool slow_number(const char *s)
{
	if (s[0] == '0' && s[1] == 'x')
		return strspn(s + 2, "0123456789abcdef") == strlen(s + 2);
	return strspn(s, "0123456789") == strlen(s);
}

/* The canonical form of `n` bytes in `out`, or false. */
static inline bool slow_name(const char *s, size_t n, char out[256])
{
	char parts[256], *label = parts, *last = NULL;
	size_t labels = 0;

	if (n > 253 || memchr(s, '\0', n))
		return false;
	for (size_t i = 0; i < n; i++)
		out[i] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] - 'A' + 'a') : s[i];
	out[n] = '\0';
	strcpy(parts, out);
	while (label) {
		char *dot = strchr(label, '.');

		if (dot)
			*dot = '\0';
		if (!slow_label(label))
			return false;
		labels++;
		last = label;
		label = dot ? dot + 1 : NULL;
	}
	return labels >= 2 && !slow_number(last);
}

/* Does the text of a rule, without its sign, cover name and port? */
static inline bool slow_covers(const char *rule, const char *name, unsigned int port)
{
	char host[256];
	const char *colon = strchr(rule, ':');
	size_t n = colon ? (size_t)(colon - rule) : strlen(rule);

	memcpy(host, rule, n);
	host[n] = '\0';
	if (colon && strtoul(colon + 1, NULL, 10) != port)
		return false;
	if (host[0] != '.')
		return strcmp(host, name) == 0;
	if (strcmp(host + 1, name) == 0)
		return true;
	return strlen(name) > n && strcmp(name + strlen(name) - n, host) == 0;
}

static inline bool slow_allowed(const char *name, unsigned int port)
{
	bool allowed = false;

	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		if (!slow_covers(rules[i] + 1, name, port))
			continue;
		if (rules[i][0] == '-')
			return false;
		allowed = true;
	}
	return allowed;
}

/* ---- generated inputs ---- */

static inline size_t put(char *out, size_t n, const char *s, size_t len)
{
	len = MIN(len, 300 - n);
	memcpy(out + n, s, len);
	return n + len;
}

/* A label: mostly of the rules' own words, sometimes of nonsense. */
static inline size_t random_label(uint64_t *rng, char *out, size_t n)
{
	static const char *const words[] = { "github", "com",  "gist", "raw", "api",
					     "sentry", "io",   "evil", "a",   "b",
					     "c",      "pypi", "org",  "doh", "example",
					     "x",      "0x7f", "1",    "0x",  "xn--bcher-kva",
					     "-",      "a-",   "",     "co",  "uk",
					     "09" };
	static const char bytes[] = "abcxyz019-.ABZ_%@ /\\:\r\n\0\x7f\x80\xc3\xbc*";
	char label[80];
	size_t len = next_random(rng) % 66;

	if (next_random(rng) % 8 != 0) {
		const char *w = words[next_random(rng) % ARRAY_SIZE(words)];

		return put(out, n, w, strlen(w));
	}
	for (size_t i = 0; i < len; i++)
		label[i] = next_random(rng) % 4 ? "abcdefghij"[next_random(rng) % 10]
						: bytes[next_random(rng) % (sizeof(bytes) - 1)];
	return put(out, n, label, len);
}

/* The host of a rule, changed in one place or not at all. */
static inline size_t from_rule(uint64_t *rng, char *out)
{
	const char *rule = rules[next_random(rng) % ARRAY_SIZE(rules)] + 1;
	size_t n = put(out, 0, rule + (rule[0] == '.'), strcspn(rule, ":") - (rule[0] == '.'));

	if (next_random(rng) % 2)
		out[next_random(rng) % n] = (char)next_random(rng);
	if (next_random(rng) % 4 == 0)
		out[next_random(rng) % n] ^= 0x20;
	if (next_random(rng) % 8 == 0)
		n = put(out, n, "\0.evil.com", 10);
	return n;
}

static inline size_t random_input(uint64_t *rng, char *out)
{
	size_t labels = 1 + next_random(rng) % 5, n = 0;

	if (next_random(rng) % 4 == 0)
		return from_rule(rng, out);
	if (next_random(rng) % 64 == 0)
		labels = 60 + next_random(rng) % 80;
	for (size_t i = 0; i < labels; i++) {
		if (i > 0)
			n = put(out, n, ".", 1);
		n = random_label(rng, out, n);
	}
	return n;
}

static inline unsigned int random_port(uint64_t *rng)
{
	static const unsigned int ports[] = { 443, 443, 443, 22, 80, 8080 };

	return ports[next_random(rng) % ARRAY_SIZE(ports)];
}

/* ---- both sides ---- */

static inline struct ruleset *fast_rules(void)
{
	struct ruleset_entry entries[ARRAY_SIZE(rules)];
	struct ruleset *s = NULL;

	for (uint32_t i = 0; i < ARRAY_SIZE(rules); i++) {
		struct err e = ERR_INIT;

		entries[i] = (struct ruleset_entry){ .deny = rules[i][0] == '-', .id = i };
		assert_int_equal(
			rule_parse(rules[i] + 1, strlen(rules[i] + 1), &entries[i].rule, &e), 0);
	}
	assert_int_equal(ruleset_new(entries, ARRAY_SIZE(rules), &s), 0);
	return s;
}
