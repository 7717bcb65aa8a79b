/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in QEMU's place in the jail and tries what a QEMU taken over by its guest could try. Reads
 * the pid of a host process from descriptor 3, then writes one line for each try to it: "what:
 * result". The result is the name of an error, "ok", or the observed value. It does no harm:
 * nothing persists, and calls with a lasting effect get arguments that the kernel rejects later.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	LINK = 3,
	CHILD_S = 5
};

static void tell(const char *what, long r)
{
	dprintf(LINK, "%s: %s\n", what, r < 0 ? strerrorname_np(errno) : "ok");
}

static void tell_number(const char *what, long n)
{
	dprintf(LINK, "%s: %ld\n", what, n);
}

/* Runs `fn` in a child process because its effect cannot be undone. */
static void tell_child(const char *what, long (*fn)(void))
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)alarm(CHILD_S);
		tell(what, fn());
		_exit(0);
	}
	if (pid < 0)
		tell(what, -1);
	else
		(void)waitpid(pid, NULL, 0);
}

/* ---- files ---- */

static void names(void)
{
	DIR *d = opendir("/");
	long n = 0;

	while (d && readdir(d))
		n++;
	tell_number("names in the root", n - 2);
	if (d)
		(void)closedir(d);
}

static void files(void)
{
	static const char *const paths[] = { "/usr",	      "/etc/passwd", "/proc/self/status",
					     "/proc/1/root",  "/dev/null",   "/sys/kernel",
					     "/usr/bin/true", "/program" };
	char what[64];

	names();
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		int fd = open(paths[i], O_RDONLY | O_CLOEXEC);

		(void)snprintf(what, sizeof(what), "open %s", paths[i]);
		tell(what, fd);
		(void)close(fd);
	}
	tell("make a file", open("/hutch-cell", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	(void)unlink("/hutch-cell");
	tell("above the root", open("/../../usr", O_RDONLY | O_CLOEXEC));
}

static void descriptors(void)
{
	dprintf(LINK, "descriptors:");
	for (int i = 0; i < 4096; i++)
		if (fcntl(i, F_GETFD) >= 0)
			dprintf(LINK, " %d", i);
	dprintf(LINK, "\n");
}

/* ---- identity ---- */

static void capabilities(void)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };
	long bound = 0;

	(void)syscall(SYS_capget, &head, data);
	dprintf(LINK, "capabilities: %x %x %x\n", data[0].permitted, data[0].effective,
		data[0].inheritable);
	for (unsigned long i = 0; i < 64; i++)
		bound += prctl(PR_CAPBSET_READ, i, 0, 0, 0) == 1;
	tell_number("bounding set", bound);
}

static long become_root(void)
{
	return setresuid(0, 0, 0);
}

static long other_groups(void)
{
	const gid_t group = 5;

	return syscall(SYS_setgroups, 1, &group);
}

static void identity(void)
{
	struct utsname name;
	struct rlimit files;

	(void)uname(&name);
	dprintf(LINK, "hostname: %s\n", name.nodename);
	capabilities();
	tell_child("become root", become_root);
	tell_child("other groups", other_groups);
	(void)getrlimit(RLIMIT_NOFILE, &files);
	tell_number("most descriptors", (long)files.rlim_max);
	(void)getrlimit(RLIMIT_CORE, &files);
	tell_number("core", (long)files.rlim_max);
}

/* ---- other processes ---- */

static void others(pid_t victim)
{
	char byte;
	struct iovec to = { &byte, 1 }, from = { (void *)&victim, 1 };

	tell("signal", kill(victim, 0));
	tell("trace", ptrace(PTRACE_SEIZE, victim, 0, 0));
	tell("read memory", process_vm_readv(victim, &to, 1, &from, 1, 0));
	tell("hold", syscall(SYS_pidfd_open, victim, 0));
	tell("limits of another", prlimit(victim, RLIMIT_CORE, NULL, &(struct rlimit){ 0 }));
}

static void sockets(void)
{
	static const struct {
		const char *what;
		int family, type;
	} kinds[] = { { "socket unix", AF_UNIX, SOCK_STREAM },
		      { "socket inet", AF_INET, SOCK_STREAM },
		      { "socket netlink", AF_NETLINK, SOCK_RAW },
		      { "socket packet", AF_PACKET, SOCK_RAW } };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		tell(kinds[i].what, socket(kinds[i].family, kinds[i].type | SOCK_CLOEXEC, 0));
}

/* ---- the kernel ---- */

static long new_user(void)
{
	return unshare(CLONE_NEWUSER);
}

static long clone_user(void)
{
	long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return pid;
}

static long clone3_any(void)
{
	return syscall(SYS_clone3, NULL, 0);
}

static long mount_one(void)
{
	return mount("cell", "/", "tmpfs", 0, NULL);
}

static long change_root(void)
{
	return chroot("/");
}

static long rename_host(void)
{
	return sethostname("cell", 4);
}

static long i386(void)
{
	long r = -1;

#if defined(__x86_64__)
	__asm__ volatile("int $0x80" : "=a"(r) : "a"(20L) : "memory");
#endif
	return r;
}

static long execute_memory(void)
{
	int fd = memfd_create("cell", MFD_CLOEXEC);
	char *const none[] = { NULL };

	return syscall(SYS_execveat, fd, "", none, none, AT_EMPTY_PATH);
}

/* Syscalls for which invalid arguments show whether the call reached the kernel. */
static void calls(void)
{
	static const struct {
		const char *what;
		long nr;
	} numbers[] = { { "keyctl", SYS_keyctl },
			{ "bpf", SYS_bpf },
			{ "perf_event_open", SYS_perf_event_open },
			{ "userfaultfd", SYS_userfaultfd },
			{ "io_uring_setup", SYS_io_uring_setup },
			{ "open_by_handle_at", SYS_open_by_handle_at },
			{ "open_tree", SYS_open_tree },
			{ "fsopen", SYS_fsopen },
			{ "setns", SYS_setns } };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		tell(numbers[i].what, syscall(numbers[i].nr, -1L, -1L, -1L, -1L, -1L));
	tell_child("unshare user", new_user);
	tell_child("clone user", clone_user);
	tell_child("clone3", clone3_any);
	tell_child("mount", mount_one);
	tell_child("chroot", change_root);
	tell_child("sethostname", rename_host);
	tell_child("execute memory", execute_memory);
	tell_child("i386", i386);
}

int main(void)
{
	char line[32] = "";

	if (read(LINK, line, sizeof(line) - 1) <= 0)
		return 1;
	descriptors();
	files();
	identity();
	others((pid_t)strtol(line, NULL, 10));
	sockets();
	calls();
	dprintf(LINK, "end: ok\n");
	(void)!read(LINK, line, 1);
	return 0;
}
