/* SPDX-License-Identifier: Apache-2.0 */
#include "seccomp.h"

#include <errno.h>
#include <linux/sched.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "json-util.h"

/* Newer than the headers of Debian 12. */
#ifndef PR_GET_AUXV
#define PR_GET_AUXV 0x41555856
#endif

/* clang-format off */
/* Allowed whatever their arguments. Sorted, so that a missing one is seen at a glance. */
static const char *const allowed[] = {
	"accept", "accept4", "access", "alarm", "arch_prctl", "bind", "brk", "capget", "capset", "chdir",
	"chmod", "chown", "clock_getres", "clock_gettime", "clock_nanosleep", "close", "close_range",
	"connect", "copy_file_range", "creat", "dup", "dup2", "dup3", "epoll_create", "epoll_create1",
	"epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "execve",
	"execveat", "exit", "exit_group", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir",
	"fchmod", "fchmodat", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr",
	"flock", "fork", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futex",
	"futex_waitv", "futimesat", "get_robust_list", "getcpu", "getcwd", "getdents", "getdents64",
	"getegid", "geteuid", "getgid", "getgroups", "getitimer", "getpeername", "getpgid", "getpgrp",
	"getpid", "getppid", "getpriority", "getrandom", "getresgid", "getresuid", "getrlimit", "getrusage",
	"getsid", "getsockname", "getsockopt", "gettid", "gettimeofday", "getuid", "getxattr",
	"inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", "ioprio_get",
	"ioprio_set", "kill", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
	"lchown", "lgetxattr", "link", "linkat", "listen", "listxattr", "llistxattr", "lremovexattr",
	"lseek", "lsetxattr", "lstat", "madvise", "membarrier", "memfd_create", "mincore", "mkdir",
	"mkdirat", "mknod", "mknodat", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mq_getsetattr",
	"mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "mremap", "msgctl",
	"msgget", "msgrcv", "msgsnd", "msync", "munlock", "munlockall", "munmap", "nanosleep",
	"newfstatat", "open", "openat", "openat2", "pause", "pidfd_open", "pidfd_send_signal", "pipe",
	"pipe2", "pkey_alloc", "pkey_free", "pkey_mprotect", "poll", "ppoll", "pread64", "preadv",
	"preadv2", "process_vm_readv", "process_vm_writev", "pselect6", "ptrace", "pwrite64",
	"pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", "recvfrom",
	"recvmmsg", "recvmsg", "removexattr", "rename", "renameat", "renameat2", "restart_syscall",
	"rmdir", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo",
	"rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo", "sched_get_priority_max",
	"sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
	"sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setattr",
	"sched_setparam", "sched_setscheduler", "sched_yield", "select", "semctl", "semget",
	"semop", "semtimedop", "sendfile", "sendmmsg", "sendmsg", "sendto", "set_robust_list",
	"set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups", "setitimer", "setpgid",
	"setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setsid",
	"setuid", "setxattr", "shmat", "shmctl", "shmdt", "shmget", "shutdown",
	"sigaltstack", "signalfd", "signalfd4", "socketpair", "splice", "stat", "statfs", "statx",
	"symlink", "symlinkat", "sync_file_range", "sysinfo", "tee", "tgkill", "time",
	"timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime",
	"timerfd_create", "timerfd_gettime", "timerfd_settime", "times", "tkill", "truncate", "umask",
	"uname", "unlink", "unlinkat", "utime", "utimensat", "utimes", "vfork", "vmsplice", "wait4",
	"waitid", "write", "writev",
};

/* "Not there" rather than "not allowed": callers then fall back to what is. clone3 cannot be looked into by a filter. */
static const char *const absent[] = { "clone3", "io_uring_enter", "io_uring_register", "io_uring_setup" };
/* clang-format on */

/*
 * Done, without doing it. Nothing in a sandbox outlives it, so there is nothing to sync; but
 * sync(2) writes out every disk of the host, and syncfs(2) the one that hutch-guest is on.
 */
static const char *const ignored[] = { "sync", "syncfs" };

/* Every flag with which clone(2) makes a namespace; CLONE_NEWTIME lies in the byte of the exit
 * signal and is not one. */
#define NAMESPACES                                                                     \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)

static const uint64_t families[] = { AF_UNIX, AF_INET, AF_INET6 };

/* What debuggers and old programs ask for; 0xffffffff asks what it is now. */
static const uint64_t personalities[] = { 0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff };

