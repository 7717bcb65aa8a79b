/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries what code in a box should not be able to do. Prints one line for each try, "row what:
 * result". The result is the name of an error, "ok", or the observed value. It does no harm:
 * arguments are invalid on purpose, each try runs in its own child with a deadline, and nothing
 * persists.
 *
 *	probe		as a command of a sandbox; or in place of its agent, as PID 1: then the
 *			tries run as uid 1000 without capabilities, like commands
 *	probe same	as a PID 1 with the same user as the tries: a control
 *	probe clock	only the tries of row 29, as the calling user: a control, on the host
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	LAST_SYSCALL = 520,
	DEADLINE_S = 2,
	UID = 1000
};

/* Runs `fn` in a child and returns its result, which is 0 or more, or -errno. Returns -ETIME if
 * the child did not end and -EINTR if it was killed. */
static long in_child(long (*fn)(long a, long b), long a, long b)
{
	int fds[2], status;
	long result = -ETIME;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	(void)fflush(stdout);
	pid = fork();
	if (pid < 0) {
		(void)close(fds[0]);
		(void)close(fds[1]);
		return -errno;
	}
	if (pid == 0) {
		(void)alarm(DEADLINE_S);
		result = fn(a, b);
		(void)!write(fds[1], &result, sizeof(result));
		_exit(0);
	}
	(void)close(fds[1]);
	if (read(fds[0], &result, sizeof(result)) != (ssize_t)sizeof(result))
		result = -ETIME;
	(void)close(fds[0]);
	(void)waitpid(pid, &status, 0);
	if (result == -ETIME && WIFSIGNALED(status) && WTERMSIG(status) != SIGALRM)
		result = -EINTR;
	return result;
}

static const char *name_of(long result)
{
	static char text[32];

	if (result == -ETIME)
		return "ended"; /* the call killed the process or did not return */
	if (result == -EINTR)
		return "killed";
	if (result >= 0)
		return "ok";
	(void)snprintf(text, sizeof(text), "%s", strerrorname_np((int)-result));
	return text;
}

static void tell(int row, const char *what, long result)
{
	(void)printf("%d %s: %s\n", row, what, name_of(result));
}

/* ---- 32: every syscall, with invalid arguments ---- */

static long call_native(long nr, long unused)
{
	return syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L) < 0 ? -errno : 0;
}

#if defined(__x86_64__)
static long call_i386(long nr, long unused)
{
	long r;

	__asm__ volatile("int $0x80" : "=a"(r) : "a"(nr), "b"(-1L), "c"(-1L), "d"(-1L) : "memory");
	return r;
}
#endif

static void sweep(void)
{
	for (long nr = 0; nr <= LAST_SYSCALL; nr++) {
		/*
		 * Numbers 335 to 423 do not exist, rt_sigreturn with a wrong stack crashes by
		 * design, and the tries below create processes.
		 */
		if ((nr > 334 && nr < 424) || nr == SYS_rt_sigreturn || nr == SYS_clone ||
		    nr == SYS_fork || nr == SYS_vfork)
			continue;
		(void)printf("32 syscall %ld: %s\n", nr, name_of(in_child(call_native, nr, 0)));
	}
#if defined(__x86_64__)
	tell(32, "i386 getpid", in_child(call_i386, 20, 0));
	tell(32, "x32 getpid", in_child(call_native, 0x40000000 | SYS_getpid, 0));
#endif
}

