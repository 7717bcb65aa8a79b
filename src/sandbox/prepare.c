/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares the parts of a VM: kernel, image as a disk, empty disk, and template to clone; and the
 * empty disk of a container. Each part is made once and then reused. The first time may take
 * minutes, so this happens when a sandbox starts, not when it is planned. */
#include "sandbox/prepare.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/str.h"
#include "engine/engine.h"
#include "snapshot/snapshot.h"
#include "vm/accel.h"
#include "vm/host-config.h"
#include "vm/template-vm.h"

static void say(const char *text, void *arg)
{
	(void)arg;
	log_info("%s", text);
}

/* HUTCH_TEMPLATES=off boots every VM: for measurements, and for users who do not trust
 * templates. */
static bool wants_template(void)
{
	const char *set = getenv("HUTCH_TEMPLATES");

	return !set || !str_eq(set, "off");
}

static int find_snapshots(struct prepared *p, struct err *e)
{
	_cleanup_close_ int home = -EBADF;
	char path[IMAGE_HOME_MAX];
	int r = snapshot_home_open(true, path, &home, e);

	if (r == 0)
		(void)snprintf(p->snapshots, sizeof(p->snapshots), "%s/snapshots", path);
	return r;
}

/* Only for root: an ordinary user cannot mount the disk. */
static int prepare_scratch(struct prepared *p, struct spec *s, struct err *e)
{
	int r;

	if (s->in_memory || geteuid() != 0)
		return 0;
	r = machine_blank(s->limits.disk, p->blank, e);
	if (r < 0)
		return err_wrap(e, "resources.disk");
	s->blank = p->blank;
	return 0;
}

/* The parts of a VM that are the same for every sandbox of its image and size. */
static int prepare_vm(const char *guest, struct prepared *p, struct spec *s, struct err *e)
{
	enum accel accel = ACCEL_TCG;
	char why[ACCEL_WHY_MAX];
	int r = machine_kernel_find(guest, s->nested, &p->kernel, e);

	if (r == 0)
		r = machine_root(s->root, p->root, e);
	if (r == 0)
		r = machine_blank(s->limits.disk, p->blank, e);
	if (r == 0)
		r = find_snapshots(p, e);
	if (r == 0)
		r = accel_choose(&p->kernel, true, &accel, why, e);
	if (r < 0)
		return r;
	s->machine.kernel = p->kernel.kernel;
	s->machine.initrd = p->kernel.initrd;
	s->machine.root = p->root;
	s->machine.blank = p->blank;
	s->machine.accel = accel == ACCEL_KVM ? "kvm" : "tcg";
	s->machine.snapshots = p->snapshots;
	s->machine.snapshot = "";
	s->machine.kernel_version = p->kernel.version;
	return 0;
}

int prepare_parts(const char *guest, struct prepared *p, struct spec *s, struct err *e)
{
	const struct engine *engine = NULL;
	int r = engine_of(s, &engine, e);

	if (r < 0 || s->machine.kernel)
		return r;
	if (!engine_has(engine, ENGINE_OWN_KERNEL))
		return prepare_scratch(p, s, e);
	r = prepare_vm(guest, p, s, e);
	return r < 0 ? err_wrap(e, "level %s", level_names[s->level]) : 0;
}

/* `parts`: the parts are new, not those of a snapshot that the sandbox starts from. */
static int use_template(struct prepared *p, bool parts, struct spec *s, struct err *e)
{
	int r;

	if (!parts || !wants_template())
		return 0;
	r = template_find_or_make(s, p->snapshot, say, NULL, e);
	if (r == -EOPNOTSUPP) {
		log_info("the VM boots without a template: %s", e->msg);
		*e = (struct err)ERR_INIT;
		return 0;
	}
	if (r == 0)
		s->machine.snapshot = p->snapshot;
	return r;
}

/* For the receipt. A start does not fail without it. */
static void find_hypervisor(struct prepared *p, struct spec *s)
{
	struct err e = ERR_INIT;

	s->machine.hypervisor = "";
	if (hypervisor_version(p->hypervisor, &e) < 0)
		log_warning("the hypervisor's version is not known: %s", e.msg);
	else
		s->machine.hypervisor = p->hypervisor;
}

int prepare_machine(const char *guest, struct prepared *p, struct spec *s, struct err *e)
{
	const bool parts = !s->machine.kernel;
	struct host_config config = HOST_CONFIG_INIT;
	int r = host_config_load(&config, e);

	if (r < 0)
		return r;
	s->snapshot_space = config.snapshot_space;
	s->overcommit = config.disk_overcommit;
	r = prepare_parts(guest, p, s, e);
	if (r < 0 || !s->machine.kernel)
		return r;
	find_hypervisor(p, s);
	r = use_template(p, parts, s, e);
	return r < 0 ? err_wrap(e, "level %s", level_names[s->level]) : 0;
}
