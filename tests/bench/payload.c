/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program that benchmarks run inside and outside of sandboxes. Static, so that its start costs
 * only the kernel's work and no dynamic linking: payload true | write BYTES | sleep SECONDS
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char block[64 * 1024];

static int put(unsigned long long left)
{
	while (left > 0) {
		size_t n = left < sizeof(block) ? (size_t)left : sizeof(block);
		ssize_t r = write(STDOUT_FILENO, block, n);

		if (r < 0 && errno != EINTR)
			return 1;
		left -= r > 0 ? (unsigned long long)r : 0;
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	unsigned long long n = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;

	if (strcmp(what, "true") == 0)
		return 0;
	if (strcmp(what, "write") == 0)
		return put(n);
	if (strcmp(what, "sleep") == 0)
		return sleep((unsigned int)n) > 0;
	return 2;
}