/* Installs a filter that allows everything. */
static long filter_by(long how, long high)
{
	struct sock_filter pass[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog program = { .len = 1, .filter = pass };

	if (how == SYS_seccomp)
		return syscall(how, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? -errno : 0;
	return syscall(how, PR_SET_SECCOMP | high, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno
											    : 0;
}

static long filter_socket(long option, long high)
{
	struct sock_filter pass[] = { BPF_STMT(BPF_RET | BPF_K, 0xffff) };
	struct sock_fprog program = { .len = 1, .filter = pass };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) < 0)
		return -ENODEV;
	return syscall(SYS_setsockopt, fd, SOL_SOCKET | high, option | high, &program,
		       sizeof(program)) < 0
		       ? -errno
		       : 0;
}

static long only_v6(long unused, long unused2)
{
	int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	return setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0 ? -errno : 0;
}

static long name_process(long unused, long unused2)
{
	return prctl(PR_SET_NAME, "probe") < 0 ? -errno : 0;
}

static void filters(void)
{
	const long high = 1L << 32;

	tell(32, "filter by seccomp", in_child(filter_by, SYS_seccomp, 0));
	tell(32, "filter by prctl", in_child(filter_by, SYS_prctl, 0));
	tell(32, "filter by prctl with a high bit", in_child(filter_by, SYS_prctl, high));
	tell(32, "filter of a socket", in_child(filter_socket, SO_ATTACH_FILTER, 0));
	tell(32, "filter of a socket with high bits",
	     in_child(filter_socket, SO_ATTACH_FILTER, high));
	tell(32, "filter of ports", in_child(filter_socket, SO_ATTACH_REUSEPORT_CBPF, 0));
	tell(32, "other prctl", in_child(name_process, 0, 0));
	tell(32, "other socket option", in_child(only_v6, 0, 0)); /* number of a filter option */
}

/* ---- 33, 34: namespaces ---- */

static long make_clone(long flags, long unused)
{
	long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return pid < 0 ? -errno : 0;
}

static long make_unshare(long flags, long unused)
{
	return unshare((int)flags) < 0 ? -errno : 0;
}

static long make_clone3(long flags, long unused)
{
	struct clone_args args = { .flags = (uint64_t)flags, .exit_signal = SIGCHLD };
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0)
		_exit(0);
	return pid < 0 ? -errno : 0;
}

static void namespaces(void)
{
	static const struct {
		const char *name;
		long flag;
	} rows[] = {
		{ "mount", CLONE_NEWNS },      { "uts", CLONE_NEWUTS }, { "ipc", CLONE_NEWIPC },
		{ "user", CLONE_NEWUSER },     { "pid", CLONE_NEWPID }, { "network", CLONE_NEWNET },
		{ "cgroup", CLONE_NEWCGROUP }, { "none", 0 },
	};
	char what[64];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		(void)snprintf(what, sizeof(what), "clone %s", rows[i].name);
		tell(33, what, in_child(make_clone, rows[i].flag, 0));
		(void)snprintf(what, sizeof(what), "unshare %s", rows[i].name);
		tell(33, what, in_child(make_unshare, rows[i].flag, 0));
		(void)snprintf(what, sizeof(what), "clone3 %s", rows[i].name);
		tell(33, what, in_child(make_clone3, rows[i].flag, 0));
		/* Combine the user namespace with each other one, as exploits do. */
		(void)snprintf(what, sizeof(what), "clone user+%s", rows[i].name);
		tell(34, what, in_child(make_clone, rows[i].flag | CLONE_NEWUSER, 0));
	}
}

/* ---- 41: socket families ---- */

static long make_socket(long family, long type)
{
	return socket((int)family, (int)type, 0) < 0 ? -errno : 0;
}

static long make_protocol(long family, long protocol)
{
	return socket((int)family, SOCK_STREAM, (int)protocol) < 0 ? -errno : 0;
}

static long make_socket_high(long family, long type)
{
	return syscall(SYS_socket, family | 1L << 32, type, 0L) < 0 ? -errno : 0;
}

static long make_typed(long type, long protocol)
{
	return socket(AF_INET, (int)type, (int)protocol) < 0 ? -errno : 0;
}

static long make_pair(long family, long type)
{
	int fds[2];

	return socketpair((int)family, (int)type, 0, fds) < 0 ? -errno : 0;
}

/* Sets an option that turns an ordinary socket into another protocol. */
static long on_top(long level, long option)
{
	int fd = socket(AF_INET, level == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM, 0), esp = 2;
	int tcp = level == IPPROTO_TCP;

	if (fd < 0)
		return -ENODEV;
	return setsockopt(fd, (int)level, (int)option, tcp ? (void *)"tls" : (void *)&esp,
			  tcp ? sizeof("tls") : sizeof(esp)) < 0
		       ? -errno
		       : 0;
}

/* A family is available if a socket of any type can be made. */
static long best_of(long (*make)(long family, long type), long family)
{
	long best = -EINVAL;

	for (long type = SOCK_STREAM; type <= SOCK_SEQPACKET && best < 0; type++) {
		long r = in_child(make, family, type);

		if (r >= 0 || best == -EINVAL || best == -EPROTONOSUPPORT ||
		    best == -ESOCKTNOSUPPORT)
			best = r;
	}
	return best;
}

