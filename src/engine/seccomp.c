/* SPDX-License-Identifier: Apache-2.0 */
#include "seccomp.h"

#include <errno.h>
#include <linux/sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "json-util.h"

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
	"pipe2", "pkey_alloc", "pkey_free", "pkey_mprotect", "poll", "ppoll", "prctl", "pread64", "preadv",
	"preadv2", "prlimit64", "process_vm_readv", "process_vm_writev", "pselect6", "ptrace", "pwrite64",
	"pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv", "recvfrom",
	"recvmmsg", "recvmsg", "removexattr", "rename", "renameat", "renameat2", "restart_syscall",
	"rmdir", "rseq", "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo",
	"rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait", "rt_tgsigqueueinfo", "sched_get_priority_max",
	"sched_get_priority_min", "sched_getaffinity", "sched_getattr", "sched_getparam",
	"sched_getscheduler", "sched_rr_get_interval", "sched_setaffinity", "sched_setattr",
	"sched_setparam", "sched_setscheduler", "sched_yield", "seccomp", "select", "semctl", "semget",
	"semop", "semtimedop", "sendfile", "sendmmsg", "sendmsg", "sendto", "set_robust_list",
	"set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups", "setitimer", "setpgid",
	"setpriority", "setregid", "setresgid", "setresuid", "setreuid", "setrlimit", "setsid",
	"setsockopt", "setuid", "setxattr", "shmat", "shmctl", "shmdt", "shmget", "shutdown",
	"sigaltstack", "signalfd", "signalfd4", "socketpair", "splice", "stat", "statfs", "statx",
	"symlink", "symlinkat", "sync", "sync_file_range", "syncfs", "sysinfo", "tee", "tgkill", "time",
	"timer_create", "timer_delete", "timer_getoverrun", "timer_gettime", "timer_settime",
	"timerfd_create", "timerfd_gettime", "timerfd_settime", "times", "tkill", "truncate", "umask",
	"uname", "unlink", "unlinkat", "utime", "utimensat", "utimes", "vfork", "vmsplice", "wait4",
	"waitid", "write", "writev",
};

/* "Not there" rather than "not allowed": callers then fall back to what is. clone3 cannot be looked into by a filter. */
static const char *const absent[] = { "clone3", "io_uring_enter", "io_uring_register", "io_uring_setup" };
/* clang-format on */

/* Every flag with which clone(2) makes a namespace; CLONE_NEWTIME lies in the byte of the exit
 * signal and is not one. */
#define NAMESPACES                                                                     \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)

static const uint64_t families[] = { AF_UNIX, AF_INET, AF_INET6 };

/* What debuggers and old programs ask for; 0xffffffff asks what it is now. */
static const uint64_t personalities[] = { 0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff };

/* Allows `call` if (argument & mask) == value. */
static int allow_if(json_t *rules, const char *call, int argument, uint64_t mask, uint64_t value)
{
	_cleanup_json_ json_t *args = json_array();
	int r = json_push(args, JSON_OBJECT({ "index", json_integer(argument) },
					    { "op", json_string("SCMP_CMP_MASKED_EQ") },
					    { "value", json_number(mask) },
					    { "valueTwo", json_number(value) }));

	if (r < 0)
		return r;
	return json_push(rules, JSON_OBJECT({ "names", json_texts(&call, 1) },
					    { "action", json_string("SCMP_ACT_ALLOW") },
					    { "args", TAKE_PTR(args) }));
}

/* Allows `call` for values of its first argument, of which the kernel looks at 32 bits. */
static int allow_values(json_t *rules, const char *call, const uint64_t *values, size_t n)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = allow_if(rules, call, 0, UINT32_MAX, values[i]);
	return r;
}

/*
 * Every ioctl but TIOCSTI and TIOCLINUX, which put words into a terminal. "Not equal" compares 64
 * bits while the kernel looks at 32, so that a bit above them would slip through. Instead: some bit
 * in which both agree is different, or those in which they differ are like neither.
 */
static int allow_ioctl(json_t *rules)
{
	const uint64_t a = TIOCSTI, b = TIOCLINUX, differ = a ^ b;
	int r = 0;

	for (unsigned int i = 0; r == 0 && i < 32; i++) {
		uint64_t bit = UINT64_C(1) << i;

		if (!(differ & bit))
			r = allow_if(rules, "ioctl", 1, bit, ~a & bit);
	}
	/* Neither a nor b: two bits in which they differ that are not as in a, nor both flipped as
	 * in b. */
	for (unsigned int i = 0; r == 0 && i < 32; i++)
		for (unsigned int j = i + 1; r == 0 && j < 32; j++) {
			uint64_t x = UINT64_C(1) << i, y = UINT64_C(1) << j;

			if (!(differ & x) || !(differ & y))
				continue;
			r = allow_if(rules, "ioctl", 1, x | y, (a & x) | (~a & y));
			if (r == 0)
				r = allow_if(rules, "ioctl", 1, x | y, (~a & x) | (a & y));
		}
	return r;
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
		r = allow_if(a, "clone", 0, NAMESPACES, 0);
	if (r == 0)
		r = allow_values(a, "socket", families, ARRAY_SIZE(families));
	if (r == 0)
		r = allow_values(a, "personality", personalities, ARRAY_SIZE(personalities));
	if (r == 0)
		r = allow_ioctl(a);
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
