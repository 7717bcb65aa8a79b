/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the keeper gives up before it reads a byte of the guest. In this order:
 *
 * 1. Descriptors: all but stderr and those it was given (isolate_fds(), before the loop is made).
 * 2. Capabilities, with the bounding and the ambient set; no new privileges.
 * 3. Its user: an id of its own that owns nothing, no further groups.
 * 4. Its life ends with the warden's: the kernel kills it. Set after the ids, because a change of
 *    ids forgets it, and checked after that, because the warden may have gone before.
 * 5. It is not dumpable: nobody but root may look into it.
 * 6. Limits: descriptors, processes, memory, and how long its log may get.
 * 7. Landlock, with every right handled and none allowed: no file, no TCP, no abstract socket and
 * no signal to others. A kernel without it has the other stages.
 * 8. seccomp: the system calls of serving, and death for any other.
 *
 * No network namespace: with the calls that make and join sockets gone there is nothing to reach
 * from one, and one for each of a thousand sandboxes costs memory and time.
 */
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "keeper.h"
#include "log.h"

#define MEMORY_MAX (UINT64_C(512) << 20)
#define LOG_MAX	   (UINT64_C(4) << 20)

enum {
	FILES_MAX = 128, /* clients, and the few of the loop */
	KEPT_MAX = 5,
};

/* ---- 1: descriptors ---- */

static int compare_fds(const void *a, const void *b)
{
	const int *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int close_between(int first, int last)
{
	if (first > last)
		return 0;
	return syscall(SYS_close_range, (unsigned int)first, (unsigned int)last, 0) < 0 ? -errno
											: 0;
}

int isolate_fds(const struct keeper_start *s, struct err *e)
{
	int kept[KEPT_MAX] = { STDERR_FILENO, s->guest, s->listener, s->client, s->warden };
	int from = 0, r = 0;

	qsort(kept, KEPT_MAX, sizeof(kept[0]), compare_fds);
	for (size_t i = 0; i < KEPT_MAX && r == 0; i++) {
		if (kept[i] < 0)
			continue;
		r = close_between(from, kept[i] - 1);
		from = kept[i] + 1;
	}
	if (r == 0)
		r = close_between(from, INT32_MAX);
	return r < 0 ? err_set(e, r, "cannot close descriptors: %s", strerror(-r)) : 0;
}

/* ---- 2 to 5: who it is ---- */

static int drop_bounding_set(void)
{
	for (unsigned long cap = 0; cap < 64; cap++)
		if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return errno == EINVAL ? 0 : -errno; /* the kernel has no more */
	return 0;
}

static int become(uint32_t id)
{
	if (setgroups(0, NULL) < 0 || setresgid(id, id, id) < 0 || setresuid(id, id, id) < 0)
		return -errno;
	return 0;
}

static int drop_capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = { 0 };

	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 ||
	    syscall(SYS_capset, &head, none) < 0)
		return -errno;
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

static int die_with(pid_t parent)
{
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	return getppid() != parent ? -ESRCH : 0;
}

/* ---- 6: limits ---- */

static int set_limits(void)
{
	static const struct {
		__rlimit_resource_t what;
		uint64_t value;
	} limits[] = {
		{ RLIMIT_NOFILE, FILES_MAX }, { RLIMIT_NPROC, 0 },	 { RLIMIT_CORE, 0 },
		{ RLIMIT_FSIZE, LOG_MAX },    { RLIMIT_AS, MEMORY_MAX },
	};

	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		struct rlimit now, to;

		if (SANITIZED && limits[i].what == RLIMIT_AS) /* its shadow is terabytes large */
			continue;
		if (getrlimit(limits[i].what, &now) < 0)
			return -errno;
		to.rlim_cur = to.rlim_max = MIN((rlim_t)limits[i].value, now.rlim_max);
		if (setrlimit(limits[i].what, &to) < 0)
			return -errno;
	}
	return 0;
}

/* ---- 7: Landlock ---- */

/* As of version 6, which is newer than the headers of Debian 12. */
struct ruleset_attr {
	uint64_t fs, net, scoped;
};

/* Rights of files by version: 13 at first; then refer, truncate, and (5) ioctl of devices. */
static struct ruleset_attr all_rights(long abi, size_t *ret_n)
{
	unsigned int fs = abi >= 5 ? 16 : abi >= 3 ? 15 : abi >= 2 ? 14 : 13;
	struct ruleset_attr a = { .fs = (UINT64_C(1) << fs) - 1 };