/* Creates the namespaces first, as exploits do, because the caller has no privilege outside. */
static long make_packets(long family, long type)
{
	if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
		return -errno;
	return make_socket(family, type);
}

/* Lists every kind of socket that passes the filter, whatever the kernel answers. */
static void kinds(void)
{
	static const int protocols[] = { 0, 1, 2, 6, 17, 33, 50, 58, 132, 136, 255, 262 };

	(void)fputs("41 kinds:", stdout);
	for (int family = 0; family <= 46; family++)
		for (int type = 0; type <= 10; type++)
			for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++) {
				int fd = socket(family, type | SOCK_CLOEXEC, protocols[i]);

				if (fd >= 0 || errno != EPERM)
					(void)printf(" %d/%d/%d", family, type, protocols[i]);
				if (fd >= 0)
					(void)close(fd);
			}
	(void)fputc('\n', stdout);
}

static void sockets(void)
{
	char what[64];

	kinds();

	for (long family = 0; family <= 46; family++) {
		(void)snprintf(what, sizeof(what), "socket family %ld", family);
		tell(41, what, best_of(make_socket, family));
		/* The kernel creates the sockets before it checks whether the family supports
		 * pairs. */
		(void)snprintf(what, sizeof(what), "socketpair family %ld", family);
		tell(41, what, best_of(make_pair, family));
	}
	for (long family = AF_INET; family <= AF_INET6; family += AF_INET6 - AF_INET)
		for (long type = 0; type <= 10; type++) {
			/* Types 5 (SCTP) and 6 (DCCP): the type alone makes the kernel load a
			 * module. */
			(void)snprintf(what, sizeof(what), "family %ld type %ld", family, type);
			tell(41, what, in_child(make_socket, family, type));
		}
	tell(41, "raw socket", in_child(make_socket, AF_INET, SOCK_RAW));
	tell(41, "packet socket", in_child(make_socket, AF_PACKET, SOCK_RAW));
	tell(41, "packet socket in a network of its own",
	     in_child(make_packets, AF_PACKET, SOCK_RAW));
	/* The host's kernel would load a module for each of these. */
	tell(41, "SCTP socket", in_child(make_protocol, AF_INET, IPPROTO_SCTP));
	tell(41, "MPTCP socket", in_child(make_protocol, AF_INET6, 262));
	tell(41, "SCTP packets", in_child(make_typed, SOCK_SEQPACKET, IPPROTO_SCTP));
	tell(41, "DCCP socket", in_child(make_typed, SOCK_DCCP, IPPROTO_DCCP));
	tell(41, "UDP-Lite socket", in_child(make_typed, SOCK_DGRAM, IPPROTO_UDPLITE));
	tell(41, "raw ICMP socket", in_child(make_typed, SOCK_RAW, IPPROTO_ICMP));
	tell(41, "TCP socket by number", in_child(make_protocol, AF_INET6, IPPROTO_TCP));
	tell(41, "UDP socket by number", in_child(make_typed, SOCK_DGRAM, IPPROTO_UDP));
	tell(41, "TLS in the kernel", in_child(on_top, IPPROTO_TCP, 31));
	tell(41, "ESP in UDP", in_child(on_top, IPPROTO_UDP, 100));
	/* The kernel uses 32 bits of the family; a filter sees 64. */
	tell(41, "vsock behind a high bit", in_child(make_socket_high, AF_VSOCK, SOCK_STREAM));
	tell(41, "unix behind a high bit", in_child(make_socket_high, AF_UNIX, SOCK_STREAM));
}

/* ---- 30: terminals; 38: personality ---- */

static long type_into_terminal(long request, long high)
{
	int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), slave;
	char c = 'x';

	if (master < 0 || ioctl(master, TIOCSPTLCK, &(int){ 0 }) < 0)
		return -ENODEV;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
	if (slave < 0 || setsid() < 0 || ioctl(slave, TIOCSCTTY, 0) < 0)
		return -ENOTTY;
	return syscall(SYS_ioctl, slave, (unsigned long)request | (high ? 1UL << 32 : 0), &c) < 0
		       ? -errno
		       : 0;
}

