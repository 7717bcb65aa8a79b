/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Confines the keeper before it reads a byte from the guest. In this order:
 *
 * 1. Descriptors: closes all but stderr and those of keeper_start (keeper_confine_fds(), before the
 *    loop is created).
 * 2. The capability bounding set.
 * 3. User and groups: an id of its own, which owns nothing, and no supplementary groups. Then all
 *    other capability sets; no new privileges.
 * 4. Death with the warden: the kernel kills the keeper. Set after the ids, because changing ids
 *    clears it; checked afterwards, because the warden may already be dead.
 * 5. Not dumpable: only root can inspect the process.
 * 6. Limits: descriptors, processes, memory, file size.
 * 7. Landlock, handling every right and allowing none: no files, no TCP, no abstract sockets, no
 *    signals to other processes. On a kernel without Landlock the other stages still hold.
 * 8. seccomp: allows only the system calls of serving; any other kills the keeper.
 *
 * There is no network namespace: the filter forbids creating and connecting sockets, so there is
 * nothing to reach, and one namespace for each of a thousand sandboxes costs memory and time. If
 * the policy allows egress, the dial guard limits which addresses the keeper can connect to; the
 * keeper cannot remove it (engine/dial-guard.h).
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "confine/become.h"
#include "confine/caps.h"
#include "confine/filter.h"
#include "confine/landlock.h"
#include "confine/rlimits.h"
#include "confine/self.h"
#include "confine/stages.h"
#include "engine/engine.h"
#include "keeper/keeper-confine.h"

#define MEMORY_MAX (UINT64_C(512) << 20)
/* The audit log is the largest file but for a record. The limit covers stderr too. */
#define FILE_MAX      ((uint64_t)AUDIT_SANDBOX_FILE_MAX)
#define RECORD_HEADER UINT64_C(4096)

enum {
	FILES_MAX = 512, /* clients, records, and the loop's own */
	KEPT_MAX = 6,
};

/* True if the policy allows egress; only then may the keeper create and connect sockets. */
static bool has_egress(const struct spec *spec)
{
	return spec->egress.allow.n > 0;
}

static bool is_vm(const struct keeper_start *s)
{
	return engine_has(s->engine, ENGINE_OWN_KERNEL);
}

/* ---- 1: descriptors ---- */

int keeper_confine_fds(const struct keeper_start *s, struct err *e)
{
	int kept[KEPT_MAX] = { STDERR_FILENO, s->guest,	 s->monitor,
			       s->listener,   s->warden, s->chain ? s->chain->fd : -EBADF };
	int r = fd_close_others(0, kept, KEPT_MAX);

	return r < 0 ? err_set(e, r, "cannot close descriptors: %s", strerror(-r)) : 0;
}

/* ---- the guard ---- */

/* No rule names port 0, so only the guard refuses this connection (EPERM). Without a guard the
 * kernel answers ECONNREFUSED. */
int keeper_try_guard(const struct keeper_start *s, struct err *e)
{
	const struct sockaddr_in to = { .sin_family = AF_INET,
					.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	_cleanup_close_ int fd = -EBADF;

	if (!s->guarded)
		return 0;
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return err_errno(e, "cannot try the keeper's guard");
	if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) < 0 && errno == EPERM)
		return 0;
	return err_set(e, -EPERM,
		       "the keeper's guard does not refuse a connection to loopback; see "
		       "net.dial-guard in 'hutch doctor'");
}

/* ---- 2 to 5: identity ---- */

static int drop_bounding_set(void *arg)
{
	return caps_bound(0);
}

static int become_user(void *arg)
{
	const struct keeper_start *s = arg;

	return become(s->id);
}

static int die_with_warden(void *arg)
{
	int r = self_die_with_parent();

	return r < 0 ? r : self_not_dumpable();
}

static int has_warden(void *arg)
{
	const struct keeper_start *s = arg;

	return getppid() != s->parent ? -ESRCH : 0;
}

/* ---- 6: limits ---- */

/* Each stream needs two sockets, and two pipes while bytes flow both ways. */
static uint64_t most_files(const struct keeper_start *s)
{
	const uint64_t each = is_vm(s) ? 7 : 6; /* a VM's stream has a socket pair too */

	return FILES_MAX + (has_egress(s->spec) ? each * s->spec->egress.streams : 0);
}

static int set_limits(void *arg)
{
	const struct keeper_start *s = arg;
	const uint64_t file = MAX(FILE_MAX, RECORD_HEADER + s->spec->limits.output);
	const struct limit limits[] = {
		{ RLIMIT_NOFILE, most_files(s) }, { RLIMIT_NPROC, 0 },	     { RLIMIT_CORE, 0 },
		{ RLIMIT_FSIZE, file },		  { RLIMIT_AS, MEMORY_MAX },
	};

	return rlimits_lower(limits, ARRAY_SIZE(limits));
}

/* ---- 7: Landlock ---- */

static int forbid_files(void *arg)
{
	const struct keeper_start *s = arg;
	int r = landlock_forbid_all(has_egress(s->spec), -EBADF, 0);

	if (r == 0)
		log_warning("this kernel has no Landlock for the keeper");
	return MIN(r, 0);
}

/* ---- 8: seccomp ---- */