	if (abi >= 4)
		a.net = 3; /* bind and connect */
	if (abi >= 6)
		a.scoped = 3; /* abstract sockets and signals */
	*ret_n = abi >= 6 ? sizeof(a) : abi >= 4 ? 2 * sizeof(a.fs) : sizeof(a.fs);
	return a;
}

static int forbid_files(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
	_cleanup_close_ int ruleset = -EBADF;
	struct ruleset_attr attr;
	size_t n;

	if (abi < 1) {
		log_warning("this kernel has no Landlock for the keeper");
		return 0;
	}
	attr = all_rights(abi, &n);
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, n, 0);
	if (ruleset < 0 || syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return -errno;
	return 0;
}

/* ---- 8: seccomp ---- */

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#else
#error "no list of system calls for this architecture"
#endif

/* A sanitizer's runtime calls what it likes: there the list is only tried out. */
#define OTHERWISE (SANITIZED ? SECCOMP_RET_LOG : SECCOMP_RET_KILL_PROCESS)

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
/* The lower half, on a machine that puts it first; the flags looked at are all in it. */
#define LOAD_ARG(n)	    LOAD(args[n])
#define RETURN(what)	    BPF_STMT(BPF_RET | BPF_K, what)
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define ALLOW(name)	    UNLESS(__NR_##name, 1), RETURN(SECCOMP_RET_ALLOW)

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "LOAD_ARG() takes the lower half");

/* clang-format off */
static const struct sock_filter filter[] = {
	LOAD(arch),
	UNLESS(ARCH, 2),
	LOAD(nr),
	/* Numbers of x32 begin there. No number of another list is that large. */
	BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
	RETURN(SECCOMP_RET_KILL_PROCESS),

	/* Bytes. The most frequent first. */
	ALLOW(read), ALLOW(write), ALLOW(writev),
#ifdef __NR_epoll_wait
	ALLOW(epoll_wait),
#endif
	ALLOW(epoll_pwait), ALLOW(epoll_ctl), ALLOW(timerfd_settime), ALLOW(clock_gettime),
	ALLOW(accept4), ALLOW(close),

	/* Memory, by malloc(3). */
	ALLOW(brk), ALLOW(munmap), ALLOW(mremap), ALLOW(madvise),

	/* The process itself: its number in log lines, its end, a system call after SIGCONT. */
	ALLOW(getpid), ALLOW(exit_group), ALLOW(restart_syscall), ALLOW(rt_sigreturn),

	/* Locks of the C library, which never wait: there is one thread. */
	ALLOW(futex),

	/* Who is there, and nothing else about a socket. */
	UNLESS(__NR_getsockopt, 6),
	LOAD_ARG(1), UNLESS(SOL_SOCKET, 3),
	LOAD_ARG(2), UNLESS(SO_PEERCRED, 1),
	RETURN(SECCOMP_RET_ALLOW),
	RETURN(OTHERWISE),

	/* Memory that is not executable and of no file. */
	UNLESS(__NR_mmap, 6),
	LOAD_ARG(2), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 3, 0),
	LOAD_ARG(3), BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 0, 1),
	RETURN(SECCOMP_RET_ALLOW),
	RETURN(OTHERWISE),

	RETURN(OTHERWISE),
};
/* clang-format on */

static int filter_calls(void)
{
	struct sock_fprog prog = { .len = ARRAY_SIZE(filter),
				   .filter = (struct sock_filter *)filter };

	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0 ? -errno : 0;
}

int isolate(const struct keeper_start *s, struct err *e)
{
	const char *at = "the bounding set";
	int r = drop_bounding_set();

	if (r == 0 && (at = "user and groups"))
		r = become(s->id);
	if (r == 0 && (at = "capabilities"))
		r = drop_capabilities();
	if (r == 0 && (at = "the tie to the warden"))
		r = die_with(s->parent);
	if (r == 0 && (at = "limits"))
		r = set_limits();
	if (r == 0 && (at = "Landlock"))
		r = forbid_files();
	if (r == 0 && (at = "the filter of system calls"))
		r = filter_calls();
	return r < 0 ? err_set(e, r, "isolating the keeper, %s: %s", at, strerror(-r)) : 0;
}
