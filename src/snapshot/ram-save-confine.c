/* SPDX-License-Identifier: Apache-2.0 */
/* The process that saves a VM uses its open descriptors and nothing else: it has the keeper's user
 * and group, no capability, no other file, some fifteen system calls. */
#include "confine/become.h"
#include "confine/caps.h"
#include "confine/filter.h"
#include "confine/landlock.h"
#include "confine/rlimits.h"
#include "confine/stages.h"
#include "snapshot/ram-save.h"

enum {
	FILES_MAX = 32,
};

static int become_user(void *arg)
{
	const uint32_t *id = arg;
	int r = caps_bound(0);

	return r < 0 ? r : become(*id);
}

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
	return MIN(landlock_forbid_all(false, -EBADF, 0), 0);
}

/* clang-format off */
static const struct sock_filter calls[] = {
	FILTER_HEAD,

	ALLOW(pread64), ALLOW(pwrite64), ALLOW(read), ALLOW(write), ALLOW(lseek), ALLOW(ftruncate), ALLOW(poll), ALLOW(ppoll),

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
	{ "user and group", become_user },
	{ "capabilities", drop_capabilities, stage_has_no_privileges },
	{ "dying with its parent", stage_die_with_parent },
	{ "limits", set_limits },
	{ "Landlock", forbid_files, stage_has_no_files },
	{ "the syscall filter", filter_calls },
	{ NULL },
};

int ram_save_confine(uint32_t id)
{
	return confine_run(stages, &id, NULL);
}
