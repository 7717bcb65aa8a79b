/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of the outer VM of test_nested_kvm.py: loads the initrd's modules in the order of /modules,
 * mounts the EROFS on /dev/vda as root and runs /nested there with the shell. The output goes to
 * the console; the VM ends with the script.
 *
 * With the argument "agent" (a word of the kernel command line) it is the agent of the inner VM: it
 * opens the port of its channel and does nothing else. With "tsc", on the host, it prints the TSC
 * frequency in kHz: an emulated CPU counts at the same rate, and the kernel on it has no clock to
 * measure the rate with.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum {
	DISK_MS = 30 * 1000, /* until the disk appears */
};

static void check(int r, const char *what)
{
	if (r == 0)
		return;
	perror(what);
	sync();
	(void)reboot(RB_AUTOBOOT);
	_exit(1);
}

static void load_modules(void)
{
	char path[256];
	FILE *f = fopen("/modules", "re");

	check(f ? 0 : -1, "/modules");
	while (f && fgets(path, sizeof(path), f)) {
		int fd;

		path[strcspn(path, "\n")] = '\0';
		fd = open(path, O_RDONLY | O_CLOEXEC);
		check(fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0 ? -1 : 0, path);
		(void)close(fd);
	}
	if (f)
		(void)fclose(f);
}

static void enter_root(void)
{
	static const char *const tmpfs[] = { "/root/run", "/root/tmp", "/root/var" };
	static const char *const move[] = { "/dev", "/proc", "/sys" };
	const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };
	char to[64];
	int r = -1;

	for (int ms = 0; ms < DISK_MS && r < 0; ms += 10) {
		r = mount("/dev/vda", "/root", "erofs", MS_RDONLY, NULL);
		if (r < 0)
			(void)nanosleep(&pause, NULL);
	}
	check(r, "/dev/vda");
	for (size_t i = 0; i < sizeof(tmpfs) / sizeof(tmpfs[0]); i++)
		check(mount("tmpfs", tmpfs[i], "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755"),
		      tmpfs[i]);
	for (size_t i = 0; i < sizeof(move) / sizeof(move[0]); i++) {
		(void)snprintf(to, sizeof(to), "/root%s", move[i]);
		check(mount(move[i], to, NULL, MS_MOVE, NULL), to);
	}
	check(chdir("/root") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0,
	      "the root");
}

static void mount_kernel_files(void)
{
	check(mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, NULL), "/dev");
	check(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "/proc");
	check(mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "/sys");
}

_Noreturn static void be_agent(void)
{
	const struct timespec pause = { .tv_nsec = 1000 * 1000 };
	int fd = -1;

	check(mount("devtmpfs", "/dev", "devtmpfs", MS_NOSUID, NULL), "/dev");
	load_modules();
	while ((fd = open("/dev/vport0p1", O_RDWR | O_CLOEXEC)) < 0)
		(void)nanosleep(&pause, NULL);
	for (;;)
		(void)sleep(1);
}

static int print_tsc(void)
{
	const struct timespec pause = { .tv_nsec = 100 * 1000 * 1000 };
	struct timespec from, to;
	unsigned long long n;

	(void)clock_gettime(CLOCK_MONOTONIC_RAW, &from);
	n = __rdtsc();
	(void)nanosleep(&pause, NULL);
	n = __rdtsc() - n;
	(void)clock_gettime(CLOCK_MONOTONIC_RAW, &to);
	printf("%llu\n", n * 1000000 /
				 (unsigned long long)((to.tv_sec - from.tv_sec) * 1000000000 +
						      to.tv_nsec - from.tv_nsec));
	return 0;
}

_Noreturn static void run(void)
{
	(void)clearenv();
	(void)setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	(void)setenv("HOME", "/tmp", 1);
	(void)execl("/bin/sh", "sh", "/nested", (char *)NULL);
	perror("/bin/sh");
	_exit(127);
}

int main(int argc, char **args)
{
	pid_t pid;
	int status;

	if (argc == 2 && strcmp(args[1], "tsc") == 0)
		return print_tsc();
	if (argc == 2 && strcmp(args[1], "agent") == 0)
		be_agent();
	mount_kernel_files();
	load_modules();
	enter_root();
	check(mount("cgroup2", "/sys/fs/cgroup", "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL),
	      "/sys/fs/cgroup");
	pid = fork();
	check(pid < 0 ? -1 : 0, "fork");
	if (pid == 0)
		run();
	/* Reap orphans until the shell ends. */
	while (wait(&status) != pid)
		continue;
	printf("nested: end %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128);
	(void)fflush(stdout);
	sync();
	check(reboot(RB_AUTOBOOT), "reboot");
	return 1;
}
