/* SPDX-License-Identifier: Apache-2.0 */
/* hutch inspect */
#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "cli/cli-record.h"
#include "cli/view.h"
#include "engine/engine.h"
#include "state/life.h"

/* Everything known about one sandbox. */
struct facts {
	struct sandbox b;
	struct spec spec;
	enum state_phase phase;
	struct life life; /* while it is alive */
	bool ended;	  /* `end` is final; while running, it has the limits reached so far */
	struct end end;
	bool vm;
	struct cgroup_limits
		host; /* limits of `use`; of a VM: for all of its processes on the host */
	struct cgroup_usage use;
	bool disk_known;
	struct sandbox_disk disk;
	uint64_t commands, running, dropped; /* kept records, running ones, dropped ones */
};

static void facts_done(struct facts *f)
{
	sandbox_close(&f->b);
	spec_done(&f->spec);
}

/* ---- gathering ---- */

static void measure(const struct state_root *root, struct facts *f)
{
	_cleanup_cgroup_ struct cgroup g = CGROUP_INIT;
	char group[STATE_GROUP_MAX];

	cgroup_open(state_group(root, f->b.id, group), &g);
	cgroup_usage(&g, &f->use);
	f->end.oom_kills = f->use.oom_kills;
	f->end.pids_refused = f->use.pids_refused;
	f->end.throttled = f->use.throttled;
	end_add_met(&f->end, &f->life.met);
	f->disk_known = sandbox_disk(f->b.dir, &f->spec, &f->disk);
	f->end.disk_lost = f->life.disk_lost;
	f->end.disk_full |= f->disk.full;
	f->end.inodes_full |= f->disk.inodes_full;
}

/* A VM's control groups allow more than its policy: the hypervisor needs memory and threads too. */
static void find_limits(struct facts *f)
{
	const struct engine *engine = NULL;
	struct err ignored = ERR_INIT;

	f->host = (struct cgroup_limits){ .memory = f->spec.limits.memory,
					  .pids = f->spec.limits.pids };
	if (engine_of(&f->spec, &engine, &ignored) < 0)
		return;
	f->host = engine->limits(&f->spec);
	f->vm = engine_has(engine, ENGINE_OWN_KERNEL);
}

static int count_commands(struct facts *f, struct err *e)
{
	struct handle *list = NULL;
	size_t n = 0;
	int r = record_list(&f->b, &list, &n, &f->dropped, e);

	for (size_t i = 0; i < n; i++)
		f->running += handle_lives(&list[i]);
	f->commands = n;
	record_list_free(list, n);
	return r;
}

static int gather(const char *prefix, struct facts *f, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	struct err ignored = ERR_INIT;
	int r = cli_state_open(&root, e);

	if (r == 0)
		r = sandbox_find(&root, prefix, &f->b, e);
	if (r == 0)
		r = spec_read(f->b.dir, &f->spec, e);
	if (r < 0)
		return r;
	find_limits(f);
	f->phase = state_phase(f->b.dir);
	f->life.on_timeout = f->spec.on_timeout;
	(void)life_read(f->b.dir, &f->life, &ignored); /* missing in older sandboxes */
	r = end_read(f->b.dir, &f->end, e);
	if (r < 0 && r != -ENOENT)
		return r;
	f->ended = r == 0;
	if (f->ended) {
		f->use.memory_peak = f->end.memory_peak;
		f->use.cpu_us = f->end.cpu_us;
	} else {
		measure(&root, f);
	}
	return count_commands(f, e);
}

/* ---- for programs ---- */

static json_t *spec_as_json(const struct spec *spec)
{
	_cleanup_free_ char *text = spec_write(spec);
	struct err ignored = ERR_INIT;
	json_t *j = NULL;

	return text && json_read(text, strlen(text), &j, &ignored) == 0 ? j : NULL;
}

static json_t *usage_json(const struct facts *f)
{
	return JSON_OBJECT(
		{ "memory", json_number(f->use.memory) },
		{ "memory_cache", json_number(f->use.memory_cache) },
		{ "memory_peak", json_number(f->use.memory_peak) },
		{ "memory_limit", json_number(f->host.memory) },
		{ "pids", json_number(f->use.pids) }, { "pids_limit", json_number(f->host.pids) },
		{ "cpu_us", json_number(f->use.cpu_us) },
		{ "disk", f->disk_known ? json_number(f->disk.used) : json_null() },
		{ "disk_total", f->disk_known ? json_number(f->disk.total) : json_null() });
}

static json_t *met_json(const struct end *met)
{
	return JSON_OBJECT({ "memory", JSON_OBJECT({ "killed", json_number(met->oom_kills) }) },
			   { "pids", JSON_OBJECT({ "refused", json_number(met->pids_refused) }) },
			   { "cpu", JSON_OBJECT({ "throttled", json_number(met->throttled) }) },
			   { "disk", JSON_OBJECT({ "full", json_boolean(met->disk_full) },
						 { "inodes_full", json_boolean(met->inodes_full) },
						 { "lost", json_boolean(met->disk_lost) }) },
			   { "told_by_agent", json_boolean(met->told) });
}

