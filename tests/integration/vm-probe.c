/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tries calls that no user of a VM may make, and some that all may, and prints "NAME yes" or "NAME
 * errno" for each. Runs as root in the image of test_vm.py. With an argument it tries only calls
 * that are harmless in its own namespaces: the positive control.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/io.h>
#include <sys/ioctl.h>
#include <sys/klog.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long try_mount(void)
{
	return mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
}

static long try_chroot(void)
{
	return chroot("/tmp");
}

static long try_hostname(void)
{
	return sethostname("mine", 4);
}

static long try_namespaces(void)
{
	return unshare(CLONE_NEWNS);
}

static long try_block(void)
{
	return mknod("/tmp/disk", S_IFBLK | 0600, makedev(254, 0));
}

static long try_memory(void)
{
	return mknod("/tmp/mem", S_IFCHR | 0600, makedev(1, 1));
}

static long try_user_namespace(void)
{
	return unshare(CLONE_NEWUSER);
}

/* A masked file is /dev/null: it opens, and is empty. */
static long try_kallsyms(void)
{
	int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	char c;

	if (fd >= 0 && read(fd, &c, 1) == 0) {
		errno = EACCES;
		return -1;
	}
	return fd;
}

static long try_module(void)
{
	return syscall(SYS_init_module, "", 0, "");
}

static long try_kexec(void)
{
	return syscall(SYS_kexec_load, 0, 0, NULL, 0);
}

static long try_time(void)
{
	const struct timespec t = { .tv_sec = 1 };

	return clock_settime(CLOCK_REALTIME, &t);
}

static long try_bpf(void)
{
	union bpf_attr attr = {
		.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1
	};

	return syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof(attr));
}

static long try_perf(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE,
					.size = sizeof(attr),
					.config = PERF_COUNT_SW_CPU_CLOCK };

	return syscall(SYS_perf_event_open, &attr, -1, 0, -1, 0);
}

static long try_io_ports(void)
{
	return iopl(3);
}

static long try_ptrace(void)
{
	return ptrace(PTRACE_ATTACH, 1, NULL, NULL);
}

static long try_packets(void)
{
	return socket(AF_PACKET, SOCK_RAW, 0);
}

static long try_swap(void)
{
	return swapon("/tmp/swap", 0);
}

static long try_kernel_log(void)
{
	char c[16];

	return klogctl(3, c, sizeof(c));
}

static long try_reboot(void)
{
	return reboot(RB_AUTOBOOT);
}

static long try_keyring(void)
{
	return syscall(SYS_keyctl, 0, -3, 0, 0, 0);
}

static long try_algorithms(void)
{
	return socket(AF_ALG, SOCK_SEQPACKET, 0);
}

/* Bits that the kernel ignores do not help. */
static long try_typing(void)
{
	return syscall(SYS_ioctl, 0, TIOCSTI | 1UL << 32, "x");
}

static long try_clone3(void)
{
	return syscall(SYS_clone3, NULL, 0);
}

static long try_filter(void)
{
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0);
}

static long try_socket_filter(void)
{
	struct sock_filter all = { BPF_RET | BPF_K, 0, 0, 0xffff };
	struct sock_fprog p = { 1, &all };

	return setsockopt(socket(AF_UNIX, SOCK_STREAM, 0), SOL_SOCKET, SO_ATTACH_FILTER, &p,
			  sizeof(p));
}

static long try_userfaultfd(void)
{
	return syscall(SYS_userfaultfd, 0);
}

/* ---- allowed for all users ---- */

static long may_connect(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

static long may_name(void)
{
	return prctl(PR_SET_NAME, "probe", 0, 0, 0);
}

static long may_option(void)
{
	int on = 1;

	return setsockopt(socket(AF_INET6, SOCK_STREAM, 0), IPPROTO_IPV6, IPV6_V6ONLY, &on,
			  sizeof(on));
}

static long may_count(void)
{
	int n, p[2];

	return pipe(p) < 0 ? -1 : ioctl(p[0], FIONREAD, &n);
}

static long may_sync(void)
{
	sync();
	return 0;
}

static long may_forbid_cores(void)
{
	const struct rlimit none = { 0, 0 };

	return setrlimit(RLIMIT_CORE, &none);
}

static const struct {
	const char *name;
	long (*try)(void); /* NULL: opens... */
	int control;
	const char *path;
	int flags;
} list[] = {
	{ "mount", try_mount, 1 },
	{ "hostname", try_hostname, 1 },
	{ "namespaces", try_namespaces, 1 },
	{ "user-namespace", try_user_namespace, 1 },
	{ "chroot", try_chroot, 1 },
	{ "perf", try_perf, 0 },
	{ "bpf", try_bpf, 0 },
	{ "block", try_block, 0 },
	{ "memory", try_memory, 0 },
	{ "disk", NULL, 0, "/dev/vda", O_RDONLY },
	{ "own-disk", NULL, 0, "/dev/vdb", O_RDONLY },
	{ "port", NULL, 0, "/dev/vport1p1", O_RDWR },
	{ "dev-mem", NULL, 0, "/dev/mem", O_RDONLY },
	{ "core-pattern", NULL, 0, "/proc/sys/kernel/core_pattern", O_WRONLY },
	{ "modprobe", NULL, 0, "/proc/sys/kernel/modprobe", O_WRONLY },
	{ "pid1-memory", NULL, 0, "/proc/1/mem", O_RDWR },
	{ "pid1-channel", NULL, 0, "/proc/1/fd/3", O_RDWR },
	{ "pid1-root", NULL, 0, "/proc/1/root/", O_RDONLY },
	{ "cgroup", NULL, 0, "/cgroup/users/cgroup.freeze", O_WRONLY },
	{ "kallsyms", try_kallsyms, 0 },
	{ "module", try_module, 0 },
	{ "kexec", try_kexec, 0 },
	{ "time", try_time, 0 },
	{ "io-ports", try_io_ports, 0 },
	{ "ptrace", try_ptrace, 0 },
	{ "packets", try_packets, 0 },
	{ "swap", try_swap, 0 },
	{ "kernel-log", try_kernel_log, 0 },
	{ "keyring", try_keyring, 0 },
	{ "algorithms", try_algorithms, 0 },
	{ "typing", try_typing, 0 },
	{ "clone3", try_clone3, 0 },
	{ "filter", try_filter, 0 },
	{ "socket-filter", try_socket_filter, 1 },
	{ "userfaultfd", try_userfaultfd, 0 },
	{ "reboot", try_reboot, 0 },
	{ "may-connect", may_connect, 0 },
	{ "may-name", may_name, 0 },
	{ "may-option", may_option, 0 },
	{ "may-count", may_count, 0 },
	{ "may-sync", may_sync, 0 },
	{ "may-forbid-cores", may_forbid_cores, 0 },
};

int main(int argc, char **argv)
{
	(void)argv;
	for (unsigned int i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		if (argc > 1 && !list[i].control)
			continue;
		(void)fflush(stdout);
		/* Each in its own process: one success does not help the next attempt. */
		if (fork() == 0) {
			long r = list[i].try ? list[i].try()
					     : open(list[i].path, list[i].flags | O_CLOEXEC);

			(void)printf("%s %s\n", list[i].name,
				     r < 0 ? strerrorname_np(errno) : "yes");
			(void)fflush(stdout);
			_exit(0);
		}
		(void)wait(NULL);
	}
	return 0;
}
