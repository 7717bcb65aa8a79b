/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From checks to verdicts: a table of what each level cannot do without, and what it can but should
 * not. All reasons that apply are named, the hard ones first.
 */
#include <string.h>

#include "probe.h"

#define CONTAINER (1U << HOST_LEVEL_CONTAINER)
#define MICROVM	  (1U << HOST_LEVEL_MICROVM)

static const struct rule {
	unsigned int levels;
	const char *check;
	enum host_state from; /* this state or a worse one ... */
	enum host_verdict verdict;
	const char *why; /* ... means this */
} rules[] = {
	{ CONTAINER | MICROVM, "sys.calls", HOST_FAIL, HOST_UNAVAILABLE,
	  "system calls are missing" },
	{ CONTAINER | MICROVM, "ns.user", HOST_FAIL, HOST_UNAVAILABLE, "no user namespaces" },
	{ CONTAINER | MICROVM, "ns.other", HOST_FAIL, HOST_UNAVAILABLE, "namespaces are missing" },
	{ CONTAINER, "fs.overlay", HOST_FAIL, HOST_UNAVAILABLE, "no overlay" },
	{ CONTAINER, "fs.overlay-user", HOST_FAIL, HOST_UNAVAILABLE, "no overlay without root" },
	{ CONTAINER | MICROVM, "user.subids", HOST_FAIL, HOST_UNAVAILABLE,
	  "no subordinate ids for this user" },
	{ CONTAINER | MICROVM, "user.newidmap", HOST_FAIL, HOST_UNAVAILABLE, "no newuidmap" },
	{ CONTAINER | MICROVM, "sec.seccomp", HOST_FAIL, HOST_UNAVAILABLE, "no seccomp filters" },
	{ CONTAINER, "sec.no-new-privs", HOST_FAIL, HOST_UNAVAILABLE, "no no_new_privs" },
	{ CONTAINER, "storage.disk", HOST_FAIL, HOST_LIMITED,
	  "nothing starts but with --scratch memory" },
	{ MICROVM, "engine.tools", HOST_INFO, HOST_UNAVAILABLE,
	  "programs that make its disks are missing" },
	{ MICROVM, "engine.kernel", HOST_INFO, HOST_UNAVAILABLE, "no guest kernel is installed" },
	{ MICROVM, "engine.accel", HOST_FAIL, HOST_UNAVAILABLE, "the accelerator cannot be had" },
	{ MICROVM, "engine.accel", HOST_WARN, HOST_LIMITED,
	  "no usable KVM: emulated, slow, and without QEMU's promise of isolation" },
	{ CONTAINER | MICROVM, "cgroup.mode", HOST_FAIL, HOST_LIMITED,
	  "no memory, CPU and process limits" },
	{ CONTAINER | MICROVM, "cgroup.controllers", HOST_WARN, HOST_LIMITED,
	  "limits are incomplete" },
	{ CONTAINER | MICROVM, "cgroup.create", HOST_WARN, HOST_LIMITED,
	  "memory, CPU and process limits are not enforced" },
	{ CONTAINER, "net.steering", HOST_WARN, HOST_LIMITED, "no outbound connections by name" },
	{ CONTAINER | MICROVM, "sec.landlock", HOST_WARN, HOST_LIMITED,
	  "the keeper runs without Landlock" },
};

/* The engine of each level. A level without one is not supported by this version. */
static const struct {
	enum host_program_id program;
	const char *check;
} engines[HOST_LEVEL_MAX] = {
	[HOST_LEVEL_CONTAINER] = { HOST_CRUN, "engine.crun" },
	[HOST_LEVEL_MICROVM] = { HOST_QEMU, "engine.qemu" },
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
	enum host_program_id program = engines[level].program;
	const struct host_check *c = host_report_find(r, engines[level].check);
	char why[HOST_WHY_MAX];

	if (f->program[program].found < 0 || !c) {
		(void)snprintf(why, sizeof(why), "%s is not installed", host_program_name(program));
		add(out, HOST_UNAVAILABLE, why);
		return;
	}
	(void)snprintf(why, sizeof(why), "%s %s", host_program_name(program), c->value);
	add(out,
	    c->state == HOST_FAIL   ? HOST_UNAVAILABLE
	    : c->state == HOST_WARN ? HOST_LIMITED
				    : HOST_READY,
	    why);
}

static void judge_level(struct host_report *r, const struct host_facts *f, enum host_level level)
{
	_cleanup_(reasons_done) struct reasons out = { .verdict = HOST_READY };

	for (size_t i = 0; i < HOST_VERDICT_MAX; i++)
		out.text[i].max = HOST_WHY_MAX;
	if (engines[level].check)
		judge_engine(r, f, level, &out);
	else
		add(&out, HOST_UNAVAILABLE, "not supported by this version of Hutch");
	for (size_t i = 0; i < ARRAY_SIZE(rules); i++) {
		const struct host_check *c = host_report_find(r, rules[i].check);

		if (rules[i].levels & 1U << level && c && c->state >= rules[i].from)
			add(&out, rules[i].verdict, rules[i].why);
	}
	r->levels[level].verdict = out.verdict;
	host_set_text(r->levels[level].why, sizeof(r->levels[level].why),
		      buf_text(&out.text[out.verdict]));
}

void level_judge(struct host_report *r, const struct host_facts *f)
{
	for (enum host_level l = 0; l < HOST_LEVEL_MAX; l++)
		judge_level(r, f, l);
}