/* Holds if (argument & mask) == value; without a mask, if the argument is anything but 0. */
struct compare {
	int argument;
	uint64_t mask, value;
};

static json_t *compare_json(const struct compare *c)
{
	if (c->mask == 0)
		return JSON_OBJECT({ "index", json_integer(c->argument) },
				   { "op", json_string("SCMP_CMP_NE") },
				   { "value", json_number(0) });
	return JSON_OBJECT(
		{ "index", json_integer(c->argument) }, { "op", json_string("SCMP_CMP_MASKED_EQ") },
		{ "value", json_number(c->mask) }, { "valueTwo", json_number(c->value) });
}

/* NULL without memory. */
static json_t *comparisons(const struct compare *c, size_t n)
{
	_cleanup_json_ json_t *args = json_array();

	for (size_t i = 0; i < n; i++)
		if (json_push(args, compare_json(&c[i])) < 0)
			return NULL;
	return TAKE_PTR(args);
}

/* Allows `call` if one or two comparisons hold. */
static int allow_if(json_t *rules, const char *call, const struct compare *c, size_t n)
{
	return json_push(rules, JSON_OBJECT({ "names", json_texts(&call, 1) },
					    { "action", json_string("SCMP_ACT_ALLOW") },
					    { "args", comparisons(c, n) }));
}

/* Like `ignored`, if they hold. */
static int ignore_if(json_t *rules, const char *call, const struct compare *c, size_t n)
{
	return json_push(rules, JSON_OBJECT({ "names", json_texts(&call, 1) },
					    { "action", json_string("SCMP_ACT_ERRNO") },
					    { "errnoRet", json_integer(0) },
					    { "args", comparisons(c, n) }));
}

/* Allows `call` for values of its first argument, of which the kernel looks at 32 bits. */
static int allow_values(json_t *rules, const char *call, const uint64_t *values, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = allow_if(rules, call, &(struct compare){ 0, UINT32_MAX, values[i] }, 1);
	return r;
}

/*
 * All values but some. "Not equal" compares 64 bits while the kernel looks at 32, so that a bit
 * above them would slip through. Instead: the largest blocks of values, with the same upper bits,
 * that hold none of those.
 */
struct but {
	const char *call;
	int argument;
	unsigned int bits; /* values that need more are refused as well */
	uint64_t refused[4];
	size_t n;
	const struct compare *first; /* holds too; may be NULL */
};

static bool refuses(const struct but *b, uint64_t block, unsigned int bits)
{
	for (size_t i = 0; i < b->n; i++)
		if (b->refused[i] >> bits == block >> bits)
			return true;
	return false;
}

/* The 2^bits values from `block` on. */
static int allow_block(json_t *rules, const struct but *b, uint64_t block, unsigned int bits)
{
	struct compare c[2];
	size_t n = 0;
	int r;

	if (!refuses(b, block, bits)) {
		if (b->first)
			c[n++] = *b->first;
		c[n++] = (struct compare){ b->argument, UINT32_MAX & UINT64_MAX << bits, block };
		return allow_if(rules, b->call, c, n);
	}
	if (bits == 0)
		return 0;
	r = allow_block(rules, b, block, bits - 1);
	return r < 0 ? r : allow_block(rules, b, block | UINT64_C(1) << (bits - 1), bits - 1);
}

static int allow_but(json_t *rules, const struct but *b)
{
	return allow_block(rules, b, 0, b->bits);
}

/* Not the two that put words into a terminal. */
static int allow_ioctl(json_t *rules)
{
	return allow_but(rules, &(struct but){ .call = "ioctl",
					       .argument = 1,
					       .bits = 32,
					       .refused = { TIOCSTI, TIOCLINUX },
					       .n = 2 });
}

/*
 * No filter programs, neither by seccomp(2) nor by these: they run in the kernel, and to free
 * thousands of them, one upon the other, locks up some (seen on 6.18).
 */
static int allow_prctl(json_t *rules)
{
	/* The others are small numbers: 80 or so, of which the last came in 2025. */
	static const uint64_t words[] = { PR_SET_PTRACER, PR_SET_VMA, PR_GET_AUXV };
	int r = allow_but(rules, &(struct but){ .call = "prctl",
						.argument = 0,
						.bits = 8,
						.refused = { PR_SET_SECCOMP },
						.n = 1 });

	return r < 0 ? r : allow_values(rules, "prctl", words, ARRAY_SIZE(words));
}

