/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From checks to verdicts: a table of what each level cannot do without, and what it can but should
 * not. All reasons that apply are named, the hard ones first.
 */
#include <string.h>

#include "probe.h"

#define CONTAINER (1U << HOST_LEVEL_CONTAINER)
#define GVISOR	  (1U << HOST_LEVEL_GVISOR)
#define MICROVM	  (1U << HOST_LEVEL_MICROVM)

static const struct rule {
	unsigned int levels;
	const char *check;
	enum host_state from; /* this state or a worse one ... */
	enum host_verdict verdict;
	const char *why; /* ... means this */
} rules[] = {
	{ CONTAINER | GVISOR | MICROVM, "sys.calls", HOST_FAIL, HOST_UNAVAILABLE,
	  "system calls are missing" },
	{ CONTAINER | GVISOR | MICROVM, "ns.user", HOST_FAIL, HOST_UNAVAILABLE,
	  "no user namespaces" },
	{ CONTAINER | GVISOR | MICROVM, "ns.other", HOST_FAIL, HOST_UNAVAILABLE,
	  "namespaces are missing" },
	{ CONTAINER | GVISOR, "fs.overlay", HOST_FAIL, HOST_UNAVAILABLE, "no overlay" },
	{ CONTAINER | GVISOR, "fs.overlay-user", HOST_FAIL, HOST_UNAVAILABLE,
	  "no overlay without root" },
	{ CONTAINER | GVISOR | MICROVM, "user.subids", HOST_FAIL, HOST_UNAVAILABLE,
	  "no subordinate ids for this user" },
	{ CONTAINER | GVISOR | MICROVM, "user.newidmap", HOST_FAIL, HOST_UNAVAILABLE,
	  "no newuidmap" },
	{ CONTAINER | MICROVM, "sec.seccomp", HOST_FAIL, HOST_UNAVAILABLE, "no seccomp filters" },
	{ CONTAINER, "sec.no-new-privs", HOST_FAIL, HOST_UNAVAILABLE, "no no_new_privs" },
	{ MICROVM, "engine.tools", HOST_INFO, HOST_UNAVAILABLE,
	  "programs that make its disks are missing" },
	{ MICROVM, "engine.kernel", HOST_INFO, HOST_UNAVAILABLE, "no guest kernel is installed" },
	{ MICROVM, "engine.accel", HOST_FAIL, HOST_UNAVAILABLE, "the accelerator cannot be had" },
	{ MICROVM, "engine.accel", HOST_WARN, HOST_LIMITED,
	  "no usable KVM: emulated, slow, and without QEMU's promise of isolation" },
	{ CONTAINER | GVISOR | MICROVM, "cgroup.mode", HOST_FAIL, HOST_LIMITED,
	  "no memory, CPU and process limits" },
	{ CONTAINER | GVISOR | MICROVM, "cgroup.controllers", HOST_WARN, HOST_LIMITED,
	  "limits are incomplete" },
	{ CONTAINER | GVISOR | MICROVM, "cgroup.create", HOST_WARN, HOST_LIMITED,
	  "memory, CPU and process limits are not enforced" },
	{ CONTAINER | GVISOR, "net.steering", HOST_WARN, HOST_LIMITED,
	  "no outbound connections by name" },
	{ CONTAINER | GVISOR | MICROVM, "sec.landlock", HOST_WARN, HOST_LIMITED,
	  "the keeper runs without Landlock" },
};

/* Engines in the order of preference. */
static const struct {
	enum host_level level;
	enum host_program_id program;
	const char *check;
} engines[] = {
	{ HOST_LEVEL_CONTAINER, HOST_CRUN, "engine.crun" },
	{ HOST_LEVEL_CONTAINER, HOST_RUNC, "engine.runc" },
	{ HOST_LEVEL_GVISOR, HOST_RUNSC, "engine.runsc" },
	{ HOST_LEVEL_MICROVM, HOST_QEMU, "engine.qemu" },
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

static void judge_engine(const struct host_report *r, const struct host_facts *f,
			 enum host_level level, struct reasons *out)
{
	char why[HOST_WHY_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(engines); i++) {
		const char *name = host_program_name(engines[i].program);
		const struct host_check *c = host_report_find(r, engines[i].check);

		if (engines[i].level != level || f->program[engines[i].program].found < 0 || !c)
			continue;
		(void)snprintf(why, sizeof(why), "%s %s", name, c->value);
		add(out,
		    c->state == HOST_FAIL   ? HOST_UNAVAILABLE
		    : c->state == HOST_WARN ? HOST_LIMITED
					    : HOST_READY,
		    why);
		return;
	}
	add(out, HOST_UNAVAILABLE,
	    level == HOST_LEVEL_CONTAINER ? "neither crun nor runc is installed"
	    : level == HOST_LEVEL_GVISOR  ? "runsc is not installed"
					  : "qemu-system-x86_64 is not installed");
}

static void judge_level(struct host_report *r, const struct host_facts *f, enum host_level level)
{
	_cleanup_(reasons_done) struct reasons out = { .verdict = HOST_READY };

	for (size_t i = 0; i < HOST_VERDICT_MAX; i++)
		out.text[i].max = HOST_WHY_MAX;
	judge_engine(r, f, level, &out);
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		const struct host_check *c = host_report_find(r, rules[i].check);

		if (rules[i].levels & 1U << level && c && c->state >= rules[i].from)
			add(&out, rules[i].verdict, rules[i].why);
	}
	/* Rootless runsc exists; nobody has shown yet that it carries our bundles. */
	if (level == HOST_LEVEL_GVISOR && r->uid != 0)
		add(&out, HOST_LIMITED, "tested as root only");
	r->levels[level].verdict = out.verdict;
	host_set_text(r->levels[level].why, sizeof(r->levels[level].why),
		      buf_text(&out.text[out.verdict]));
}

void level_judge(struct host_report *r, const struct host_facts *f)
{
	for (enum host_level l = 0; l < HOST_LEVEL_MAX; l++)
		judge_level(r, f, l);
}