/* clang-format off */
static const struct sock_filter serving[] = {
	FILTER_HEAD,

	/* Input and output, the most frequent calls first. */
	ALLOW(read), ALLOW(write), ALLOW(writev), ALLOW(pwritev), ALLOW(pwrite64),
#ifdef __NR_epoll_wait
	ALLOW(epoll_wait),
#endif
	ALLOW(epoll_pwait), ALLOW(epoll_ctl), ALLOW(timerfd_settime), ALLOW(clock_gettime),
	ALLOW(accept4), ALLOW(close),

	/* Notes from the warden carry the files of records. */
	ALLOW(recvmsg),

	ALLOW_MEMORY,

	/* The process itself: its pid for log lines, its exit, restarting a system call after
	 * SIGCONT. */
	ALLOW(getpid), ALLOW(exit_group), ALLOW(restart_syscall), ALLOW(rt_sigreturn),

	/* The C library's locks; they never wait, because there is one thread. */
	ALLOW(futex),

	/* Socket options: only the peer's credentials, pending errors, and the byte counts of
	 * streams that hutch-tap carries. */
	UNLESS(__NR_getsockopt, 12),
	LOAD_ARG(1), UNLESS(IPPROTO_TCP, 3),
	LOAD_ARG(2), UNLESS(TCP_INFO, 7),
	RETURN(SECCOMP_RET_ALLOW),
	UNLESS(SOL_SOCKET, 5),
	LOAD_ARG(2), UNLESS(SO_PEERCRED, 1),
	RETURN(SECCOMP_RET_ALLOW),
	UNLESS(SO_ERROR, 1),
	RETURN(SECCOMP_RET_ALLOW),
	RETURN(OTHERWISE),

};

/* Added only if the policy allows egress. */
static const struct sock_filter dialling[] = {
	/* Moving bytes between sockets, and DNS queries and answers. */
	ALLOW(splice), ALLOW(recvfrom), ALLOW(sendto), ALLOW(pipe2), ALLOW(shutdown),

	/* getsockname: the address that a program connected to. connect: to a checked address. */
	ALLOW(getsockname), ALLOW(connect),

	/* TCP and UDP, and no other family: no Unix socket, no netlink, nothing raw. */
	UNLESS(__NR_socket, 13),
	LOAD_ARG(0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET, 1, 0), UNLESS(AF_INET6, 9),
	LOAD_ARG(1), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_STREAM, 1, 0), UNLESS(SOCK_DGRAM, 5),
	LOAD_ARG(2),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 2, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IPPROTO_TCP, 1, 0), UNLESS(IPPROTO_UDP, 1),
	RETURN(SECCOMP_RET_ALLOW),
	RETURN(OTHERWISE),

	/* TCP_NODELAY, and SO_LINGER to close with a reset. */
	UNLESS(__NR_setsockopt, 10),
	LOAD_ARG(1), UNLESS(IPPROTO_TCP, 3),
	LOAD_ARG(2), UNLESS(TCP_NODELAY, 4),
	RETURN(SECCOMP_RET_ALLOW),
	UNLESS(SOL_SOCKET, 2),
	LOAD_ARG(2), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SO_LINGER, 1, 0),
	RETURN(OTHERWISE),
	RETURN(SECCOMP_RET_ALLOW),

	/* The capacity of a pipe. */
	UNLESS(__NR_fcntl, 4),
	LOAD_ARG(1), UNLESS(F_SETPIPE_SZ, 1),
	RETURN(SECCOMP_RET_ALLOW),
	RETURN(OTHERWISE),
};

/* Only with hutch-tap: streams are passed to it. */
static const struct sock_filter passing[] = {
	ALLOW(sendmsg),
};

/* A VM's streams come over its channel, but the broker needs sockets. A pair of this type is
 * connected for good: neither end can be connected to anything else. */
static const struct sock_filter pairing[] = {
	UNLESS(__NR_socketpair, 7),
	LOAD_ARG(0), UNLESS(AF_UNIX, 4),
	LOAD_ARG(1), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf), UNLESS(SOCK_STREAM, 1),
	RETURN(SECCOMP_RET_ALLOW),
	RETURN(OTHERWISE),
};
/* For VMs: random seeds, and passing a file to the monitor. */
static const struct sock_filter monitoring[] = {
	ALLOW(getrandom), ALLOW(sendmsg),
};
/* clang-format on */

struct program {
	struct sock_filter filter[ARRAY_SIZE(serving) + ARRAY_SIZE(dialling) + ARRAY_SIZE(passing) +
				  ARRAY_SIZE(pairing) + ARRAY_SIZE(monitoring) + 1];
	size_t n;
};

static void add_filter(struct program *p, const struct sock_filter *more, size_t n)
{
	memcpy(p->filter + p->n, more, n * sizeof(*more));
	p->n += n;
}

static int filter_calls(void *arg)
{
	static const struct sock_filter last = RETURN(OTHERWISE);
	const struct keeper_start *s = arg;
	struct program p = { .n = 0 };

	add_filter(&p, serving, ARRAY_SIZE(serving));
	if (has_egress(s->spec))
		add_filter(&p, dialling, ARRAY_SIZE(dialling));
	if (s->spec->tap_hosts.n > 0)
		add_filter(&p, passing, ARRAY_SIZE(passing));
	if (has_egress(s->spec) && is_vm(s))
		add_filter(&p, pairing, ARRAY_SIZE(pairing));
	if (is_vm(s))
		add_filter(&p, monitoring, ARRAY_SIZE(monitoring));
	add_filter(&p, &last, 1);
	return filter_apply(p.filter, p.n);
}

static const struct confine_stage stages[] = {
	{ "the bounding set", drop_bounding_set },
	{ "user and groups", become_user },
	{ "capabilities", stage_drop_privileges, stage_has_no_privileges },
	{ "the tie to the warden", die_with_warden, has_warden },
	{ "limits", set_limits },
	{ "Landlock", forbid_files, stage_has_no_files },
	{ "the syscall filter", filter_calls },
	{ NULL },
};

int keeper_confine(const struct keeper_start *s, struct err *e)
{
	return confine_run_err(stages, (void *)s, "isolating the keeper", e);
}
