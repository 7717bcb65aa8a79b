/* SPDX-License-Identifier: Apache-2.0 */
/* The engine crun. */
#include "engine/container.h"
#include "engine/scratch.h"

static const char no_exec[] = "Hutch never calls crun exec";
static const char no_krun[] = "Hutch never uses krun";

static const struct engine_cve cves[] = {
	{ "CVE-2019-18837", "0.10.5", "an image's symlink reached host files", NULL },
	{ "CVE-2022-27650", "1.4.4", "exec left inheritable capabilities", no_exec },
	{ "CVE-2026-30892", "1.27", "exec -u ran as another user", no_exec },
	{ "CVE-2026-47766", "1.28", "an image whose /dev is a symlink writes on the host", NULL },
	{ "CVE-2025-24965", "1.20", "an image wrote host files through krun", no_krun },
	{ "CVE-2026-84042", "1.30.1", "krun with passt ran a program of the image", no_krun },
	{ "CVE-2026-88264", "1.30", "an image's /dev/console symlink makes a host file", NULL },
	{ "CVE-2026-88265", "1.30", "an image's /dev/null symlink opens a mounted file", NULL },
	{ NULL },
};

const struct engine engine_crun = {
	.name = "crun",
	.title = "crun",
	.check = "engine.crun",
	.program = "crun",
	.package = "crun",
	.cves = cves,
	/* crun 1.8 refuses a hybrid host whose v2 side has a controller. */
	.own = &(const struct oci_runtime){ .option = "--cgroup-manager=disabled",
					    .userns = OCI_USERNS,
					    .prepare = scratch_hide_controllers },
	OCI_ENGINE,
};
