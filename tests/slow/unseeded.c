/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-guest without the seed: it receives one and withholds it from the kernel. The control of
 * clones.py: clones with this agent draw the same random numbers, and the test must find that. It
 * draws the first random number at that moment and keeps it in /dev/shm/first: a kernel reseeds
 * itself about a second later, and a command may be that late on a busy host.
 */
#include <fcntl.h>
#include <linux/random.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <unistd.h>

/* The linker's names for the wrapped and for the real ioctl(). */
int __wrap_ioctl(int fd, unsigned long request, ...);
int __real_ioctl(int fd, unsigned long request, ...);

static void keep_first(void)
{
	int fd = open("/dev/shm/first", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	unsigned char drawn[32];

	if (fd < 0)
		return;
	if (getrandom(drawn, sizeof(drawn), 0) == (ssize_t)sizeof(drawn))
		for (size_t i = 0; i < sizeof(drawn); i++)
			(void)dprintf(fd, "%02x", drawn[i]);
	(void)close(fd);
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	void *arg;

	if (request == RNDRESEEDCRNG)
		keep_first();
	if (request == RNDADDENTROPY || request == RNDRESEEDCRNG)
		return 0;
	va_start(list, request);
	arg = va_arg(list, void *);
	va_end(list);
	return __real_ioctl(fd, request, arg);
}
