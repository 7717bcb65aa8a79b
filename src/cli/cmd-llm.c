/* SPDX-License-Identifier: Apache-2.0 */
/* hutch llm usage: sums up the calls of language models that the audit log has. */
#include <string.h>

#include "base/str.h"
#include "cli/cli.h"
#include "cli/egress-log.h"
#include "cli/view.h"

enum {
	ROWS_MAX = 100000,
	NAME_SHOWN = 40,
};

struct sum {
	char *name;
	uint64_t calls, denied, input, cached, cache_write, output, cost;
	uint64_t unpriced, estimated; /* calls without a price, and without reported usage */
};

struct sums {
	struct sum *v;
	size_t n, cap;
	const char *by; /* member of the records, or "sandbox" */
	uint64_t since;
};

static struct sum *sum_of(struct sums *s, const char *name)
{
	struct sum *v;

	for (size_t i = 0; i < s->n; i++)
		if (str_eq(s->v[i].name, name))
			return &s->v[i];
	if (s->n == s->cap) {
		v = s->n < ROWS_MAX ? reallocarray(s->v, s->cap ? 2 * s->cap : 16, sizeof(*v))
				    : NULL;
		if (!v)
			return NULL;
		s->v = v;
		s->cap = s->cap ? 2 * s->cap : 16;
	}
	s->v[s->n] = (struct sum){ .name = strdup(name) };
	return s->v[s->n].name ? &s->v[s->n++] : NULL;
}

static int on_event(const struct egress_event *ev, void *arg)
{
	struct sums *s = arg;
	const char *name = str_eq(s->by, "sandbox") ? ev->id : egress_text(ev->o, s->by);
	const uint64_t input = egress_number(ev->o, "tokens_in"),
		       output = egress_number(ev->o, "tokens_out"),
		       cached = egress_number(ev->o, "tokens_cached");
	const bool used = input > 0 || output > 0 || cached > 0;
	struct sum *sum;

	if (ev->kind != AUDIT_LLM || ev->time < s->since)
		return 0;
	sum = sum_of(s, name);
	if (!sum)
		return -ENOMEM;
	/* A stream that was ended with its budget has a denial and usage. */
	if (str_eq(egress_text(ev->o, "verdict"), "deny") && !used) {
		sum->denied++;
		return 0;
	}
	sum->calls++;
	sum->input += input;
	sum->cached += cached;
	sum->cache_write += egress_number(ev->o, "tokens_cache_write");
	sum->output += output;
	sum->cost += egress_number(ev->o, "microdollars");
	sum->unpriced += used && !json_object_get(ev->o, "microdollars");
	sum->estimated += egress_text(ev->o, "usage")[0] != '\0';
	return 0;
}

static int by_cost(const void *a, const void *b)
{
	const struct sum *x = a, *y = b;

	if (x->cost != y->cost)
		return x->cost > y->cost ? -1 : 1;
	if (x->output != y->output)
		return x->output > y->output ? -1 : 1;
	return strcmp(x->name, y->name);
}

static void print_row(const struct sum *s, int width)
{
	_cleanup_buf_ struct buf name = BUF_INIT(4096);

	(void)str_escape(&name, s->name, strlen(s->name));
	(void)printf("%-*s  %7llu  %6llu  %11llu  %11llu  %11llu  $%.4f", width,
		     name.len > 0 ? buf_text(&name) : "-", (unsigned long long)s->calls,
		     (unsigned long long)s->denied, (unsigned long long)s->input + s->cache_write,
		     (unsigned long long)s->cached, (unsigned long long)s->output,
		     (double)s->cost / 1e6);
	if (s->unpriced > 0)
		(void)printf("  %llu without a price", (unsigned long long)s->unpriced);
	if (s->estimated > 0)
		(void)printf("  %llu estimated", (unsigned long long)s->estimated);
	(void)putchar('\n');
}