/* The contents of end.json, and the reason in words. */
static json_t *end_json(const struct facts *f)
{
	char time[CLOCK_RFC3339_MAX], why[128];

	if (!f->ended)
		return json_null();
	view_end(&f->spec, &f->end, why, sizeof(why));
	return JSON_OBJECT({ "reason", json_string(end_reason_names[f->end.reason]) },
			   { "text", json_string(why) },
			   { "time", json_string(clock_format(f->end.time, time)) },
			   { "oom_kills", json_number(f->end.oom_kills) },
			   { "pids_refused", json_number(f->end.pids_refused) },
			   { "throttled", json_number(f->end.throttled) },
			   { "disk_full", json_boolean(f->end.disk_full) },
			   { "inodes_full", json_boolean(f->end.inodes_full) },
			   { "disk_lost", json_boolean(f->end.disk_lost) });
}

static bool has_deadline(const struct facts *f)
{
	return (f->phase == STATE_RUNNING || f->phase == STATE_STOPPED) && f->life.deadline > 0;
}

static json_t *deadline_json(const struct facts *f)
{
	char time[CLOCK_RFC3339_MAX];

	return has_deadline(f) ? json_string(clock_format(f->life.deadline * NSEC_PER_MSEC, time))
			       : json_null();
}

static json_t *stopped_json(const struct facts *f)
{
	return f->phase == STATE_STOPPED ? json_string(life_stop_names[f->life.stopped])
					 : json_null();
}

/* Prints the spec with the current state. */
static int print_json(const struct facts *f)
{
	_cleanup_json_ json_t *j = spec_as_json(&f->spec);
	char time[CLOCK_RFC3339_MAX];
	int r = 0;

	(void)json_object_del(j, "api"); /* it holds the token of the data plane */
	r |= json_put(j, "created", json_string(clock_format(f->spec.created, time)));
	r |= json_put(j, "state", json_string(state_phase_names[f->phase]));
	r |= json_put(j, "stopped", stopped_json(f));
	r |= json_put(j, "deadline", deadline_json(f));
	r |= json_put(j, "on_timeout", json_string(on_timeout_names[f->life.on_timeout]));
	r |= json_put(j, "usage", usage_json(f));
	r |= json_put(j, "met", met_json(&f->end));
	r |= json_put(j, "commands",
		      JSON_OBJECT({ "kept", json_number(f->commands) },
				  { "running", json_number(f->running) },
				  { "dropped", json_number(f->dropped) }));
	r |= json_put(j, "end", end_json(f));
	return cli_print_json(r == 0 ? TAKE_PTR(j) : NULL, EXIT_OK);
}

/* ---- for people ---- */

static void print_text(const char *key, const char *value, const char *digest)
{
	(void)printf("%-10s  ", key);
	cli_puts(stdout, value);
	if (digest)
		(void)printf("  (sha256 %.12s)", digest);
	(void)fputc('\n', stdout);
}

static void print_state(const struct facts *f)
{
	char age[VALUE_HINT_MAX], why[128];

	(void)printf("%-10s  %s", "state", state_phase_names[f->phase]);
	if (f->ended) {
		view_end(&f->spec, &f->end, why, sizeof(why));
		(void)printf(" %s ago: %s\n", view_age(f->end.time, age), why);
	} else {
		(void)printf(", made %s ago\n", view_age(f->spec.created, age));
	}
	if (f->phase == STATE_STOPPED)
		print_text("stopped", life_stop_texts[f->life.stopped], NULL);
}

/* Prints one limit, its usage, and events at the limit. */
static void print_limit(const char *name, const char *limit, const char *used, const char *met)
{
	if (met[0])
		(void)printf("%-10s  %-10s  %-28s  %s\n", name, limit, used, met);
	else if (used[0])
		(void)printf("%-10s  %-10s  %s\n", name, limit, used);
	else
		(void)printf("%-10s  %s\n", name, limit);
}

/* Marks numbers that only the guest's agent reported. */
static const char *told(const struct facts *f)
{
	return f->end.told ? VIEW_TOLD : "";
}

static void memory_used(const struct facts *f, char *out, size_t n)
{
	char now[32], peak[32];

	view_size(f->use.memory, now, sizeof(now));
	view_size(f->use.memory_peak, peak, sizeof(peak));
	out[0] = '\0';
	if (f->use.memory_peak > 0)
		(void)snprintf(out, n, "%s%speak %s", f->ended ? "" : now, f->ended ? "" : ", ",
			       peak);
}

static void print_memory(const struct facts *f)
{
	char limit[VALUE_HINT_MAX], used[80] = "", met[96] = "";

	if (!f->vm)
		memory_used(f, used, sizeof(used));
	if (f->end.oom_kills > 0)
		(void)snprintf(met, sizeof(met), "%llu %s killed%s",
			       (unsigned long long)f->end.oom_kills,
			       f->end.oom_kills == 1 ? "process" : "processes", told(f));
	print_limit("memory", value_format_size(f->spec.limits.memory, limit), used, met);
}

