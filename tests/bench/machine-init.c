/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first process of a measured VM: loads the modules that the initrd lists, as hutch-guest does,
 * opens the port, and echoes its input.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void load_modules(void)
{
	static char list[16 * 1024];
	int fd = open("/lib/modules-list", O_RDONLY | O_CLOEXEC);
	char *rest = list, *line;

	if (fd < 0 || read(fd, list, sizeof(list) - 1) < 0)
		return;
	(void)close(fd);
	while ((line = strsep(&rest, "\n"))) {
		fd = open(line, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		(void)syscall(SYS_finit_module, fd, "", 0);
		(void)close(fd);
	}
}

int main(void)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	char byte;
	int fd;

	(void)mount("dev", "/dev", "devtmpfs", 0, "");
	load_modules();
	while ((fd = open("/dev/vport0p1", O_RDWR | O_CLOEXEC)) < 0)
		(void)nanosleep(&pause, NULL);
	for (;;) {
		ssize_t n = read(fd, &byte, 1);

		/* read() returns 0 while the host end is closed. */
		if (n != 1)
			(void)nanosleep(&pause, NULL);
		else if (write(fd, &byte, 1) != 1)
			return 1;
	}
}
