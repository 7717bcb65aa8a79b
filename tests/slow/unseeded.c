/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-guest as it is, but for the seed: it hears of one and keeps it from the kernel. The control
 * of clones.py: clones with this agent draw the same random numbers, and the test has to find that.
 */
#include <linux/random.h>
#include <stdarg.h>
#include <sys/ioctl.h>

/* The linker's names for what src/guest calls ioctl(), and for what that was. */
int __wrap_ioctl(int fd, unsigned long request, ...);
int __real_ioctl(int fd, unsigned long request, ...);

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list list;
	void *arg;

	if (request == RNDADDENTROPY || request == RNDRESEEDCRNG)
		return 0;
	va_start(list, request);
	arg = va_arg(list, void *);
	va_end(list);
	return __real_ioctl(fd, request, arg);
}
