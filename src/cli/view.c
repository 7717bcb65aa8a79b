/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/view.h"

#include "base/clock.h"

int cli_since(const struct invocation *inv, uint64_t *ret)
{
	const char *text = cli_option(inv, "since");
	uint64_t ms;

	if (!text || clock_parse(text, ret) == 0)
		return EXIT_OK;
	if (value_duration(text, &ms) < 0 || ms > clock_wall() / NSEC_PER_MSEC)
		return cli_usage(
			inv,
			"--since '%s': expected 2026-01-31T08:00:00Z, or a time ago such as 5m",
			text);
	*ret = clock_wall() - ms * NSEC_PER_MSEC;
	return EXIT_OK;
}

void view_size(uint64_t bytes, char *out, size_t n)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB" };
	double value = (double)bytes;
	size_t i = 0;

	for (; value >= 1024 && i + 1 < ARRAY_SIZE(units); i++)
		value /= 1024;
	(void)snprintf(out, n, i == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, units[i]);
}

const char *view_age(uint64_t then, char out[static VALUE_HINT_MAX])
{
	static const struct {
		uint64_t seconds;
		char unit;
	} units[] = { { 86400, 'd' }, { 3600, 'h' }, { 60, 'm' }, { 1, 's' } };
	uint64_t now = clock_wall(), age = now > then ? (now - then) / NSEC_PER_SEC : 0;
	size_t i = 0;

	/* At least two of a unit: 90m is more precise than 1h. */
	while (i + 1 < ARRAY_SIZE(units) && age < 2 * units[i].seconds)
		i++;
	(void)snprintf(out, VALUE_HINT_MAX, "%llu%c", (unsigned long long)(age / units[i].seconds),
		       units[i].unit);
	return out;
}

const char *view_cpus(uint64_t thousandths, char out[static VALUE_HINT_MAX])
{
	(void)snprintf(out, VALUE_HINT_MAX, "%g", (double)thousandths / 1000);
	return out;
}

void view_end(const struct spec *spec, const struct end *end, char *out, size_t n)
{
	static const char *const plain[END_REASONS] = {
		[END_KILLED] = "it was killed",
		[END_CLIENT] = "its command ended, or its client",
		[END_GUEST] = "its first process ended",
		[END_PROTOCOL] = "its first process broke the protocol",
		[END_KEEPER] = "its keeper failed",
		[END_WARDEN] = "its keeper was killed",
	};
	char limit[VALUE_HINT_MAX];

	if (end->reason == END_TTL && end->time < spec->created + spec->limits.ttl * NSEC_PER_MSEC)
		(void)snprintf(out, n, "its deadline was reached");
	else if (end->reason == END_TTL)
		(void)snprintf(out, n, "ttl of %s reached",
			       value_format_duration(spec->limits.ttl, limit));
	else if (end->reason == END_IDLE)
		(void)snprintf(out, n, "idle for %s",
			       value_format_duration(spec->limits.idle, limit));
	else if (end->reason == END_GUEST && end->oom_kills > 0)
		(void)snprintf(out, n, "memory limit of %s reached",
			       value_format_size(spec->limits.memory, limit));
	else
		(void)snprintf(out, n, "%s%s%s", plain[end->reason], end->by[0] ? " by " : "",
			       end->by);
}

void view_alternatives(const struct explanation *x)
{
	for (size_t i = 0; i < x->n_ports; i++)
		(void)printf("%s%u%s", i == 0 ? "  ports    the same host is allowed on " : ", ",
			     x->ports[i], i + 1 == x->n_ports ? "\n" : "");
	for (size_t i = 0; i < x->n_presets; i++)
		(void)printf("%s%s%s", i == 0 ? "  allowed by preset " : ", ", x->presets[i],
			     i + 1 == x->n_presets ? "\n" : "");
}
