/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated names, compared with a second implementation: see test-names.h. For every input both
 * must agree whether it is a name, which bytes would be dialled, and whether that is allowed.
 *
 * test-names-property [COUNT [SEED]]
 */
#include "test-names.h"

#include <stdio.h>

static unsigned long count = 200000;
static uint64_t seed = 20261115;

struct tally {
	unsigned long names, refused, allowed, denied;
};

static void compare(const struct ruleset *s, const char *input, size_t n, unsigned int port,
		    struct tally *tally)
{
	struct target t = { .port = (uint16_t)port };
	struct err e = ERR_INIT;
	char canonical[256];
	bool is_name = slow_name(input, n, canonical);
	struct verdict v;

	if ((name_parse(input, n, &t.name, &e) == 0) != is_name)
		fail_msg("'%.*s' (%zu bytes): the grammars disagree", (int)n, input, n);
	tally->names += is_name;
	tally->refused += !is_name;
	if (!is_name)
		return;
	/* The broker would dial t.name: byte for byte the name that the slow side matches. */
	assert_int_equal(t.name.len, strlen(canonical));
	assert_memory_equal(t.name.text, canonical, t.name.len + 1);
	v = ruleset_check(s, &t);
	if (v.allowed != slow_allowed(canonical, port))
		fail_msg("%s:%u: the matchers disagree", canonical, port);
	/* The rule given as the reason covers the name. */
	if (v.allowed)
		assert_true(slow_covers(rules[v.allow->id] + 1, canonical, port));
	if (v.deny)
		assert_true(slow_covers(rules[v.deny->id] + 1, canonical, port));
	tally->allowed += v.allowed;
	tally->denied += !v.allowed;
}

TEST(both_sides_agree)
{
	_cleanup_ruleset_ struct ruleset *s = fast_rules();
	struct tally tally = { 0 };
	uint64_t rng = seed;
	char input[304];

	for (unsigned long i = 0; i < count; i++) {
		size_t n = random_input(&rng, input);

		compare(s, input, n, random_port(&rng), &tally);
	}
	print_message(
		"# %lu inputs: %lu names (%lu allowed, %lu denied), %lu refused, 0 differences\n",
		count, tally.names, tally.allowed, tally.denied, tally.refused);
	/* A generator with only one kind of input would prove nothing. */
	assert_true(tally.allowed > count / 100 && tally.denied > count / 100 &&
		    tally.refused > count / 100);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		count = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		seed = strtoull(argv[2], NULL, 10);
	return unit_run(NULL, NULL);
}
