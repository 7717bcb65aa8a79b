/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Confines hutch-hold. It keeps its user id, has no capability, and may make only the system calls
 * of the filter below. Landlock denies it all files; it may only remove its socket from the
 * directory of sockets.
 */
#include "confine/filter.h"
#include "confine/landlock.h"
#include "confine/rlimits.h"
#include "confine/stages.h"
#include "snapshot/hold.h"

enum {
	FILES_MAX = 32,
};

static int drop_capabilities(void *arg)
{
	return confine_drop_privileges(0);
}

static int set_limits(void *arg)
{
	static const struct limit limits[] = {
		{ RLIMIT_NOFILE, FILES_MAX },
		{ RLIMIT_NPROC, 0 },
		{ RLIMIT_CORE, 0 },
	};

	return rlimits_lower(limits, ARRAY_SIZE(limits));
}

/* On a kernel without Landlock the other stages still apply. */
static int forbid_files(void *arg)
{
	return MIN(landlock_forbid_all(false, HOLD_FD_SOCKETS, LANDLOCK_ACCESS_FS_REMOVE_FILE), 0);
}

/* clang-format off */
static const struct sock_filter calls[] = {
	FILTER_HEAD,

	/* Copying the snapshot file into memory. */
	ALLOW(pread64), ALLOW(pwrite64), ALLOW(lseek), ALLOW(ftruncate), ALLOW(memfd_create), ALLOW(fcntl),

	/* Serving clients on the socket. */
	ALLOW(poll), ALLOW(ppoll), ALLOW(accept4), ALLOW(getsockopt), ALLOW(setsockopt), ALLOW(recvfrom),
	ALLOW(sendmsg), ALLOW(close), ALLOW(geteuid), ALLOW(clock_gettime),

	/* Locking and removing the socket at the end. */
	ALLOW(flock), ALLOW(unlinkat),

	ALLOW_MEMORY,
	ALLOW(exit_group), ALLOW(restart_syscall), ALLOW(rt_sigreturn), ALLOW(futex),
	RETURN(OTHERWISE),
};
/* clang-format on */

static int filter_calls(void *arg)
{
	return filter_apply(calls, ARRAY_SIZE(calls));
}

static const struct confine_stage stages[] = {
	{ "capabilities", drop_capabilities, stage_has_no_privileges },
	{ "limits", set_limits },
	{ "Landlock", forbid_files, stage_has_no_files },
	{ "the syscall filter", filter_calls },
	{ NULL },
};

int hold_confine(void)
{
	return confine_run(stages, NULL, NULL);
}