static long window_size(long unused, long unused2)
{
	struct winsize w;
	int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);

	return master < 0 || ioctl(master, TIOCGWINSZ, &w) < 0 ? -errno : 0;
}

static long set_personality(long value, long unused)
{
	return personality((unsigned long)value) < 0 ? -errno : 0;
}

static void terminals(void)
{
	tell(30, "TIOCSTI", in_child(type_into_terminal, TIOCSTI, 0));
	tell(30, "TIOCSTI with a high bit", in_child(type_into_terminal, TIOCSTI, 1));
	tell(30, "TIOCLINUX", in_child(type_into_terminal, TIOCLINUX, 0));
	tell(30, "TIOCLINUX with a high bit", in_child(type_into_terminal, TIOCLINUX, 1));
	tell(30, "TIOCGWINSZ", in_child(window_size, 0, 0));
	tell(38, "personality asked", in_child(set_personality, 0xffffffff, 0));
	tell(38, "personality without randomisation",
	     in_child(set_personality, ADDR_NO_RANDOMIZE, 0));
	tell(38, "personality read implies exec", in_child(set_personality, READ_IMPLIES_EXEC, 0));
}

/* ---- 19, 20, 25 to 29: files ---- */

static long open_file(long path, long flags)
{
	char c;
	int fd = open((const char *)path, (int)flags | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return -errno;
	/* A masked file can be opened; it must be empty. */
	if (flags == O_RDONLY && read(fd, &c, 1) <= 0)
		return -ENODATA;
	return 0;
}

static long write_file(long path, long unused)
{
	int fd = open((const char *)path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, "0", 1) < 0 ? -errno : 0;
}

static long mount_it(long type, long unused)
{
	return mount("none", "/tmp", (const char *)type, 0, NULL) < 0 ? -errno : 0;
}

static long make_device(long unused, long unused2)
{
	return mknod("/tmp/disk", S_IFBLK | 0600, 0x800) < 0 ? -errno : 0;
}

static void files(void)
{
	static const char *const secret[] = { "/proc/kcore",
					      "/proc/kallsyms",
					      "/proc/keys",
					      "/proc/timer_list",
					      "/proc/sched_debug",
					      "/proc/kmsg",
					      "/proc/slabinfo",
					      "/proc/modules",
					      "/proc/vmallocinfo",
					      "/sys/firmware/dmi/tables/DMI",
					      "/sys/class/dmi/id/product_uuid",
					      "/sys/kernel/uevent_seqnum",
					      "/proc/1/environ",
					      "/proc/1/maps" };
	static const char *const knobs[] = {
		"/proc/sysrq-trigger",		 "/proc/sys/kernel/core_pattern",
		"/proc/sys/kernel/modprobe",	 "/proc/sys/vm/overcommit_memory",
		"/proc/sys/kernel/hostname",	 "/sys/kernel/uevent_helper",
		"/proc/irq/default_smp_affinity"
	};
	static const char *const devices[] = { "/dev/kvm",	   "/dev/mem",	   "/dev/kmsg",
					       "/dev/fuse",	   "/dev/net/tun", "/dev/vhost-net",
					       "/dev/uinput",	   "/dev/vda",	   "/dev/sda",
					       "/dev/loop-control" };
	static const char *const good[] = { "/dev/null", "/dev/zero", "/dev/urandom",
					    "/proc/self/status" };

	for (size_t i = 0; i < sizeof(secret) / sizeof(secret[0]); i++)
		tell(19, secret[i], in_child(open_file, (long)secret[i], O_RDONLY));
	for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++)
		tell(20, knobs[i], in_child(write_file, (long)knobs[i], 0));
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++)
		tell(28, devices[i], in_child(open_file, (long)devices[i], O_RDWR));
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		tell(28, good[i], in_child(open_file, (long)good[i], i == 0 ? O_RDWR : O_RDONLY));
	tell(25, "mount cgroup", in_child(mount_it, (long)"cgroup", 0));
	tell(39, "mount tmpfs", in_child(mount_it, (long)"tmpfs", 0));
	tell(39, "mount proc", in_child(mount_it, (long)"proc", 0));
	tell(27, "mknod block device", in_child(make_device, 0, 0));
}

