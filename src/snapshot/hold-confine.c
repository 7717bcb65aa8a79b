/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-hold keeps its user, and nothing else: no capability, no file but (Landlock) to remove one
 * in the directory of sockets, some twenty system calls.
 */
#include "caps.h"
#include "filter.h"
#include "hold.h"
#include "landlock.h"
#include "rlimits.h"
#include "self.h"
#include "stages.h"

enum {
	FILES_MAX = 32,
};

static int drop_capabilities(void *arg)
{
	int r;

	(void)caps_bound(0); /* -EPERM: there is none to drop */
	r = caps_only(0);
	if (r == 0)
		r = self_no_new_privileges();
	return r < 0 ? r : self_not_dumpable();
}

static int has_no_capabilities(void *arg)
{
	int r = caps_check(0);

	return r < 0 ? r : self_check_privileges();
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

static int forbid_files(void *arg)
{
	_cleanup_close_ int ruleset = -EBADF;
	struct landlock_rights rights;
	int abi = landlock_abi(), r;

	if (abi < 1)
		return 0; /* a kernel without it has the other stages */
	rights = landlock_all_rights(abi, false);
	ruleset = landlock_ruleset(&rights);
	if (ruleset < 0)
		return ruleset;
	r = landlock_allow(ruleset, HOLD_FD_SOCKETS, LANDLOCK_ACCESS_FS_REMOVE_FILE);
	return r < 0 ? r : landlock_restrict(ruleset);
}

static int has_no_files(void *arg)
{
	return landlock_check();
}

/* clang-format off */
static const struct sock_filter calls[] = {
	FILTER_HEAD,

	/* The file into the memory. */
	ALLOW(pread64), ALLOW(pwrite64), ALLOW(lseek), ALLOW(ftruncate), ALLOW(memfd_create), ALLOW(fcntl),

	/* Those who ask. */
	ALLOW(poll), ALLOW(ppoll), ALLOW(accept4), ALLOW(getsockopt), ALLOW(setsockopt), ALLOW(recvfrom),
	ALLOW(sendmsg), ALLOW(close), ALLOW(geteuid), ALLOW(clock_gettime),

	/* The socket's end. */
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
	{ "capabilities", drop_capabilities, has_no_capabilities },
	{ "limits", set_limits },
	{ "Landlock", forbid_files, has_no_files },
	{ "the filter of system calls", filter_calls },
	{ NULL },
};

int hold_confine(void)
{
	return confine_run(stages, NULL, NULL);
}
