/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1 of a test VM: loads the modules of the initrd, tries each kernel feature that a sandbox
 * needs, and reports on the port, one line each: "ready" first, then a name and 0 or errno.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	PORT_TRIES = 5000 /* one millisecond each */
};

static int port = -1;

static void say(const char *what, int r)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "%s %d\n", what, r < 0 ? errno : 0);

	(void)!write(port, line, (size_t)n);
}

static void load_modules(void)
{
	FILE *f = fopen("/lib/modules-list", "re");
	char path[256];

	while (f && fgets(path, sizeof(path), f)) {
		int fd;

		path[strcspn(path, "\n")] = '\0';
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0)
			perror(path);
	}
}

static void open_port(void)
{
	for (int i = 0; i < PORT_TRIES && port < 0; i++) {
		port = open("/dev/vport0p1", O_RDWR | O_CLOEXEC);
		if (port < 0)
			(void)usleep(1000);
	}
}

static void try_files(void)
{
	(void)mkdir("/lower", 0755);
	(void)mkdir("/upper", 0755);
	(void)mkdir("/all", 0755);
	say("erofs", mount("/dev/vda", "/lower", "erofs", MS_RDONLY, ""));
	say("ext4", mount("/dev/vdb", "/upper", "ext4", 0, ""));
	(void)mkdir("/upper/a", 0755);
	(void)mkdir("/upper/w", 0755);
	say("overlay", mount("overlay", "/all", "overlay", 0,
			     "lowerdir=/lower,upperdir=/upper/a,workdir=/upper/w"));
	say("write", open("/all/written", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	say("image", access("/all/etc/hello", R_OK));
}

/* The capture itself sets up nf_tables with tproxy. This only checks that the kernel accepts the
 * request, and that it has the sockets for it. */
static void try_rest(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	say("landlock", (int)syscall(SYS_landlock_create_ruleset, NULL, 0, 1));
	say("cgroup2", mount("cgroup", "/root", "cgroup2", 0, ""));
	say("pids", open("/root/cgroup.controllers", O_RDONLY | O_CLOEXEC));
	(void)mkdir("/root/users", 0755);
	say("freezer", access("/root/users/cgroup.freeze", W_OK));
	say("transparent", setsockopt(fd, SOL_IP, IP_TRANSPARENT, &on, sizeof(on)));
	say("ipv6", socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
	say("netfilter", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER));
}

int main(void)
{
	(void)mount("dev", "/dev", "devtmpfs", 0, "");
	(void)mount("proc", "/proc", "proc", 0, "");
	load_modules();
	open_port();
	say("ready", 0);
	try_files();
	try_rest();
	say("end", 0);
	(void)usleep(100000); /* time for the host to read the output */
	(void)reboot(RB_AUTOBOOT);
	return 1;
}