/* ---- 21, 22, 37: the agent ---- */

static long read_link(long path, long unused)
{
	char target[256];

	return readlink((const char *)path, target, sizeof(target)) < 0 ? -errno : 0;
}

static long list_it(long path, long unused)
{
	int fd = open((const char *)path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char entries[512];

	return fd < 0 || syscall(SYS_getdents64, fd, entries, sizeof(entries)) < 0 ? -errno : 0;
}

static long open_only(long path, long flags)
{
	return open((const char *)path, (int)flags | O_CLOEXEC) < 0 ? -errno : 0;
}

static long trace_init(long unused, long unused2)
{
	return ptrace(PTRACE_SEIZE, 1, 0, 0) < 0 ? -errno : 0;
}

static long signal_init(long unused, long unused2)
{
	return kill(1, SIGTERM) < 0 ? -errno : 0;
}

/* A static program is loaded at a fixed address. In mode `same`, PID 1 runs this program, so
 * that this address is readable in it. */
static long copy_memory(long write, long unused)
{
	static char there[8], here[8];
	struct iovec remote = { there, sizeof(there) }, local = { here, sizeof(here) };

	return (write ? process_vm_writev(1, &local, 1, &remote, 1, 0)
		      : process_vm_readv(1, &local, 1, &remote, 1, 0)) < 0
		       ? -errno
		       : 0;
}

static long take_descriptor(long unused, long unused2)
{
	int fd = (int)syscall(SYS_pidfd_open, 1, 0);

	return fd < 0 || syscall(SYS_pidfd_getfd, fd, 0, 0) < 0 ? -errno : 0;
}

static long limit_init(long unused, long unused2)
{
	struct rlimit r;

	return prlimit(1, RLIMIT_NOFILE, NULL, &r) < 0 ? -errno : 0;
}

static void agent(void)
{
	static const char *const links[] = { "exe", "root", "cwd", "fd/0", "ns/net" };
	static const char *const parts[] = { "mem", "auxv", "task/1/mem" };
	char path[64];

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		(void)snprintf(path, sizeof(path), "/proc/1/%s", parts[i]);
		tell(21, path, in_child(open_only, (long)path, O_RDONLY));
	}
	for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++) {
		(void)snprintf(path, sizeof(path), "/proc/1/%s", links[i]);
		tell(21, path, in_child(read_link, (long)path, 0));
	}
	tell(21, "/proc/1/fd", in_child(list_it, (long)"/proc/1/fd", 0));
	tell(22, "write /proc/1/exe", in_child(open_only, (long)"/proc/1/exe", O_WRONLY));
	tell(22, "write /dev/hutch-guest", in_child(open_only, (long)"/dev/hutch-guest", O_WRONLY));
	tell(37, "trace PID 1", in_child(trace_init, 0, 0));
	tell(37, "signal PID 1", in_child(signal_init, 0, 0));
	tell(37, "read the memory of PID 1", in_child(copy_memory, 0, 0));
	tell(37, "write the memory of PID 1", in_child(copy_memory, 1, 0));
	tell(37, "take a descriptor of PID 1", in_child(take_descriptor, 0, 0));
	tell(37, "limits of PID 1", in_child(limit_init, 0, 0));
}

/* ---- 26: control groups ---- */

static void groups(void)
{
	static const char *const places[] = { "/sys/fs/cgroup/cgroup.procs",
					      "/sys/fs/cgroup/pids/cgroup.procs",
					      "/sys/fs/cgroup/memory/memory.limit_in_bytes",
					      "/sys/fs/cgroup/unified/cgroup.procs" };
	char line[512], other[512] = "its own";
	FILE *f = fopen("/proc/self/cgroup", "re");

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		tell(26, places[i], in_child(open_only, (long)places[i], O_RDONLY));
	tell(26, "list /sys/fs/cgroup", in_child(list_it, (long)"/sys/fs/cgroup", 0));
	while (f && fgets(line, sizeof(line), f)) {
		const char *path = strrchr(line, ':') + 1;

		if (strcmp(path, "/\n") != 0)
			(void)snprintf(other, sizeof(other), "%.*s", (int)strcspn(path, "\n"),
				       path);
	}
	(void)printf("26 paths of groups: %s\n", f ? other : "none");
	if (f)
		(void)fclose(f);
}

