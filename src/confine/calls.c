/* SPDX-License-Identifier: Apache-2.0 */
#include "confine/calls.h"

#include <errno.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/util.h"

/* Missing from the headers of Debian 12. */
#ifndef PR_GET_AUXV
#define PR_GET_AUXV 0x41555856
#endif

#define CALL(name)                \
	{                         \
#name, SYS_##name \
	}
#define CALL_OF(name) ((struct call)CALL(name))

/* clang-format off */
/* Sorted, so that a missing call is easy to see. */
const struct call calls_allowed[] = {
	CALL(accept), CALL(accept4), CALL(bind), CALL(brk), CALL(capget), CALL(capset), CALL(chdir),
	CALL(clock_getres), CALL(clock_gettime), CALL(clock_nanosleep), CALL(close), CALL(close_range),
	CALL(connect), CALL(copy_file_range), CALL(dup), CALL(dup3), CALL(epoll_create1), CALL(epoll_ctl),
	CALL(epoll_pwait), CALL(epoll_pwait2), CALL(eventfd2), CALL(execve), CALL(execveat), CALL(exit),
	CALL(exit_group), CALL(faccessat), CALL(faccessat2), CALL(fadvise64), CALL(fallocate),
	CALL(fchdir), CALL(fchmod), CALL(fchmodat), CALL(fchown), CALL(fchownat), CALL(fcntl),
	CALL(fdatasync), CALL(fgetxattr), CALL(flistxattr), CALL(flock), CALL(fremovexattr),
	CALL(fsetxattr), CALL(fstat), CALL(fstatfs), CALL(fsync), CALL(ftruncate), CALL(futex),
	CALL(futex_waitv), CALL(get_robust_list), CALL(getcpu), CALL(getcwd), CALL(getdents64),
	CALL(getegid), CALL(geteuid), CALL(getgid), CALL(getgroups), CALL(getitimer), CALL(getpeername),
	CALL(getpgid), CALL(getpid), CALL(getppid), CALL(getpriority), CALL(getrandom), CALL(getresgid),
	CALL(getresuid), CALL(getrlimit), CALL(getrusage), CALL(getsid), CALL(getsockname),
	CALL(getsockopt), CALL(gettid), CALL(gettimeofday), CALL(getuid), CALL(getxattr),
	CALL(inotify_add_watch), CALL(inotify_init1), CALL(inotify_rm_watch), CALL(ioprio_get),
	CALL(ioprio_set), CALL(kill), CALL(landlock_add_rule), CALL(landlock_create_ruleset),
	CALL(landlock_restrict_self), CALL(lgetxattr), CALL(linkat), CALL(listen), CALL(listxattr),
	CALL(llistxattr), CALL(lremovexattr), CALL(lseek), CALL(lsetxattr), CALL(madvise),
	CALL(membarrier), CALL(memfd_create), CALL(mincore), CALL(mkdirat), CALL(mknodat), CALL(mlock),
	CALL(mlock2), CALL(mlockall), CALL(mmap), CALL(mprotect), CALL(mq_getsetattr), CALL(mq_notify),
	CALL(mq_open), CALL(mq_timedreceive), CALL(mq_timedsend), CALL(mq_unlink), CALL(mremap),
	CALL(msgctl), CALL(msgget), CALL(msgrcv), CALL(msgsnd), CALL(msync), CALL(munlock),
	CALL(munlockall), CALL(munmap), CALL(nanosleep), CALL(newfstatat), CALL(openat), CALL(openat2),
	CALL(pidfd_open), CALL(pidfd_send_signal), CALL(pipe2), CALL(pkey_alloc), CALL(pkey_free),
	CALL(pkey_mprotect), CALL(ppoll), CALL(pread64), CALL(preadv), CALL(preadv2),
	CALL(process_vm_readv), CALL(process_vm_writev), CALL(pselect6), CALL(ptrace), CALL(pwrite64),
	CALL(pwritev), CALL(pwritev2), CALL(read), CALL(readahead), CALL(readlinkat), CALL(readv),
	CALL(recvfrom), CALL(recvmmsg), CALL(recvmsg), CALL(removexattr), CALL(renameat), CALL(renameat2),
	CALL(restart_syscall), CALL(rseq), CALL(rt_sigaction), CALL(rt_sigpending), CALL(rt_sigprocmask),
	CALL(rt_sigqueueinfo), CALL(rt_sigreturn), CALL(rt_sigsuspend), CALL(rt_sigtimedwait),
	CALL(rt_tgsigqueueinfo), CALL(sched_get_priority_max), CALL(sched_get_priority_min),
	CALL(sched_getaffinity), CALL(sched_getattr), CALL(sched_getparam), CALL(sched_getscheduler),
	CALL(sched_rr_get_interval), CALL(sched_setaffinity), CALL(sched_setattr), CALL(sched_setparam),
	CALL(sched_setscheduler), CALL(sched_yield), CALL(semctl), CALL(semget), CALL(semop),
	CALL(semtimedop), CALL(sendfile), CALL(sendmmsg), CALL(sendmsg), CALL(sendto),
	CALL(set_robust_list), CALL(set_tid_address), CALL(setfsgid), CALL(setfsuid), CALL(setgid),
	CALL(setgroups), CALL(setitimer), CALL(setpgid), CALL(setpriority), CALL(setregid),
	CALL(setresgid), CALL(setresuid), CALL(setreuid), CALL(setsid), CALL(setuid), CALL(setxattr),
	CALL(shmat), CALL(shmctl), CALL(shmdt), CALL(shmget), CALL(shutdown), CALL(sigaltstack),
	CALL(signalfd4), CALL(splice), CALL(statfs), CALL(statx), CALL(symlinkat),
	CALL(sync_file_range), CALL(sysinfo), CALL(tee), CALL(tgkill), CALL(timer_create),
	CALL(timer_delete), CALL(timer_getoverrun), CALL(timer_gettime), CALL(timer_settime),
	CALL(timerfd_create), CALL(timerfd_gettime), CALL(timerfd_settime), CALL(times), CALL(tkill),
	CALL(truncate), CALL(umask), CALL(uname), CALL(unlinkat), CALL(utimensat), CALL(vmsplice),
	CALL(wait4), CALL(waitid), CALL(write), CALL(writev),
#ifdef SYS_open /* and other calls that newer architectures never had */
	CALL(access), CALL(alarm), CALL(arch_prctl), CALL(chmod), CALL(chown), CALL(creat), CALL(dup2),
	CALL(epoll_create), CALL(epoll_wait), CALL(eventfd), CALL(fork), CALL(futimesat), CALL(getdents),
	CALL(getpgrp), CALL(inotify_init), CALL(lchown), CALL(link), CALL(lstat), CALL(mkdir),
	CALL(mknod), CALL(open), CALL(pause), CALL(pipe), CALL(poll), CALL(readlink), CALL(rename),
	CALL(rmdir), CALL(select), CALL(signalfd), CALL(stat), CALL(symlink), CALL(time), CALL(unlink),
	CALL(utime), CALL(utimes), CALL(vfork),
#endif
	{ NULL, 0 },
};