static int allow_setsockopt(json_t *rules)
{
	/* The same numbers mean other things on other levels, of which the last is 287: 26 is
	 * IPV6_V6ONLY. */
	const struct compare of_socket = { 1, UINT32_MAX, SOL_SOCKET };
	int r = allow_but(rules, &(struct but){ .call = "setsockopt",
						.argument = 1,
						.bits = 9,
						.refused = { SOL_SOCKET },
						.n = 1 });

	if (r < 0)
		return r;
	return allow_but(rules, &(struct but){ .call = "setsockopt",
					       .argument = 2,
					       .bits = 8,
					       .refused = { SO_ATTACH_FILTER, SO_ATTACH_BPF,
							    SO_ATTACH_REUSEPORT_CBPF,
							    SO_ATTACH_REUSEPORT_EBPF },
					       .n = 4,
					       .first = &of_socket });
}

/*
 * The limit of core files stays what it is, see oci.c. Programs that keep secrets set it to 0 and
 * give up if they cannot (gpg, ssh-agent): they are told that they have.
 */
static int allow_limits(json_t *rules)
{
	static const struct compare core = { 0, UINT32_MAX, RLIMIT_CORE },
				    asked[] = { { 1, UINT32_MAX, RLIMIT_CORE },
						{ 2, INT64_MAX, 0 } },
				    set[] = { { 1, UINT32_MAX, RLIMIT_CORE }, { 2, 0, 0 } };
	struct but b = { .call = "setrlimit", .bits = 4, .refused = { RLIMIT_CORE }, .n = 1 };
	int r = allow_but(rules, &b);

	static_assert(RLIM_NLIMITS <= 16, "four bits");
	b.call = "prlimit64";
	b.argument = 1;
	if (r == 0)
		r = allow_but(rules, &b);
	if (r == 0)
		r = ignore_if(rules, "setrlimit", &core, 1);
	if (r == 0)
		r = allow_if(rules, "prlimit64", asked, ARRAY_SIZE(asked));
	return r < 0 ? r : ignore_if(rules, "prlimit64", set, ARRAY_SIZE(set));
}

static json_t *rules(void)
{
	_cleanup_json_ json_t *a = json_array();
	int r = json_push(a, JSON_OBJECT({ "names", json_texts(allowed, ARRAY_SIZE(allowed)) },
					 { "action", json_string("SCMP_ACT_ALLOW") }));

	if (r == 0)
		r = json_push(a, JSON_OBJECT({ "names", json_texts(absent, ARRAY_SIZE(absent)) },
					     { "action", json_string("SCMP_ACT_ERRNO") },
					     { "errnoRet", json_integer(ENOSYS) }));
	if (r == 0)
		r = json_push(a, JSON_OBJECT({ "names", json_texts(ignored, ARRAY_SIZE(ignored)) },
					     { "action", json_string("SCMP_ACT_ERRNO") },
					     { "errnoRet", json_integer(0) }));
	if (r == 0)
		r = allow_if(a, "clone", &(struct compare){ 0, NAMESPACES, 0 }, 1);
	if (r == 0)
		r = allow_values(a, "socket", families, ARRAY_SIZE(families));
	if (r == 0)
		r = allow_values(a, "personality", personalities, ARRAY_SIZE(personalities));
	if (r == 0)
		r = allow_ioctl(a);
	if (r == 0)
		r = allow_prctl(a);
	if (r == 0)
		r = allow_setsockopt(a);
	if (r == 0)
		r = allow_limits(a);
	return r < 0 ? NULL : TAKE_PTR(a);
}

json_t *seccomp_profile(void)
{
	/* One ABI: calls by another one (i386, x32) kill the process. */
#if defined(__x86_64__)
	static const char *const architectures[] = { "SCMP_ARCH_X86_64" };
#elif defined(__aarch64__)
	static const char *const architectures[] = { "SCMP_ARCH_AARCH64" };
#else
#error "say here which system call ABI this machine has"
#endif
	return JSON_OBJECT(
		{ "defaultAction", json_string("SCMP_ACT_ERRNO") },
		{ "defaultErrnoRet", json_integer(EPERM) },
		{ "architectures", json_texts(architectures, ARRAY_SIZE(architectures)) },
		{ "syscalls", rules() });
}
