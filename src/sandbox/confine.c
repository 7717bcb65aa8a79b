/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox-confine.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "fd.h"
#include "filter.h"
#include "landlock.h"
#include "proc.h"

#define MEMORY_MAX (UINT64_C(256) << 20)

enum {
	FILES_MAX = 256, /* a directory for each level of the tree, and the few others */
	KEPT = 4,
};

/* ---- descriptors ---- */

static int close_others(const struct jail *j)
{
	int kept[KEPT] = { j->dir, j->keep[0], j->keep[1], j->keep[2] };
	_cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0)
		return -errno;
	null = -EBADF; /* goes with the others */
	return fd_close_others(STDERR_FILENO + 1, kept, KEPT);
}

/* ---- privileges and limits ---- */

static int drop_capabilities(bool override)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };

	/* EINVAL: the kernel has no more. EPERM: there is none to drop. */
	for (unsigned long cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			break;
	if (override)
		data[0].effective = data[0].permitted = 1U << CAP_DAC_OVERRIDE;
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
	    syscall(SYS_capset, &head, data) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	return 0;
}

static int set_limits(void)
{
	static const struct {
		int what;
		uint64_t value;
	} limits[] = {
		{ RLIMIT_NOFILE, FILES_MAX },
		{ RLIMIT_NPROC, 0 },
		{ RLIMIT_CORE, 0 },
		{ RLIMIT_AS, MEMORY_MAX },
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(limits); i++)
		r = proc_limit(limits[i].what, limits[i].value);
	return r;
}

/* ---- Landlock ---- */

static int allow_writing(int dir)
{
	const uint64_t want = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
			      LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
			      LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SYM |
			      LANDLOCK_ACCESS_FS_REFER | LANDLOCK_ACCESS_FS_TRUNCATE;
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	struct landlock_path_beneath_attr rule = { .parent_fd = dir };
	_cleanup_close_ int ruleset = -EBADF;
	struct landlock_rights attr;
	size_t n;

	if (abi < 1)
		return 0;
	attr = landlock_rights(abi, false, &n);
	rule.allowed_access = want & attr.fs;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, n, 0);
	if (ruleset < 0 ||
	    (dir >= 0 &&
	     syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0) ||
	    syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return -errno;
	return 0;
}

/* ---- seccomp ---- */

/* clang-format off */
static const struct sock_filter filter[] = {
	FILTER_HEAD,

	/* Bytes from the connection, news to the parent. */
	ALLOW(recvfrom), ALLOW(write), ALLOW(sendto), ALLOW(sendmsg), ALLOW(ppoll),
#ifdef __NR_poll
	ALLOW(poll),
#endif
	ALLOW(clock_gettime), ALLOW(getrandom),

	/* Files below the directory. */
	ALLOW(openat), ALLOW(close), ALLOW(newfstatat), ALLOW(utimensat), ALLOW(renameat2),
#ifdef __NR_renameat
	ALLOW(renameat),
#endif
	ALLOW(fstat), ALLOW(mkdirat), ALLOW(fchmod), ALLOW(unlinkat), ALLOW(symlinkat), ALLOW(linkat),
	ALLOW(openat2), ALLOW(fcntl), ALLOW(umask),

	ALLOW_MEMORY,

	/* The end, and locks of the C library, which never wait. */
	ALLOW(exit_group), ALLOW(restart_syscall), ALLOW(rt_sigreturn), ALLOW(futex),

	RETURN(OTHERWISE),
};
/* clang-format on */

static int filter_calls(void)
{
	struct sock_fprog prog = { .len = ARRAY_SIZE(filter),
				   .filter = (struct sock_filter *)filter };

	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 ? -errno : 0;
}

int jail_enter(const struct jail *j, struct err *e)
{
	const char *at = "descriptors";
	int r = close_others(j);

	if (r == 0 && (at = "capabilities"))
		r = drop_capabilities(j->override);
	if (r == 0 && (at = "limits"))
		r = set_limits();
	if (r == 0 && (at = "Landlock"))
		r = allow_writing(j->dir);
	if (r == 0 && (at = "the filter of system calls"))
		r = filter_calls();
	return r < 0 ? err_set(e, r, "confining the copy, %s: %s", at, strerror(-r)) : 0;
}
