/* SPDX-License-Identifier: Apache-2.0 */
/* The engine runc. It has no option to leave control groups alone. In rootless mode it accepts that
 * it cannot make groups, so we make them read-only for it, in a mount namespace of its own; the
 * sandbox's processes are already in the warden's groups. A child of runc joins the user namespace
 * and inherits no descriptor, so we bind-mount the namespace at a path. */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "engine/container.h"

static const char no_exec[] = "Hutch never calls runc exec";

static const struct engine_cve cves[] = {
	{ "CVE-2019-5736", "1.0.0", "a container overwrote the host's runc", NULL },
	{ "CVE-2021-30465", "1.0.0", "a symlink race mounted host directories", NULL },
	{ "CVE-2022-29162", "1.1.2", "exec left inheritable capabilities", no_exec },
	{ "CVE-2023-27561", "1.1.5", "a symlink for /proc bypassed AppArmor", NULL },
	{ "CVE-2024-21626", "1.1.12", "a leaked descriptor reached the host", NULL },
	{ "CVE-2024-45310", "1.1.14 1.2.0", "a race made empty files on the host", NULL },
	{ "CVE-2025-31133", "1.2.8 1.3.3 1.4.0", "a replaced /dev/null unmasked paths", NULL },
	{ "CVE-2025-52565", "1.2.8 1.3.3 1.4.0", "a /dev/console race unmasked paths", NULL },
	{ "CVE-2025-52881", "1.2.8 1.3.3 1.4.0", "writes to /proc were redirected", NULL },
	{ NULL },
};

#define USERNS SCRATCH_BUNDLE "/userns"

static int enter(void)
{
	struct mount_attr read_only = { .attr_set = MOUNT_ATTR_RDONLY };
	int fd = open(USERNS, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0 || close(fd) < 0 || unshare(CLONE_NEWNS) < 0 ||
	    mount(OCI_USERNS, USERNS, NULL, MS_BIND, NULL) < 0 ||
	    syscall(SYS_mount_setattr, AT_FDCWD, "/sys/fs/cgroup", AT_RECURSIVE, &read_only,
		    sizeof(read_only)) < 0)
		return -errno;
	return 0;
}

const struct engine engine_runc = {
	.name = "runc",
	.title = "runc",
	.check = "engine.runc",
	.program = "runc",
	.package = "runc",
	.cves = cves,
	/* runc would set them with prlimit(2) from outside, which needs CAP_SYS_RESOURCE. */
	.own = &(const struct oci_runtime){ .option = "--rootless=true",
					    .limits_inherited = true,
					    .userns = USERNS,
					    .enter = enter },
	OCI_ENGINE,
};