static void print_table(const struct sums *s)
{
	struct sum all = { .name = (char *)"total" };
	int width = (int)strlen("sandbox");

	for (size_t i = 0; i < s->n; i++) {
		const struct sum *one = &s->v[i];

		width = MAX(width, (int)MIN(strlen(one->name), (size_t)NAME_SHOWN));
		all.calls += one->calls;
		all.denied += one->denied;
		all.input += one->input;
		all.cached += one->cached;
		all.cache_write += one->cache_write;
		all.output += one->output;
		all.cost += one->cost;
		all.unpriced += one->unpriced;
		all.estimated += one->estimated;
	}
	(void)printf("%-*s  %7s  %6s  %11s  %11s  %11s  %s\n", width, s->by, "calls", "denied",
		     "tokens in", "cached", "tokens out", "cost");
	for (size_t i = 0; i < s->n; i++)
		print_row(&s->v[i], width);
	if (s->n > 1)
		print_row(&all, width);
}

static json_t *row_json(const char *by, const struct sum *s)
{
	return JSON_OBJECT(
		{ by, cli_json_text(s->name) }, { "calls", json_number(s->calls) },
		{ "denied", json_number(s->denied) }, { "tokens_in", json_number(s->input) },
		{ "tokens_cached", json_number(s->cached) },
		{ "tokens_cache_write", json_number(s->cache_write) },
		{ "tokens_out", json_number(s->output) }, { "microdollars", json_number(s->cost) },
		{ "calls_without_price", json_number(s->unpriced) },
		{ "calls_estimated", json_number(s->estimated) });
}

static json_t *table_json(const struct sums *s)
{
	json_t *a = json_array();

	for (size_t i = 0; a && i < s->n; i++)
		if (json_push(a, row_json(s->by, &s->v[i])) < 0) {
			json_decref(a);
			return NULL;
		}
	return a;
}

static int read_by(const struct invocation *inv, const char **ret)
{
	static const char *const words[] = { "sandbox", "agent", "key", "model", NULL };
	const char *given = cli_option(inv, "by");

	for (size_t i = 0; words[i]; i++)
		if (!given || str_eq(given, words[i])) {
			*ret = words[i];
			return EXIT_OK;
		}
	return cli_usage(inv, "--by is one of sandbox, agent, key and model, not '%s'", given);
}

static int run_llm_usage(struct invocation *inv)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	struct sums s = { 0 };
	_cleanup_egress_reader_ struct egress_reader reader = {
		.sandbox = inv->n_args > 0 ? inv->args[0] : "", .event = on_event, .arg = &s
	};
	struct err e = ERR_INIT;
	int r;

	if (read_by(inv, &s.by) != EXIT_OK || cli_since(inv, &s.since) != EXIT_OK)
		return EXIT_USAGE;
	r = audit_open(&l, &e);
	if (r == 0)
		r = egress_read(&reader, &l, &e);
	if (r < 0) {
		r = cli_fail(inv, &e);
	} else {
		if (s.n > 0)
			qsort(s.v, s.n, sizeof(*s.v), by_cost);
		if (cli_option(inv, "json"))
			r = cli_print_json(table_json(&s), EXIT_OK);
		else
			print_table(&s);
	}
	for (size_t i = 0; i < s.n; i++)
		free(s.v[i].name);
	free(s.v);
	return r;
}

/* clang-format off */
static const struct command cmd_llm_usage = {
	.name = "usage", .args = "[ID]", .max_args = 1,
	.summary = "print calls, tokens and cost of language models",
	.help = "Sums up the calls that rules of 'llm' in policies allowed and denied, also of ended sandboxes, from the\n"
		"audit log. Tokens in are those that the provider did not read from its cache. The cost is by the prices\n"
		"at the time of the call.",
	.options = OPTIONS(
		OPT_JSON,
		{ "by", 0, "WHAT", "a row for each sandbox (default), agent, key or model" },
		{ "since", 0, "TIME", "only later calls; an RFC 3339 time, or a time ago such as 5m" }),
	.run = run_llm_usage,
};

const struct command cmd_llm = {
	.name = "llm", .args = "",
	.summary = "report the use of language models",
	.sub = COMMANDS(&cmd_llm_usage, &cmd_llm_spans),
};
/* clang-format on */
