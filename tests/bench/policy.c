/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the policy compiler and the matcher for tests/bench/policy, which judges:
 *
 *	bench-policy ROUNDS
 *
 * prints one line for each measurement, "NAME VALUE": compile-AGENT, compile-10000 and compile-1000
 * (rules) in milliseconds, lookup-10000 and lookup-100 in nanoseconds. All are processor time,
 * which other load affects least. Compared sizes are measured in turn.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/str.h"
#include "builtin/builtin.h"
#include "policy/policy.h"

enum {
	MAX_ROUNDS = 10000,
	LOOKUPS = 20000,
	MANY = 10000,
	SOME = 1000,
	FEW = 100
};

/* Returns the processor time of this process in nanoseconds. */
static uint64_t spent(void)
{
	struct timespec t;

	if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) < 0)
		exit(1);
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

/* Compiles once, from the text or the name of an agent to the digest; returns milliseconds. */
static double compile_once(const char *name, const char *text)
{
	struct policy_store store = POLICY_STORE_INIT(builtin_files, builtin_files_n, NULL);
	_cleanup_policy_ struct policy *p = NULL;
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_free_ char *json = NULL;
	char digest[POLICY_DIGEST_HEX + 1];
	struct err e = ERR_INIT;
	uint64_t start = spent();
	int r = text ? policy_compile_text(&store, name, text, strlen(text), &d, &p, &e)
		     : policy_compile(&store, name, &d, &p, &e);

	if (r < 0 || policy_canonical(p, &json, digest) < 0) {
		(void)fprintf(stderr, "bench-policy: %s: %s\n", name, e.msg);
		exit(1);
	}
	policy_store_done(&store);
	return (double)(spent() - start) / (double)NSEC_PER_MSEC;
}

static void bench_agents(int rounds)
{
	for (size_t i = 0; i < builtin_files_n; i++) {
		char name[64];

		if (sscanf(builtin_files[i].path, "agents/%60[a-z0-9-].yaml", name) != 1)
			continue;
		for (int k = 0; k < rounds; k++)
			(void)printf("compile-%s %.6f\n", name, compile_once(name, NULL));
	}
}

static void write_rules(struct buf *b, int n)
{
	(void)buf_puts(b, "agent: {name: many, type: bench}\negress:\n  domains:\n");
	for (int i = 0; i < n; i++)
		(void)buf_printf(b, "    - %shost-%d.zone-%d.example.com:%d\n", i % 3 ? "" : ".", i,
				 i % 97, 1 + i % 5000);
}

static void bench_many_rules(int rounds)
{
	_cleanup_buf_ struct buf many = BUF_INIT(2 * 1024 * 1024), some = BUF_INIT(256 * 1024);

	write_rules(&many, MANY);
	write_rules(&some, SOME);
	for (int i = 0; i < rounds; i++) {
		(void)printf("compile-%d %.6f\n", MANY, compile_once("many", buf_text(&many)));
		(void)printf("compile-%d %.6f\n", SOME, compile_once("many", buf_text(&some)));
	}
}

static struct ruleset *make_rules(unsigned int n)
{
	struct ruleset_entry *entries = calloc(n, sizeof(*entries));
	struct ruleset *s = NULL;
	struct err e = ERR_INIT;

	for (unsigned int i = 0; entries && i < n; i++) {
		char text[64];

		(void)snprintf(text, sizeof(text), "%shost-%u.zone-%u.example.com:443",
			       i % 3 ? "" : ".", i, i % 97);
		entries[i].id = i;
		if (rule_parse(text, strlen(text), &entries[i].rule, &e) < 0)
			exit(1);
	}
	if (!entries || ruleset_new(entries, n, &s) < 0)
		exit(1);
	free(entries);
	return s;
}

/* Returns nanoseconds for each lookup; half are hits, spread over all rules. */
static double lookups(const struct ruleset *s, const struct target *t)
{
	uint64_t start = spent();
	unsigned int hits = 0;

	for (unsigned int i = 0; i < LOOKUPS; i++)
		hits += ruleset_check(s, &t[i]).allowed;
	if (hits < LOOKUPS / 3)
		exit(1);
	return (double)(spent() - start) / LOOKUPS;
}

static struct target *make_targets(unsigned int rules)
{
	struct target *t = calloc(LOOKUPS, sizeof(*t));
	struct err e = ERR_INIT;

	for (unsigned int i = 0; t && i < LOOKUPS; i++) {
		unsigned int k = i * 7919 % rules;
		char text[96];

		(void)snprintf(text, sizeof(text), "%shost-%u.zone-%u.example.com:443",
			       i % 2 ? "www." : "", k, k % 97);
		if (i % 2 && k % 3)
			(void)snprintf(text, sizeof(text), "other-%u.example.org:443", k);
		if (target_parse(text, strlen(text), &t[i], &e) < 0)
			exit(1);
	}
	return t;
}

static void bench_lookups(int rounds)
{
	struct ruleset *few = make_rules(FEW), *many = make_rules(MANY);
	struct target *few_targets = make_targets(FEW), *many_targets = make_targets(MANY);

	for (int i = 0; i < rounds; i++) {
		(void)printf("lookup-%d %.3f\n", FEW, lookups(few, few_targets));
		(void)printf("lookup-%d %.3f\n", MANY, lookups(many, many_targets));
	}
	(void)ruleset_free(few);
	(void)ruleset_free(many);
	free(few_targets);
	free(many_targets);
}

int main(int argc, char **argv)
{
	long rounds = argc == 2 ? strtol(argv[1], NULL, 10) : 0;

	if (rounds < 1 || rounds > MAX_ROUNDS) {
		(void)fprintf(stderr, "usage: bench-policy ROUNDS\n");
		return 2;
	}
	bench_agents((int)rounds);
	bench_many_rules((int)rounds);
	bench_lookups((int)rounds);
	return 0;
}