/* A filter cannot inspect the arguments of clone3. */
const struct call calls_absent[] = {
	CALL(clone3), CALL(io_uring_enter), CALL(io_uring_register), CALL(io_uring_setup), { NULL, 0 },
};
/* clang-format on */

/*
 * No file of a sandbox outlives it, so syncing is useless; but sync(2) writes out every disk of the
 * host, and syncfs(2) the one that hutch-guest is on.
 */
const struct call calls_ignored[] = { CALL(sync), CALL(syncfs), { NULL, 0 } };

/* Every flag with which clone(2) makes a namespace. CLONE_NEWTIME is not one: its bit is in the
 * exit signal. */
#define NAMESPACES                                                                     \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)

/*
 * The allowed sockets of a sandbox. All three numbers must match: the kernel selects the socket,
 * and loads a module for it, by any of them. With protocol 0 the type alone selects it
 * (SOCK_SEQPACKET is SCTP, SOCK_DCCP is DCCP), and other protocols have rarely reviewed code
 * (MPTCP). SOCK_RAW is rejected here, not only by the kernel's own check.
 */
static const struct socket_kind {
	uint64_t family, type, protocol;
} socket_kinds[] = {
	{ AF_UNIX, SOCK_STREAM, 0 },
	{ AF_UNIX, SOCK_STREAM, PF_UNIX },
	{ AF_UNIX, SOCK_DGRAM, 0 },
	{ AF_UNIX, SOCK_DGRAM, PF_UNIX },
	{ AF_UNIX, SOCK_SEQPACKET, 0 },
	{ AF_UNIX, SOCK_SEQPACKET, PF_UNIX },
	{ AF_INET, SOCK_STREAM, 0 },
	{ AF_INET, SOCK_STREAM, IPPROTO_TCP },
	{ AF_INET, SOCK_DGRAM, 0 },
	{ AF_INET, SOCK_DGRAM, IPPROTO_UDP },
	{ AF_INET, SOCK_DGRAM, IPPROTO_ICMP },
	{ AF_INET6, SOCK_STREAM, 0 },
	{ AF_INET6, SOCK_STREAM, IPPROTO_TCP },
	{ AF_INET6, SOCK_DGRAM, 0 },
	{ AF_INET6, SOCK_DGRAM, IPPROTO_UDP },
	{ AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6 },
};

