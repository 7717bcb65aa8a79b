/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names, addresses, rules and targets: each parsed value has one canonical form, which parses to
 * the same value and matches only itself.
 */
#include <string.h>

#include "fuzz.h"
#include "names/match.h"

static void check_name(const char *s, size_t n)
{
	struct name name, again;
	struct err e = ERR_INIT;

	if (name_parse(s, n, &name, &e) < 0) {
		assert(e.msg[0]);
		return;
	}
	assert(name.len == n && strlen(name.text) == n && !memchr(s, '\0', n));
	assert(name_parse(name.text, name.len, &again, &e) == 0 &&
	       strcmp(name.text, again.text) == 0);
}

/* A set with only this rule allows only the targets that the rule names. */
static void check_match(const struct rule *rule)
{
	struct ruleset_entry entry = { .rule = *rule };
	struct target t = { .is_addr = rule->kind == RULE_ADDR,
			    .name = rule->name,
			    .addr = rule->addr };
	struct ruleset *s = NULL;

	entry.rule.port = t.port = rule->port ? rule->port : 443;
	assert(ruleset_new(&entry, 1, &s) == 0);
	if (!t.is_addr || rule->addr.prefix == (rule->addr.family == 4 ? 32 : 128))
		assert(ruleset_check(s, &t).allowed);
	t.port ^= 1;
	assert(!ruleset_check(s, &t).allowed);
	(void)ruleset_free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *s = (const char *)data;
	char text[RULE_TEXT_MAX];
	struct rule rule, again;
	struct target t;
	struct addr a;
	struct err e = ERR_INIT;

	check_name(s, size);
	if (addr_parse(s, size, &a, &e) == 0)
		assert(addr_classify(&a) < ADDR_CLASS_MAX);
	if (target_parse(s, size, &t, &e) == 0)
		assert(t.port != 0);
	if (rule_parse(s, size, &rule, &e) < 0)
		return 0;
	rule_format_host(&rule, text);
	assert(rule_parse(text, strlen(text), &again, &e) == 0);
	again.port = rule.port;
	assert(again.kind == rule.kind && strcmp(again.name.text, rule.name.text) == 0);
	assert(memcmp(&again.addr, &rule.addr, sizeof(rule.addr)) == 0);
	check_match(&rule);
	return 0;
}
