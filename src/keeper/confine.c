/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the keeper gives up before it reads a byte of the guest. In this order:
 *
 * 1. Descriptors: all but stderr and those it was given (keeper_confine_fds(), before the loop is
 * made).
 * 2. Capabilities, with the bounding and the ambient set; no new privileges.
 * 3. Its user: an id of its own that owns nothing, no further groups.
 * 4. Its life ends with the warden's: the kernel kills it. Set after the ids, because a change of
 *    ids forgets it, and checked after that, because the warden may have gone before.
 * 5. It is not dumpable: nobody but root may look into it.
 * 6. Limits: descriptors, processes, memory, and how long its log and a record may get.
 * 7. Landlock, with every right handled and none allowed: no file, no TCP, no abstract socket and
 * no signal to others. A kernel without it has the other stages.
 * 8. seccomp: the system calls of serving, and death for any other.
 *
 * No network namespace: with the calls that make and join sockets gone there is nothing to reach
 * from one, and one for each of a thousand sandboxes costs memory and time. Where something may go
 * out, what can be dialled is held by the guard, which is not the keeper's to give up
 * (engine/dial-guard.h).
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
/* The audit log's, which is the largest but for a record; its own stderr is one too. */
#define FILE_MAX      ((uint64_t)AUDIT_SANDBOX_FILE_MAX)
#define RECORD_HEADER UINT64_C(4096)

enum {
	FILES_MAX = 512, /* clients, records of commands, and the few of the loop */
	KEPT_MAX = 6,
};

/* Does the policy let anything out? Only then can the keeper make sockets and connect them. */
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

/*
 * Port 0 is in no rule, so whatever the policy says this is refused by the guard, and by nothing
 * else: without one, the answer is that nobody listens.
 */
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

/* ---- 2 to 5: who it is ---- */

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

/* Two sockets a stream, and two pipes while bytes are on their way both ways. */
static uint64_t most_files(const struct keeper_start *s)
{
	const uint64_t each = is_vm(s) ? 7 : 6; /* a VM's come by a pair of sockets */

	return FILES_MAX + (has_egress(s->spec) ? each * s->spec->egress.streams : 0);
}

static int set_limits(void *arg)
{
	const struct keeper_start *s = arg;
	const struct limit limits[] = {
		{ RLIMIT_NOFILE, most_files(s) },
		{ RLIMIT_NPROC, 0 },
		{ RLIMIT_CORE, 0 },
		{ RLIMIT_FSIZE, MAX(FILE_MAX, RECORD_HEADER + s->spec->limits.output) },
		{ RLIMIT_AS, MEMORY_MAX },
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

	/* Bytes. The most frequent first. */
	ALLOW(read), ALLOW(write), ALLOW(writev), ALLOW(pwritev), ALLOW(pwrite64),
#ifdef __NR_epoll_wait
	ALLOW(epoll_wait),
#endif
	ALLOW(epoll_pwait), ALLOW(epoll_ctl), ALLOW(timerfd_settime), ALLOW(clock_gettime),
	ALLOW(accept4), ALLOW(close),

	/* The warden's notes, which bring the files of records. */
	ALLOW(recvmsg),

	ALLOW_MEMORY,

	/* The process itself: its number in log lines, its end, a system call after SIGCONT. */
	ALLOW(getpid), ALLOW(exit_group), ALLOW(restart_syscall), ALLOW(rt_sigreturn),

	/* Locks of the C library, which never wait: there is one thread. */
	ALLOW(futex),

	/* Who is there, what went wrong, and nothing else about a socket. */
	UNLESS(__NR_getsockopt, 8),
	LOAD_ARG(1), UNLESS(SOL_SOCKET, 5),
	LOAD_ARG(2), UNLESS(SO_PEERCRED, 1),
	RETURN(SECCOMP_RET_ALLOW),
	UNLESS(SO_ERROR, 1),
	RETURN(SECCOMP_RET_ALLOW),
	RETURN(OTHERWISE),

};

/* What egress needs on top; for keepers of sandboxes that nothing may leave, it is not there. */
static const struct sock_filter dialling[] = {
	/* Bytes between sockets, and the questions and answers of DNS. */
	ALLOW(splice), ALLOW(recvfrom), ALLOW(sendto), ALLOW(pipe2), ALLOW(shutdown),

	/* Which address a program has connected to; the address that was checked. */
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

	/* No delay; a reset instead of an end. */
	UNLESS(__NR_setsockopt, 10),
	LOAD_ARG(1), UNLESS(IPPROTO_TCP, 3),
	LOAD_ARG(2), UNLESS(TCP_NODELAY, 4),
	RETURN(SECCOMP_RET_ALLOW),
	UNLESS(SOL_SOCKET, 2),
	LOAD_ARG(2), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SO_LINGER, 1, 0),
	RETURN(OTHERWISE),
	RETURN(SECCOMP_RET_ALLOW),

	/* How much a pipe holds. */
	UNLESS(__NR_fcntl, 4),
	LOAD_ARG(1), UNLESS(F_SETPIPE_SZ, 1),
	RETURN(SECCOMP_RET_ALLOW),
	RETURN(OTHERWISE),
};

/* The streams of a machine come by its channel, and the broker takes sockets. A pair of this type
 * is connected to itself for good: it can be joined to nothing else. */
static const struct sock_filter pairing[] = {
	UNLESS(__NR_socketpair, 7),
	LOAD_ARG(0), UNLESS(AF_UNIX, 4),
	LOAD_ARG(1), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf), UNLESS(SOCK_STREAM, 1),
	RETURN(SECCOMP_RET_ALLOW),
	RETURN(OTHERWISE),
};
/* What a machine needs: a seed for its random numbers, a file for its monitor. */
static const struct sock_filter monitoring[] = {
	ALLOW(getrandom), ALLOW(sendmsg),
};
/* clang-format on */

struct program {
	struct sock_filter filter[ARRAY_SIZE(serving) + ARRAY_SIZE(dialling) + ARRAY_SIZE(pairing) +
				  ARRAY_SIZE(monitoring) + 1];
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
	{ "the filter of system calls", filter_calls },
	{ NULL },
};

int keeper_confine(const struct keeper_start *s, struct err *e)
{
	return confine_run_err(stages, (void *)s, "isolating the keeper", e);
}
