/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel: namespaces, mounts, and the system calls that Hutch builds on. */
#include <string.h>
#include <sys/utsname.h>

#include "base/str.h"
#include "host/probe.h"

static const char outside[] = "run hutch on the host itself, not inside a container";

static bool probe_release(const struct probe_ctx *x, struct host_check *c)
{
	char release[HOST_SHORT_MAX];
	struct utsname u;

	if (uname(&u) < 0)
		return false;
	if (!host_line(x, "proc/sys/kernel/osrelease", release, sizeof(release)))
		(void)snprintf(release, sizeof(release), "%s", u.release);
	check_value(c, HOST_OK, "%s %s", release, u.machine);
	/* 5.11: overlay in a user namespace; 5.10 is the oldest kernel that a distribution still
	 * supports. */
	if (cve_version_compare(release, "5.11") < 0) {
		c->state = HOST_WARN;
		check_detail(c, "older than 5.11: no overlay in a user namespace, no Landlock");
		check_advice(c, "boot a newer kernel, 6.1 or later");
	}
	return true;
}

/* Explains why a user namespace was refused, and what would allow it: one setting at most. */
static void explain_userns(const struct probe_ctx *x, struct host_check *c, int r)
{
	if (host_number(x, "proc/sys/user/max_user_namespaces") == 0) {
		check_detail(c, "user.max_user_namespaces is 0");
		check_advice(c, "sysctl -w user.max_user_namespaces=15000");
	} else if (host_number(x, "proc/sys/kernel/unprivileged_userns_clone") == 0) {
		check_detail(c, "kernel.unprivileged_userns_clone is 0 (Debian's switch)");
		check_advice(c, "sysctl -w kernel.unprivileged_userns_clone=1");
	} else if (host_number(x, "proc/sys/kernel/apparmor_restrict_unprivileged_userns") == 1) {
		check_detail(c, "AppArmor takes the capabilities away in a user namespace of an "
				"unconfined program (Ubuntu 23.10 and later)");
		check_advice(c,
			     "give hutch an AppArmor profile with the rule 'userns,', or for all "
			     "programs: sysctl -w "
			     "kernel.apparmor_restrict_unprivileged_userns=0");
	} else if (r == -ENOSPC) {
		check_detail(c, "the limit user.max_user_namespaces is reached");
		check_advice(c, "sysctl -w user.max_user_namespaces=15000");
	} else if (r == -EINVAL || r == -ENOSYS) {
		check_detail(c, "this kernel was built without CONFIG_USER_NS");
		check_advice(c, "boot your distribution's kernel");
	} else {
		check_detail(c,
			     "%s; no sysctl explains it, so perhaps a container or a seccomp "
			     "filter around this shell does",
			     strerror(-r));
		check_advice(c, "%s", outside);
	}
}

static bool probe_userns(const struct probe_ctx *x, struct host_check *c)
{
	if (x->facts->userns == 0) {
		check_value(c, HOST_OK, "work");
		return true;
	}
	check_value(c, HOST_FAIL, "refused");
	explain_userns(x, c, x->facts->userns);
	return true;
}

static bool probe_userns_plain(const struct probe_ctx *x, struct host_check *c)
{
	if (x->facts->userns_plain == -ENODATA)
		return false;
	if (x->facts->userns_plain == 0) {
		check_value(c, HOST_OK, "work");
		return true;
	}
	check_value(c, HOST_INFO, "refused");
	check_detail(c, "only root can use Hutch here");
	explain_userns(x, c, x->facts->userns_plain);
	return true;
}

static bool probe_namespaces(const struct probe_ctx *x, struct host_check *c)
{
	static const char *const names[] = {
		[HOST_NS_MNT] = "mnt",	 [HOST_NS_PID] = "pid", [HOST_NS_NET] = "net",
		[HOST_NS_IPC] = "ipc",	 [HOST_NS_UTS] = "uts", [HOST_NS_CGROUP] = "cgroup",
		[HOST_NS_TIME] = "time",
	};
	static_assert(ARRAY_SIZE(names) == HOST_NS_MAX, "a namespace without a name");
	_cleanup_buf_ struct buf good = BUF_INIT(128), bad = BUF_INIT(128);
	enum host_state worst = HOST_OK;

	for (size_t i = 0; i < HOST_NS_MAX; i++) {
		bool ok = x->facts->ns[i] == 0;

		(void)buf_printf(ok ? &good : &bad, " %s", names[i]);
		/* Only the time namespace (5.6) is optional. */
		if (!ok && i != HOST_NS_TIME)
			worst = HOST_FAIL;
		else if (!ok && worst == HOST_OK)
			worst = HOST_INFO;
	}
	if (worst == HOST_OK) {
		check_value(c, HOST_OK, "%s", buf_text(&good) + 1);
		return true;
	}
	check_value(c, worst, "missing:%s", buf_text(&bad));
	check_detail(c, "working:%s", good.len ? buf_text(&good) : " none");
	if (worst == HOST_FAIL && x->facts->userns < 0 && x->uid != 0)
		check_advice(c, "make user namespaces work first: without root the others need "
				"them");
	else if (worst == HOST_FAIL && x->facts->ns[HOST_NS_MNT] == -EPERM)
		check_advice(c, "%s", outside);
	else if (worst == HOST_FAIL)
		check_advice(c, "boot your distribution's kernel, this one lacks them");
	return true;
}