/* Flags allowed with a type; the kernel rejects every other bit. */
static const uint64_t socket_flags = SOCK_CLOEXEC | SOCK_NONBLOCK;

/* Values for debuggers and old programs; 0xffffffff queries the current one. */
static const uint64_t personalities[] = { 0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff };

/* Receiver of the rules. */
struct taker {
	call_rule_fn *take;
	void *arg;
};

/* Allows `call` if all comparisons hold. */
static int allow_if(const struct taker *t, struct call call, const struct call_compare *c, size_t n)
{
	return t->take(&(struct call_rule){ call, true, c, n }, t->arg);
}

/* Makes `call` succeed without effect, like calls_ignored, if all comparisons hold. */
static int ignore_if(const struct taker *t, struct call call, const struct call_compare *c,
		     size_t n)
{
	return t->take(&(struct call_rule){ call, false, c, n }, t->arg);
}

/* Allows `call` for some values of its first argument, of which the kernel uses 32 bits. */
static int allow_values(const struct taker *t, struct call call, const uint64_t *values, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = allow_if(t, call, &(struct call_compare){ 0, UINT32_MAX, values[i] }, 1);
	return r;
}

/*
 * Allows all values except some. "Not equal" compares 64 bits while the kernel uses 32, so setting
 * an upper bit would bypass it. Instead, this allows the largest blocks of values with common upper
 * bits that contain no refused value.
 */
struct but {
	struct call call;
	int argument;
	unsigned int bits; /* larger values are refused as well */
	uint64_t refused[4];
	size_t n;
	const struct call_compare *first; /* must hold too; may be NULL */
};

static bool refuses(const struct but *b, uint64_t block, unsigned int bits)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->refused[i] >> bits == block >> bits)
			return true;
	return false;
}

/* Allows the 2^bits values from `block` on. */
static int allow_block(const struct taker *t, const struct but *b, uint64_t block,
		       unsigned int bits)
{
	struct call_compare c[2];
	size_t n = 0;
	int r;

	if (!refuses(b, block, bits)) {
		if (b->first)
			c[n++] = *b->first;
		c[n++] = (struct call_compare){ b->argument, UINT32_MAX & UINT64_MAX << bits,
						block };
		return allow_if(t, b->call, c, n);
	}
	if (bits == 0)
		return 0;
	r = allow_block(t, b, block, bits - 1);
	return r < 0 ? r : allow_block(t, b, block | UINT64_C(1) << (bits - 1), bits - 1);
}

static int allow_but(const struct taker *t, const struct but *b)
{
	return allow_block(t, b, 0, b->bits);
}

/*
 * Only unix sockets come in pairs. Other families fail too late: socketpair(2) first creates two
 * sockets (vsock, AF_ALG), and TIPC supports pairs.
 */
static int allow_sockets(const struct taker *t)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(socket_kinds); i++) {
		const struct socket_kind *k = &socket_kinds[i];
		const struct call_compare is[] = { { 0, UINT32_MAX, k->family },
						   { 1, UINT32_MAX & ~socket_flags, k->type },
						   { 2, UINT32_MAX, k->protocol } };

		r = allow_if(t, CALL_OF(socket), is, ARRAY_SIZE(is));
		if (r == 0 && k->family == AF_UNIX)
			r = allow_if(t, CALL_OF(socketpair), is, ARRAY_SIZE(is));
	}
	return r;
}