/* ---- 29: the kernel's log and clock ---- */

static long read_log(long what, long unused)
{
	char text[256];

	return klogctl((int)what, text, sizeof(text)) < 0 ? -errno : 0;
}

/* Sets nothing: a caller that passes the permission check could set the clock. */
static long set_clock(long unused, long unused2)
{
	return syscall(SYS_settimeofday, NULL, NULL) < 0 ? -errno : 0;
}

/* Sets nothing, for the same reason. */
static long set_rate(long unused, long unused2)
{
	struct timex t = { .modes = 0 };

	if (adjtimex(&t) < 0)
		return -errno;
	t.modes = ADJ_FREQUENCY;
	return adjtimex(&t) < 0 ? -errno : 0;
}

static void clocks(void)
{
	tell(29, "read the kernel's log", in_child(read_log, 3, 0));
	tell(29, "size of the kernel's log", in_child(read_log, 10, 0));
	tell(29, "set the clock", in_child(set_clock, 0, 0));
	tell(29, "set the rate of the clock", in_child(set_rate, 0, 0));
}

/* ---- 40: handles ---- */

static long use_handle(long open_it, long unused)
{
	struct {
		struct file_handle h;
		unsigned char bytes[128];
	} u = { .h.handle_bytes = 128 };
	int id, r = name_to_handle_at(AT_FDCWD, "/dev/hutch-guest", &u.h, &id, 0);

	if (r == 0 && open_it)
		r = open_by_handle_at(AT_FDCWD, &u.h, O_RDONLY | O_CLOEXEC);
	return r < 0 ? -errno : 0;
}

/* ---- 24, 44: descriptors, capabilities ---- */

static void descriptors(void)
{
	(void)fputs("24 descriptors:", stdout);
	for (int fd = 0; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			(void)printf(" %d", fd);
	(void)fputc('\n', stdout);
}

static void status(void)
{
	char line[256];
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "Cap", 3) == 0 || strncmp(line, "NoNewPrivs", 10) == 0 ||
		    strncmp(line, "Seccomp:", 8) == 0)
			(void)printf("44 %s", line);
	if (f)
		(void)fclose(f);
}

static void network(void)
{
	char line[256];
	FILE *f = fopen("/proc/net/dev", "re");

	(void)fputs("66 devices:", stdout);
	for (int i = 0; f && fgets(line, sizeof(line), f); i++) {
		const char *name = line + strspn(line, " ");

		if (i >= 2)
			(void)printf(" %.*s", (int)strcspn(name, ":"), name);
	}
	(void)fputc('\n', stdout);
	if (f)
		(void)fclose(f);
}

/* Drops privileges the way hutch-guest does before it starts a command. */
static int become_user(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };

	for (int cap = 0; cap <= 63; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
	if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, UID, UID, UID) < 0 ||
	    syscall(SYS_setresuid, UID, UID, UID) < 0)
		return -errno;
	if (syscall(SYS_capset, &header, none) < 0)
		return -errno;
	return prctl(PR_SET_DUMPABLE, 1) < 0 ? -errno : 0;
}

static int try_all(void)
{
	int r = getppid() == 1 && getuid() == 0 ? become_user() : 0;

	if (r < 0) {
		(void)printf("0 become user: %s\n", name_of(r));
		return 1;
	}
	descriptors();
	status();
	network();
	sweep();
	filters();
	namespaces();
	sockets();
	terminals();
	files();
	agent();
	groups();
	clocks();
	tell(40, "name a handle", in_child(use_handle, 0, 0));
	tell(40, "open by a handle", in_child(use_handle, 1, 0));
	(void)puts("0 end: ok");
	return 0;
}

int main(int argc, char **argv)
{
	int status = 1;
	pid_t pid;

	if (argc > 1 && strcmp(argv[1], "clock") == 0) {
		clocks();
		(void)puts("0 end: ok");
		return 0;
	}
	if (argc > 1 ? become_user() < 0 : prctl(PR_SET_DUMPABLE, 0) < 0)
		return 1;
	pid = fork();
	if (pid == 0) {
		int r = try_all();

		(void)fflush(stdout);
		_exit(r);
	}
	while (wait(&status) != pid)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
