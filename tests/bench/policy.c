/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the compiler and the matcher cost, as TAP with a bar on each figure. Medians, and the two
 * sizes of a lookup are measured in turn, so that a noisy machine hits both. --short: only what
 * misses its bar four times over fails, for CI, on machines that do other things too.
 */
#include <stdio.h>
#include <string.h>

#include "builtin.h"
#include "clock.h"
#include "policy.h"
#include "str.h"

enum {
	ROUNDS = 31,
	LOOKUPS = 20000,
	MANY = 10000,
	FEW = 100
};

static unsigned int number, failed, slack = 1;

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(v[0]), compare);
	return v[ROUNDS / 2];
}

static void report(const char *what, double value, const char *unit, double bar)
{
	bool ok = value <= bar * slack;

	failed += !ok;
	(void)printf("%s %u - %s: %.3f %s, at most %g\n", ok ? "ok" : "not ok", ++number, what,
		     value, unit, bar);
}

/* One compilation, from the text or the name of an agent to the digest; milliseconds. */
static double compile_once(const char *name, const char *text)
{
	struct policy_store store = POLICY_STORE_INIT(builtin_files, builtin_files_n, NULL);
	_cleanup_policy_ struct policy *p = NULL;
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_free_ char *json = NULL;
	char digest[POLICY_DIGEST_HEX + 1];
	struct err e = ERR_INIT;
	uint64_t start = clock_mono();
	int r = text ? policy_compile_text(&store, name, text, strlen(text), &d, &p, &e)
		     : policy_compile(&store, name, &d, &p, &e);

	if (r < 0 || policy_canonical(p, &json, digest) < 0) {
		(void)printf("Bail out! %s: %s\n", name, e.msg);
		exit(1);
	}
	policy_store_done(&store);
	return (double)(clock_mono() - start) / (double)NSEC_PER_MSEC;
}

static double compile_median(const char *name, const char *text)
{
	double v[ROUNDS];

	for (int i = 0; i < ROUNDS; i++)
		v[i] = compile_once(name, text);
	return median(v);
}

static void bench_agents(void)
{
	double worst = 0;

	for (size_t i = 0; i < builtin_files_n; i++) {
		char name[64];
		double ms;

		if (sscanf(builtin_files[i].path, "agents/%60[a-z0-9-].yaml", name) != 1)
			continue;
		ms = compile_median(name, NULL);
		(void)printf("# %s %.3f ms\n", name, ms);
		worst = MAX(worst, ms);
	}
	report("compile the largest agent", worst, "ms", 10);
}

static void bench_many_rules(void)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * 1024 * 1024);

	(void)buf_puts(&b, "agent: {name: many, type: bench}\negress:\n  domains:\n");
	for (int i = 0; i < MANY; i++)
		(void)buf_printf(&b, "    - %shost-%d.zone-%d.example.com:%d\n", i % 3 ? "" : ".",
				 i, i % 97, 1 + i % 5000);
	report("compile 10,000 rules", compile_median("many", buf_text(&b)), "ms", 100);
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

/* Nanoseconds a lookup, half of them hits, spread over all rules. */
static double lookups(const struct ruleset *s, const struct target *t)
{
	uint64_t start = clock_mono();
	unsigned int hits = 0;

	for (unsigned int i = 0; i < LOOKUPS; i++)
		hits += ruleset_check(s, &t[i]).allowed;
	if (hits < LOOKUPS / 3)
		exit(1);
	return (double)(clock_mono() - start) / LOOKUPS;
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

static void bench_lookups(void)
{
	struct ruleset *few = make_rules(FEW), *many = make_rules(MANY);
	struct target *few_targets = make_targets(FEW), *many_targets = make_targets(MANY);
	double a[ROUNDS], b[ROUNDS], fast, slow;

	for (int i = 0; i < ROUNDS; i++) {
		a[i] = lookups(few, few_targets);
		b[i] = lookups(many, many_targets);
	}
	fast = median(a);
	slow = median(b);
	(void)printf("# a lookup in 100 rules %.0f ns, in 10,000 rules %.0f ns\n", fast, slow);
	report("a lookup in 10,000 rules against one in 100", slow / fast, "times", 3);
	(void)ruleset_free(few);
	(void)ruleset_free(many);
	free(few_targets);
	free(many_targets);
}

int main(int argc, char **argv)
{
	if (argc > 1 && str_eq(argv[1], "--short"))
		slack = 4;
	bench_agents();
	bench_many_rules();
	bench_lookups();
	(void)printf("1..%u\n", number);
	return failed > 0;
}
