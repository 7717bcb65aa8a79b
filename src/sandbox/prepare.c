/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a virtual machine is started with: a kernel, the image as a disk, an empty disk, and a
 * template to clone; and what a container is: the empty disk alone. Each is made once and found
 * again. It may take minutes the first time, so it is
 * done when a sandbox starts, not when it is planned.
 */
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

/* "off": every machine boots. For measurements, and for whoever trusts no template. */
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

/* An ordinary user cannot mount it. */
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
	int r = machine_kernel_find(guest, &p->kernel, e);

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

/* `parts` are new: not those of a snapshot that the sandbox begins with. */
static int use_template(struct prepared *p, bool parts, struct spec *s, struct err *e)
{
	struct host_config config = HOST_CONFIG_INIT;
	int r = host_config_load(&config, e);

	if (r < 0)
		return r;
	s->snapshot_space = config.snapshot_space;
	if (!parts || !wants_template())
		return 0;
	r = template_find_or_make(s, p->snapshot, say, NULL, e);
	if (r == 0)
		s->machine.snapshot = p->snapshot;
	return r;
}

int prepare_machine(const char *guest, struct prepared *p, struct spec *s, struct err *e)
{
	const bool parts = !s->machine.kernel;
	int r = prepare_parts(guest, p, s, e);

	if (r < 0 || !s->machine.kernel)
		return r;
	r = use_template(p, parts, s, e);
	return r < 0 ? err_wrap(e, "level %s", level_names[s->level]) : 0;
}
