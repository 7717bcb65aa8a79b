/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/sandbox-confine.h"

#include "base/fd.h"
#include "confine/caps.h"
#include "confine/filter.h"
#include "confine/landlock.h"
#include "confine/rlimits.h"
#include "confine/self.h"
#include "confine/stages.h"

#define MEMORY_MAX (UINT64_C(256) << 20)

enum {
	FILES_MAX = 256, /* one per directory level of the tree, plus a few */
	KEPT = 4,
};

/* ---- descriptors ---- */

static int close_others(void *arg)
{
	const struct jail *j = arg;
	int kept[KEPT] = { j->dir, j->keep[0], j->keep[1], j->keep[2] };
	int r = self_null_stdio(STDERR_FILENO);

	return r < 0 ? r : fd_close_others(STDERR_FILENO + 1, kept, KEPT);
}

/* ---- privileges and limits ---- */

static uint64_t kept_caps(const struct jail *j)
{
	return j->override ? CAPS_BIT(CAP_DAC_OVERRIDE) : 0;
}

static int drop_capabilities(void *arg)
{
	return confine_drop_privileges(kept_caps(arg));
}

static int has_no_others(void *arg)
{
	int r = caps_check(kept_caps(arg));

	return r < 0 ? r : self_check_privileges();
}

static int set_limits(void *arg)
{
	static const struct limit limits[] = {
		{ RLIMIT_NOFILE, FILES_MAX },
		{ RLIMIT_NPROC, 0 },
		{ RLIMIT_CORE, 0 },
		{ RLIMIT_AS, MEMORY_MAX },
	};

	return rlimits_lower(limits, ARRAY_SIZE(limits));
}

/* ---- Landlock ---- */

static int allow_writing(void *arg)
{
	const uint64_t want = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
			      LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
			      LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SYM |
			      LANDLOCK_ACCESS_FS_REFER | LANDLOCK_ACCESS_FS_TRUNCATE;
	const struct jail *j = arg;

	return MIN(landlock_forbid_all(false, j->dir, want), 0);
}

/* ---- seccomp ---- */

/* clang-format off */
static const struct sock_filter filter[] = {
	FILTER_HEAD,

	/* Bytes from the connection, reports to the parent. */
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

	/* Exit, and locks of the C library, which never block. */
	ALLOW(exit_group), ALLOW(restart_syscall), ALLOW(rt_sigreturn), ALLOW(futex),

	RETURN(OTHERWISE),
};
/* clang-format on */

static int filter_calls(void *arg)
{
	return filter_apply(filter, ARRAY_SIZE(filter));
}

static const struct confine_stage stages[] = {
	{ "descriptors", close_others },
	{ "capabilities", drop_capabilities, has_no_others },
	{ "limits", set_limits },
	{ "Landlock", allow_writing },
	{ "the syscall filter", filter_calls },
	{ NULL },
};

int jail_enter(const struct jail *j, struct err *e)
{
	return confine_run_err(stages, (void *)j, "confining the copy", e);
}