static bool probe_overlay_user(const struct probe_ctx *x, struct host_check *c)
{
	int r = x->facts->overlay_user;

	if (r == 0) {
		check_value(c, HOST_OK, "mounted and written in a user namespace");
		return true;
	}
	/* Root mounts a sandbox's file systems outside its user namespace. */
	check_value(c, x->uid == 0 ? HOST_INFO : HOST_FAIL, "refused");
	check_detail(c, "overlay with userxattr in a user namespace: %s", strerror(-r));
	if (x->uid != 0)
		check_advice(c, x->facts->userns < 0 ? "make user namespaces work first"
						     : "boot a kernel of 5.11 or later");
	return true;
}

static bool probe_overlay_root(const struct probe_ctx *x, struct host_check *c)
{
	int r = x->facts->overlay_root;

	if (r == -ENODATA)
		return false;
	if (r == 0) {
		check_value(c, HOST_OK, "mounted and written on tmpfs");
		return true;
	}
	check_value(c, HOST_FAIL, "refused");
	check_detail(c, "overlay on tmpfs as root: %s", strerror(-r));
	check_advice(c, "%s", r == -EPERM ? outside : "modprobe overlay");
	return true;
}

static bool probe_idmap(const struct probe_ctx *x, struct host_check *c)
{
	if (x->facts->idmap == 0) {
		check_value(c, HOST_OK, "mount_setattr exists");
		return true;
	}
	check_value(c, HOST_INFO, "no mount_setattr (kernel before 5.12)");
	check_detail(c, "images are copied per id range instead of being shared");
	return true;
}

static bool probe_erofs(const struct probe_ctx *x, struct host_check *c)
{
	_cleanup_buf_ struct buf b = BUF_INIT(16 * 1024);
	char release[HOST_SHORT_MAX];

	if (!str_has_word(host_text(x->root_fd, "proc/filesystems", &b), "erofs")) {
		check_value(c, HOST_INFO, "not loaded");
		check_detail(c, "needed only for mounts on the host; a microVM has its own kernel");
		check_advice(c, "modprobe erofs");
		return true;
	}
	(void)host_line(x, "proc/sys/kernel/osrelease", release, sizeof(release));
	check_value(c, HOST_OK, "%s",
		    cve_version_compare(release, "6.12") >= 0
			    ? "yes, from a file without a loop device"
			    : "yes, through a loop device (file-backed from 6.12 on)");
	return true;
}

static bool probe_calls(const struct probe_ctx *x, struct host_check *c)
{
	static const char *const names[] = {
		[HOST_CALL_PIDFD_OPEN] = "pidfd_open",
		[HOST_CALL_CLONE3] = "clone3",
		[HOST_CALL_OPENAT2] = "openat2",
		[HOST_CALL_CLOSE_RANGE] = "close_range",
	};
	static_assert(ARRAY_SIZE(names) == HOST_CALL_MAX, "a call without a name");
	_cleanup_buf_ struct buf bad = BUF_INIT(128), good = BUF_INIT(128);

	for (size_t i = 0; i < HOST_CALL_MAX; i++)
		(void)buf_printf(x->facts->call[i] == 0 ? &good : &bad, " %s", names[i]);
	if (bad.len == 0) {
		check_value(c, HOST_OK, "%s", buf_text(&good) + 1);
		return true;
	}
	check_value(c, HOST_FAIL, "missing:%s", buf_text(&bad));
	check_detail(c, "the kernel is older than 5.9, or a seccomp filter around this shell "
			"hides them");
	check_advice(c, "boot a kernel of 5.10 or later, or run hutch outside of the container");
	return true;
}

const struct probe probe_kernel[] = {
	{ "kernel.release", "kernel", probe_release },
	{ "ns.user", "user namespaces", probe_userns },
	{ "ns.user-plain", "  for ordinary users", probe_userns_plain },
	{ "ns.other", "other namespaces", probe_namespaces },
	{ "fs.overlay", "overlay as root", probe_overlay_root },
	{ "fs.overlay-user", "overlay without root", probe_overlay_user },
	{ "fs.idmap", "idmapped mounts", probe_idmap },
	{ "fs.erofs", "EROFS images", probe_erofs },
	{ "sys.calls", "system calls", probe_calls },
	{ NULL, NULL, NULL },
};