static void print_cpus(const struct facts *f)
{
	char limit[VALUE_HINT_MAX], used[32] = "", met[64] = "";

	if (f->use.cpu_us > 0)
		(void)snprintf(used, sizeof(used), "%.2f s", (double)f->use.cpu_us / 1e6);
	if (f->end.throttled > 0)
		(void)snprintf(met, sizeof(met), "held back %llu times",
			       (unsigned long long)f->end.throttled);
	print_limit("cpus", view_cpus(f->spec.limits.cpus, limit), used, met);
}

static void print_pids(const struct facts *f)
{
	char limit[32], used[32] = "", met[96] = "";

	(void)snprintf(limit, sizeof(limit), "%llu", (unsigned long long)f->spec.limits.pids);
	if (!f->ended && !f->vm)
		(void)snprintf(used, sizeof(used), "%llu", (unsigned long long)f->use.pids);
	if (f->end.pids_refused > 0)
		(void)snprintf(met, sizeof(met), "%llu %s refused%s",
			       (unsigned long long)f->end.pids_refused,
			       f->end.pids_refused == 1 ? "fork" : "forks", told(f));
	print_limit("pids", limit, used, met);
}

static void print_disk(const struct facts *f)
{
	const char *what = f->end.disk_full ? "full" : f->end.inodes_full ? "no inodes left" : "";
	char limit[VALUE_HINT_MAX], used[32] = "", met[96];

	if (f->disk_known)
		view_size(f->disk.used, used, sizeof(used));
	(void)snprintf(met, sizeof(met), "%s%s", what, what[0] ? told(f) : "");
	print_limit("disk", value_format_size(f->spec.limits.disk, limit), used, met);
	if (f->end.disk_lost)
		print_text("", LIFE_LOST_TEXT, NULL);
}

/* A VM's processes on the host. The host does not see how the VM's own kernel uses its memory. */
static void print_vm(const struct facts *f)
{
	char limit[VALUE_HINT_MAX], used[80] = "";

	if (!f->vm)
		return;
	memory_used(f, used, sizeof(used));
	print_limit("vm-memory", value_format_size(f->host.memory, limit), used, "");
	if (f->ended)
		return;
	(void)snprintf(limit, sizeof(limit), "%llu", (unsigned long long)f->host.pids);
	(void)snprintf(used, sizeof(used), "%llu", (unsigned long long)f->use.pids);
	print_limit("vm-threads", limit, used, "");
}

static void print_time(const char *name, uint64_t ms)
{
	char limit[VALUE_HINT_MAX];

	if (ms > 0)
		print_limit(name, value_format_duration(ms, limit), "", "");
}

static void print_deadline(const struct facts *f)
{
	char time[CLOCK_RFC3339_MAX];

	if (has_deadline(f))
		(void)printf("%-10s  %s, then %s\n", "deadline",
			     clock_format(f->life.deadline * NSEC_PER_MSEC, time),
			     on_timeout_names[f->life.on_timeout]);
}

static int print(const struct invocation *inv, const struct facts *f)
{
	print_text("id", f->b.id, NULL);
	print_state(f);
	print_text("agent", f->spec.agent, f->spec.policy);
	print_text("image", f->spec.image, f->spec.image_digest);
	if (f->spec.user[0])
		print_text("user", f->spec.user, NULL);
	print_text("workspace", f->spec.workspace, NULL);
	(void)printf("%-10s  %llu, %llu running\n", "commands",
		     (unsigned long long)f->commands + f->dropped, (unsigned long long)f->running);
	(void)printf("\n%s%-10s  %-10s  %-28s  MET%s\n", cli_style(inv, "\033[1m"), "LIMIT",
		     "VALUE", "USED", cli_style(inv, "\033[0m"));
	print_memory(f);
	print_cpus(f);
	print_pids(f);
	print_disk(f);
	print_vm(f);
	print_time("timeout", f->spec.limits.timeout);
	print_time("ttl", f->spec.limits.ttl);
	print_time("idle", f->spec.limits.idle);
	print_deadline(f);
	return EXIT_OK;
}

static int run_inspect(struct invocation *inv)
{
	_cleanup_(facts_done) struct facts f = { .b = SANDBOX_INIT };
	struct err e = ERR_INIT;

	if (gather(inv->args[0], &f, &e) < 0)
		return cli_fail(inv, &e);
	return cli_option(inv, "json") ? print_json(&f) : print(inv, &f);
}

/* clang-format off */
const struct command cmd_inspect = {
	.name = "inspect", .args = "ID", .min_args = 1, .max_args = 1,
	.summary = "show the limits of a sandbox, its resource usage and how it ended",
	.options = OPTIONS(OPT_JSON), .run = run_inspect,
};
/* clang-format on */
