/* SPDX-License-Identifier: Apache-2.0 */
/* Resources in use by a sandbox. Control plane and data plane report the same figures. */
#include "api/box.h"
#include "base/clock.h"
#include "engine/cgroup.h"
#include "engine/engine.h"

uint64_t box_cpus(const struct box *b)
{
	return MAX((b->spec.limits.cpus + 999) / 1000, UINT64_C(1));
}

/* In percent of one CPU, since the last call, or since the start. */
static double cpu_percent(struct box *b, uint64_t cpu_us)
{
	uint64_t now = clock_wall();
	uint64_t since = b->sampled ? b->sampled : b->spec.created;
	double used = (double)(cpu_us - MIN(b->cpu_us, cpu_us)) * 1000.0;
	double percent = now > since ? used * 100.0 / (double)(now - since) : 0.0;

	b->sampled = now;
	b->cpu_us = cpu_us;
	return percent;
}

/* Limit of the measured control group: it has room for the hypervisor too. */
static uint64_t memory_limit(const struct spec *spec)
{
	const struct engine *engine = NULL;
	struct err ignored = ERR_INIT;

	return engine_of(spec, &engine, &ignored) < 0 ? spec->limits.memory
						      : engine->limits(spec).memory;
}

json_t *box_metric(struct box *b)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	struct sandbox_disk disk = { .total = b->spec.limits.disk };
	struct cgroup_usage u = { 0 };
	char group[STATE_GROUP_MAX], when[CLOCK_RFC3339_MAX];
	uint64_t now = clock_wall();
	double cpu;

	cgroup_open(state_group(&b->api->root, b->sandbox.id, group), &g);
	cgroup_usage(&g, &u);
	(void)sandbox_disk(b->sandbox.dir, &b->spec, &disk);
	cpu = cpu_percent(b, u.cpu_us);
	return JSON_OBJECT({ "timestamp", json_string(clock_format(now, when)) },
			   { "timestampUnix", json_number(now / NSEC_PER_SEC) },
			   { "cpuCount", json_number(box_cpus(b)) },
			   { "cpuUsedPct", json_real(cpu) }, { "memUsed", json_number(u.memory) },
			   { "memTotal", json_number(memory_limit(&b->spec)) },
			   { "memCache", json_number(u.memory_cache) },
			   { "diskUsed", json_number(disk.used) },
			   { "diskTotal", json_number(disk.total) });
}
