/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns checks into verdicts: a table of what each level requires, and what it should have. Names
 * all reasons that apply, the hard ones first.
 */
#include <string.h>

#include "host/probe.h"

/* Which engines a rule applies to, by a trait; ANY: all of them. */
enum {
	ANY = 0,
	CONTAINER = ENGINE_SCRATCH,
	VM = ENGINE_OWN_KERNEL,
};

static const struct rule {
	unsigned int traits;
	const char *check;
	enum host_state from; /* this state or a worse one ... */
	enum host_verdict verdict;
	const char *why; /* ... means this */
} rules[] = {
	{ ANY, "sys.calls", HOST_FAIL, HOST_UNAVAILABLE, "system calls are missing" },
	{ ANY, "ns.user", HOST_FAIL, HOST_UNAVAILABLE, "no user namespaces" },
	{ ANY, "ns.other", HOST_FAIL, HOST_UNAVAILABLE, "namespaces are missing" },
	{ CONTAINER, "fs.overlay", HOST_FAIL, HOST_UNAVAILABLE, "no overlay" },
	{ CONTAINER, "fs.overlay-user", HOST_FAIL, HOST_UNAVAILABLE, "no overlay without root" },
	{ ANY, "user.subids", HOST_FAIL, HOST_UNAVAILABLE, "no subordinate ids for this user" },
	{ ANY, "user.newidmap", HOST_FAIL, HOST_UNAVAILABLE, "no newuidmap" },
	{ ANY, "sec.seccomp", HOST_FAIL, HOST_UNAVAILABLE, "no seccomp filters" },
	{ CONTAINER, "sec.no-new-privs", HOST_FAIL, HOST_UNAVAILABLE, "no no_new_privs" },
	{ CONTAINER, "storage.disk", HOST_FAIL, HOST_LIMITED,
	  "sandboxes start only with --scratch memory" },
	{ VM, "engine.tools", HOST_INFO, HOST_UNAVAILABLE,
	  "programs that create its disks are missing" },
	{ VM, "engine.kernel", HOST_INFO, HOST_UNAVAILABLE, "no guest kernel is installed" },
	{ VM, "engine.accel", HOST_FAIL, HOST_UNAVAILABLE,
	  "the configured accelerator is not usable" },
	{ VM, "engine.accel", HOST_WARN, HOST_LIMITED,
	  "no usable KVM: emulated, slow, and with weaker isolation" },
	{ ANY, "cgroup.mode", HOST_FAIL, HOST_LIMITED, "no memory, CPU and process limits" },
	{ ANY, "cgroup.controllers", HOST_WARN, HOST_LIMITED, "limits are incomplete" },
	{ ANY, "cgroup.create", HOST_WARN, HOST_LIMITED,
	  "memory, CPU and process limits are not enforced" },
	{ CONTAINER, "net.steering", HOST_WARN, HOST_LIMITED, "no outbound connections by name" },
	{ ANY, "sec.landlock", HOST_WARN, HOST_LIMITED, "the keeper runs without Landlock" },
};

struct reasons {
	enum host_verdict verdict;
	struct buf text[HOST_VERDICT_MAX];
};

static void reasons_done(struct reasons *r)
{
	for (size_t i = 0; i < HOST_VERDICT_MAX; i++)
		buf_done(&r->text[i]);
}

static void add(struct reasons *r, enum host_verdict v, const char *why)
{
	r->verdict = MAX(r->verdict, v);
	(void)buf_printf(&r->text[v], "%s%s", r->text[v].len ? "; " : "", why);
}

static void judge_engine(const struct probe_ctx *x, const struct host_report *r,
			 const struct engine *engine, struct reasons *out)
{
	const struct host_check *c = host_report_find(r, engine->check);
	char why[HOST_WHY_MAX];

	if (host_engine(x, engine->level) < 0 || !c) {
		(void)snprintf(why, sizeof(why), "%s is not installed", engine->program);
		add(out, HOST_UNAVAILABLE, why);
		return;
	}
	(void)snprintf(why, sizeof(why), "%s %s", engine->program, c->value);
	add(out,
	    c->state == HOST_FAIL   ? HOST_UNAVAILABLE
	    : c->state == HOST_WARN ? HOST_LIMITED
				    : HOST_READY,
	    why);
}

static void judge_rules(const struct host_report *r, const struct engine *engine,
			struct reasons *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		const struct host_check *c = host_report_find(r, rules[i].check);

		if (engine_has(engine, rules[i].traits) && c && c->state >= rules[i].from)
			add(out, rules[i].verdict, rules[i].why);
	}
}

/* The engine for sandboxes of this level, or the one that would be used if it were installed. */
static const struct engine *engine_to_judge(const struct probe_ctx *x, enum level level)
{
	const int row = host_engine(x, level);
	const struct engine *wish = x->engine ? engine_find(x->engine) : NULL;

	if (row >= 0)
		return engines[row];
	return wish && wish->level == level ? wish : engine_first(level);
}

static void judge_level(const struct probe_ctx *x, struct host_report *r, enum level level)
{
	_cleanup_(reasons_done) struct reasons out = { .verdict = HOST_READY };
	const struct engine *engine = engine_to_judge(x, level);

	for (size_t i = 0; i < HOST_VERDICT_MAX; i++)
		out.text[i].max = HOST_WHY_MAX;
	if (engine) {
		judge_engine(x, r, engine, &out);
		judge_rules(r, engine, &out);
	} else {
		add(&out, HOST_UNAVAILABLE, "not supported by this version of Hutch");
	}
	r->levels[level].verdict = out.verdict;
	host_set_text(r->levels[level].why, sizeof(r->levels[level].why),
		      buf_text(&out.text[out.verdict]));
}

void level_judge(const struct probe_ctx *x, struct host_report *r)
{
	for (enum level l = LEVEL_FIRST; l < LEVEL_MAX; l++)
		judge_level(x, r, l);
}
