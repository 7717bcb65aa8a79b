/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Confines hutch-filter before it reads its configuration or a byte of a stream. In this order:
 *
 * 1. The capability bounding set.
 * 2. Namespaces of its own: mounts, network (without a device), IPC, host name, control groups.
 * 3. An empty, read-only root directory.
 * 4. User and groups: an id that owns nothing. Then all other capability sets; no new privileges.
 * 5. Death with the warden, as for the keeper. Not dumpable: only root can inspect the process, and
 *    there is no core file with secrets.
 * 6. Limits: descriptors, processes, memory, file size.
 * 7. Landlock, handling every right and allowing none.
 * 8. seccomp: only the system calls of serving; any other kills hutch-filter. It can make no
 * socket.
 *
 * An ordinary user has stages 2 and 3 only if the warden has a user namespace; 7 and 8 hold always.
 */
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"
#include "confine/become.h"
#include "confine/caps.h"
#include "confine/filter.h"
#include "confine/landlock.h"
#include "confine/rlimits.h"
#include "confine/root.h"
#include "confine/self.h"
#include "confine/stages.h"
#include "filter-link/filter-link.h"
#include "filter/filter-confine.h"

/* Where the root is mounted. The path means nothing after it becomes "/". */
#define PLACE "/run"

#define NAMESPACES (CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)
#define MEMORY_MAX (UINT64_C(1) << 30)
#define FILE_MAX   (UINT64_C(16) << 20) /* stderr may be a file; nothing else is written */

enum {
	FILES_MAX = 64,
	KEPT = 5,
};

struct jail {
	const struct filter_jail *given;
	bool has_namespaces;
	ino_t network; /* the warden's */
};

int filter_confine_fds(struct err *e)
{
	int kept[KEPT] = { 0, 1, STDERR_FILENO, FILTER_FD_WARDEN, FILTER_FD_KEEPER };
	int r = self_null_stdio(2);

	if (r == 0)
		r = fd_close_others(0, kept, KEPT);
	return r < 0 ? err_set(e, r, "cannot close descriptors: %s", strerror(-r)) : 0;
}

/* ---- 1 to 3: capabilities, namespaces, root ---- */

static int drop_bounding_set(void *arg)
{
	const struct jail *j = arg;
	int r = caps_bound(0);

	return r == -EPERM && !j->given->has_uid ? 0 : r;
}

static ino_t network(void)
{
	struct stat st;

	return stat("/proc/self/ns/net", &st) < 0 ? 0 : st.st_ino;
}

static int make_namespaces(void *arg)
{
	struct jail *j = arg;

	j->network = network();
	j->has_namespaces = unshare(NAMESPACES) == 0;
	return !j->has_namespaces && j->given->has_uid ? -errno : 0;
}

static int has_other_network(void *arg)
{
	const struct jail *j = arg;

	return j->has_namespaces && network() == j->network ? -EPERM : 0;
}

static int empty_root(void *arg)
{
	const struct jail *j = arg;

	if (!j->has_namespaces)
		return 0;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	return root_enter_empty(PLACE);
}

static int has_empty_root(void *arg)
{
	const struct jail *j = arg;

	return j->has_namespaces ? root_check_empty() : 0;
}

/* ---- 4 and 5: identity ---- */

static int become_user(void *arg)
{
	const struct jail *j = arg;

	return j->given->has_uid ? become(j->given->uid) : 0;
}

static int die_with_warden(void *arg)
{
	int r = self_die_with_parent();

	return r < 0 ? r : self_not_dumpable();
}

static int has_warden(void *arg)
{
	const struct jail *j = arg;

	return getppid() != j->given->parent ? -ESRCH : 0;
}

/* ---- 6 and 7: limits, Landlock ---- */

static int set_limits(void *arg)
{
	static const struct limit limits[] = {
		{ RLIMIT_NOFILE, FILES_MAX }, { RLIMIT_NPROC, 0 },   { RLIMIT_CORE, 0 },
		{ RLIMIT_FSIZE, FILE_MAX },   { RLIMIT_MEMLOCK, 0 }, { RLIMIT_MSGQUEUE, 0 },
		{ RLIMIT_DATA, MEMORY_MAX },
	};

	/* The last one is too low for a sanitizer's shadow memory. */
	return rlimits_lower(limits, ARRAY_SIZE(limits) - SANITIZED);
}

static int forbid_files(void *arg)
{
	int r = landlock_forbid_all(false, -EBADF, 0);

	if (r == 0)
		log_warning("this kernel has no Landlock for hutch-filter");
	return MIN(r, 0);
}

/* ---- 8: seccomp ---- */

/* clang-format off */
static const struct sock_filter serving[] = {
	FILTER_HEAD,

	/* Messages, the most frequent calls first; log lines go to stderr. */
	ALLOW(read), ALLOW(write),
#ifdef __NR_epoll_wait
	ALLOW(epoll_wait),
#endif
	ALLOW(epoll_pwait), ALLOW(epoll_ctl), ALLOW(timerfd_settime),

	ALLOW_MEMORY,

	/* The configuration comes in a memfd. */
	ALLOW(recvmsg), ALLOW(pread64), ALLOW(close),

	/* Where the vDSO cannot tell the time. */
	ALLOW(clock_gettime), ALLOW(gettimeofday),

	/* Log lines have the pid; jansson and Hyperscan's tables may draw seeds. */
	ALLOW(getpid), ALLOW(getrandom),

	/* The C library's locks; they never wait, because there is one thread. */
	ALLOW(futex), ALLOW(exit_group), ALLOW(restart_syscall), ALLOW(rt_sigreturn),

	RETURN(OTHERWISE),
};
/* clang-format on */

static int filter_calls(void *arg)
{
	return filter_apply(serving, ARRAY_SIZE(serving));
}

static const struct confine_stage stages[] = {
	{ "the bounding set", drop_bounding_set },
	{ "namespaces", make_namespaces, has_other_network },
	{ "an empty root", empty_root, has_empty_root },
	{ "user and groups", become_user },
	{ "capabilities", stage_drop_privileges, stage_has_no_privileges },
	{ "the tie to the warden", die_with_warden, has_warden },
	{ "limits", set_limits },
	{ "Landlock", forbid_files, stage_has_no_files },
	{ "the syscall filter", filter_calls },
	{ NULL },
};

int filter_confine(const struct filter_jail *j, struct err *e)
{
	struct jail jail = { .given = j };

	return confine_run_err(stages, &jail, "isolating hutch-filter", e);
}
