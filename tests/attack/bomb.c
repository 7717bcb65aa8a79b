/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses up one resource until the kernel refuses or kills it: bomb
 * fork|memory|disk|inodes|descriptors|cpu|flood [DIR]. Prints "LIMIT COUNT ERRNO" when refused,
 * then keeps trying for two seconds, as a real attacker would.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *dir = "/tmp";

static double now(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void refused(const char *what, long count)
{
	printf("%s %ld %s\n", what, count, strerrorname_np(errno));
	fflush(stdout);
}

/* Calls `take` until it fails, reports that, and keeps calling for two seconds. */
static int until_refused(const char *what, int (*take)(long i))
{
	long n = 0;
	double end;

	while (take(n) >= 0)
		n++;
	refused(what, n);
	for (end = now() + 2; now() < end;)
		(void)take(n);
	return 0;
}

static int take_process(long i)
{
	pid_t pid = fork();

	(void)i;
	if (pid == 0)
		for (;;)
			(void)pause();
	return pid;
}

static int take_memory(long i)
{
	enum {
		CHUNK = 4 << 20
	};
	char *p = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)i;
	if (p == MAP_FAILED)
		return -1;
	memset(p, 'x', CHUNK);
	return 0;
}

static int take_disk(long i)
{
	static char block[1 << 16];
	static int fd = -1;
	char path[256];

	if (fd < 0) {
		(void)snprintf(path, sizeof(path), "%s/fill", dir);
		fd = open(path, O_CREAT | O_WRONLY, 0600);
	}
	memset(block, (int)i, sizeof(block));
	return (int)write(fd, block, sizeof(block));
}

static int take_inode(long i)
{
	char path[256];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/i%ld", dir, i);
	fd = open(path, O_CREAT | O_WRONLY, 0600);
	return fd < 0 ? -1 : close(fd);
}

static int take_descriptor(long i)
{
	(void)i;
	return memfd_create("x", 0);
}

static int flood(void)
{
	static char block[1 << 16];

	while (write(1, block, sizeof(block)) >= 0)
		;
	return 1;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (argc > 2)
		dir = argv[2];
	if (strcmp(what, "fork") == 0)
		return until_refused(what, take_process);
	if (strcmp(what, "memory") == 0)
		return until_refused(what, take_memory);
	if (strcmp(what, "disk") == 0)
		return until_refused(what, take_disk);
	if (strcmp(what, "inodes") == 0)
		return until_refused(what, take_inode);
	if (strcmp(what, "descriptors") == 0)
		return until_refused(what, take_descriptor);
	if (strcmp(what, "cpu") == 0)
		for (;;)
			__asm__ volatile("");
	if (strcmp(what, "flood") == 0)
		return flood();
	return 2;
}