/* All except the two that insert input into a terminal. */
static int allow_ioctl(const struct taker *t)
{
	return allow_but(t, &(struct but){ .call = CALL_OF(ioctl),
					   .argument = 1,
					   .bits = 32,
					   .refused = { TIOCSTI, TIOCLINUX },
					   .n = 2 });
}

/*
 * No filter programs, neither by seccomp(2) nor by prctl(2): they run in the kernel, and freeing
 * thousands of stacked ones locks up some kernels (seen on 6.18).
 */
static int allow_prctl(const struct taker *t)
{
	/* The other options are small numbers: about 80, the latest from 2025. */
	static const uint64_t words[] = { PR_SET_PTRACER, PR_SET_VMA, PR_GET_AUXV };
	int r = allow_but(t, &(struct but){ .call = CALL_OF(prctl),
					    .argument = 0,
					    .bits = 8,
					    .refused = { PR_SET_SECCOMP },
					    .n = 1 });

	return r < 0 ? r : allow_values(t, CALL_OF(prctl), words, ARRAY_SIZE(words));
}

/*
 * No filter programs, and no TLS in the kernel or ESP in UDP, which put another protocol's parser
 * on an ordinary socket without any privilege. Programs work without them.
 */
static int allow_setsockopt(const struct taker *t)
{
	/* The same numbers have other meanings on other levels (the highest is 287): 26 is
	 * IPV6_V6ONLY. */
	static const struct call_compare level[] = { { 1, UINT32_MAX, SOL_SOCKET },
						     { 1, UINT32_MAX, IPPROTO_TCP },
						     { 1, UINT32_MAX, IPPROTO_UDP } };
	const struct but rules[] = {
		{ .argument = 1,
		  .bits = 9,
		  .refused = { SOL_SOCKET, IPPROTO_TCP, IPPROTO_UDP },
		  .n = 3 },
		{ .argument = 2,
		  .bits = 8,
		  .first = &level[0],
		  .n = 4,
		  .refused = { SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF,
			       SO_ATTACH_REUSEPORT_EBPF } },
		{ .argument = 2, .bits = 8, .first = &level[1], .n = 1, .refused = { TCP_ULP } },
		{ .argument = 2, .bits = 8, .first = &level[2], .n = 1, .refused = { UDP_ENCAP } },
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(rules); i++) {
		struct but b = rules[i];

		b.call = CALL_OF(setsockopt);
		r = allow_but(t, &b);
	}
	return r;
}

/*
 * The core file limit cannot change, see src/engine/oci.c. Programs that keep secrets set it to 0
 * and exit if that fails (gpg, ssh-agent), so the call pretends to succeed.
 */
static int allow_limits(const struct taker *t)
{
	static const struct call_compare core = { 0, UINT32_MAX, RLIMIT_CORE },
					 asked[] = { { 1, UINT32_MAX, RLIMIT_CORE },
						     { 2, INT64_MAX, 0 } },
					 set[] = { { 1, UINT32_MAX, RLIMIT_CORE }, { 2, 0, 0 } };
	struct but b = {
		.call = CALL_OF(setrlimit), .bits = 4, .refused = { RLIMIT_CORE }, .n = 1
	};
	int r = allow_but(t, &b);

	static_assert(RLIM_NLIMITS <= 16, "four bits");
	b.call = CALL_OF(prlimit64);
	b.argument = 1;
	if (r == 0)
		r = allow_but(t, &b);
	if (r == 0)
		r = ignore_if(t, CALL_OF(setrlimit), &core, 1);
	if (r == 0)
		r = allow_if(t, CALL_OF(prlimit64), asked, ARRAY_SIZE(asked));
	return r < 0 ? r : ignore_if(t, CALL_OF(prlimit64), set, ARRAY_SIZE(set));
}

int calls_conditional(call_rule_fn *take, void *arg)
{
	const struct call_compare no_namespace = { 0, NAMESPACES, 0 };
	const struct taker *t = &(struct taker){ take, arg };
	int r = allow_if(t, CALL_OF(clone), &no_namespace, 1);

	if (r == 0)
		r = allow_sockets(t);
	if (r == 0)
		r = allow_values(t, CALL_OF(personality), personalities, ARRAY_SIZE(personalities));
	if (r == 0)
		r = allow_ioctl(t);
	if (r == 0)
		r = allow_prctl(t);
	if (r == 0)
		r = allow_setsockopt(t);
	return r < 0 ? r : allow_limits(t);
}
