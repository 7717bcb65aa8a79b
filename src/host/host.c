/* SPDX-License-Identifier: Apache-2.0 */
#include "host/host.h"

#include <fcntl.h>
#include <pwd.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/fd.h"
#include "base/str.h"
#include "host/probe.h"

static const struct {
	enum host_area area;
	const struct probe *probes;
} tables[] = {
	{ HOST_AREA_KERNEL, probe_kernel },   { HOST_AREA_KERNEL, probe_lockdown },
	{ HOST_AREA_CGROUPS, probe_cgroups }, { HOST_AREA_ENGINES, NULL }, /* engines[] */
	{ HOST_AREA_ENGINES, probe_kvm },     { HOST_AREA_ENGINES, probe_machine },
	{ HOST_AREA_USERS, probe_users },     { HOST_AREA_STORAGE, probe_storage },
	{ HOST_AREA_SECRETS, probe_secrets }, { HOST_AREA_HARDWARE, probe_hardware },
};

void host_options_default(struct host_options *ret)
{
	static char name[HOST_SHORT_MAX];
	struct passwd *pw = getpwuid(geteuid());

	*ret = (struct host_options){ .root_fd = -EBADF, .uid = geteuid() };
	if (pw) {
		(void)snprintf(name, sizeof(name), "%s", pw->pw_name);
		ret->user = name;
	}
}

static void name_host(const struct probe_ctx *x, struct host_report *r)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16 * 1024);
	const char *os = strstr(host_text(x->root_fd, "etc/os-release", &b), "PRETTY_NAME=");
	char text[HOST_SHORT_MAX] = "Linux";
	struct utsname u;

	if (os) {
		os += strcspn(os, "=") + 1;
		os += strspn(os, "\"'");
		(void)snprintf(text, sizeof(text), "%.*s", (int)strcspn(os, "\"'\n"), os);
	}
	host_set_text(r->os, sizeof(r->os), text);
	if (uname(&u) < 0)
		memset(&u, 0, sizeof(u));
	/* The file comes first, so that a fixture can choose the kernel. */
	if (!host_line(x, "proc/sys/kernel/osrelease", text, sizeof(text)))
		(void)snprintf(text, sizeof(text), "%s", u.release);
	host_set_text(r->kernel, sizeof(r->kernel), text);
	host_set_text(r->arch, sizeof(r->arch), u.machine);
	(void)snprintf(text, sizeof(text), "uid %u", x->uid);
	host_set_text(r->user, sizeof(r->user), x->user ? x->user : text);
	r->uid = x->uid;
}

/* The next check of the report; it counts once r->n_checks is raised. */
static struct host_check *next_check(struct host_report *r, const char *id, const char *title,
				     enum host_area area)
{
	struct host_check *c = &r->checks[r->n_checks];

	assert(r->n_checks < HOST_CHECKS_MAX);
	*c = (struct host_check){ .id = id, .title = title, .area = area };
	return c;
}

static void run_engines(const struct probe_ctx *x, struct host_report *r, enum host_area area)
{
	for (size_t i = 0; i < HOST_ENGINES_MAX && engines[i]; i++)
		if (probe_engine(x, i, next_check(r, engines[i]->check, engines[i]->title, area)))
			r->n_checks++;
}

static void run_probes(const struct probe_ctx *x, struct host_report *r)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		if (!tables[i].probes)
			run_engines(x, r, tables[i].area);
		for (const struct probe *p = tables[i].probes; p && p->id; p++)
			if (p->run(x, next_check(r, p->id, p->title, tables[i].area)))
				r->n_checks++;
	}
}

int host_probe(const struct host_options *o, struct host_report *ret, struct err *e)
{
	static const struct host_machine unknown = { .why = "KVM: not checked yet" };
	_cleanup_free_ struct host_facts *tried = NULL;
	_cleanup_free_ struct host_report *r = calloc(1, sizeof(*r));
	_cleanup_close_ int root = -EBADF;
	struct probe_ctx x = { .root_fd = o->root_fd,
			       .uid = o->uid,
			       .user = o->user,
			       .engine = o->engine,
			       .overcommit = o->overcommit };

	if (!r)
		return err_oom(e);
	if (x.root_fd < 0) {
		x.root_fd = root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (root < 0)
			return err_errno(e, "cannot open the root directory");
	}
	x.facts = o->facts;
	x.machine = o->machine ? o->machine : &unknown;
	x.secrets = o->secrets;
	if (!x.facts) {
		x.facts = tried = calloc(1, sizeof(*tried));
		if (!tried)
			return err_oom(e);
		host_facts_try(tried);
	}
	x.state_dir = o->state_dir;
	x.state_why = o->state_why;
	x.run_dir = o->run_dir;
	x.run_why = o->run_why;
	name_host(&x, r);
	run_probes(&x, r);
	level_judge(&x, r);
	*ret = *r;
	return 0;
}
