/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stopwatch of the benchmarks: runs a program as often as asked and prints the nanoseconds and
 * the bytes of output. Only posix_spawn(3), read(2) and wait(2) lie between the two readings of the
 * clock, so this is also the bare operation that an exec in a sandbox is compared with.
 *
 *   bench-exec [-n COUNT] [-m FILE] [-r DIR] [-b] PROGRAM [ARGUMENT...]
 *
 * -m: in the mount namespace that FILE refers to; -r: in this root; -b: reads the output to its end
 * while the program runs. The program's input is a pipe at end of file and its output is a pipe,
 * never /dev/null or a file: crun would change their owner to the container's user.
 */
#include <fcntl.h>
#include <sched.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/err.h"

enum {
	COUNT_MAX = 1000000,
	READ_SIZE = 64 * 1024,
};

struct watch {
	unsigned long count;
	const char *mounts, *root;
	bool read;
	char **argv;
	int in, out, out_write;
	uint64_t ns, bytes;
	pid_t pid;
};

static int options(int argc, char **argv, struct watch *w, struct err *e)
{
	char *end = NULL;
	int c;

	while ((c = getopt(argc, argv, "+n:m:r:b")) != -1)
		switch (c) {
		case 'n':
			w->count = strtoul(optarg, &end, 10);
			if (*end || w->count == 0 || w->count > COUNT_MAX)
				return err_set(e, -EINVAL, "-n takes a number from 1 to %d",
					       COUNT_MAX);
			break;
		case 'm':
			w->mounts = optarg;
			break;
		case 'r':
			w->root = optarg;
			break;
		case 'b':
			w->read = true;
			break;
		default:
			return err_set(e, -EINVAL, "see the top of tests/bench/exec.c");
		}
	w->argv = argv + optind;
	if (!w->argv[0])
		return err_set(e, -EINVAL, "no program is named");
	return w->read && w->count > 1 ? err_set(e, -EINVAL, "-b is for one run") : 0;
}

static int enter(const struct watch *w, struct err *e)
{
	if (w->mounts) {
		_cleanup_close_ int fd = open(w->mounts, O_RDONLY | O_CLOEXEC);

		if (fd < 0 || setns(fd, CLONE_NEWNS) < 0)
			return err_errno(e, "cannot enter '%s'", w->mounts);
	}
	if (w->root && (chroot(w->root) < 0 || chdir("/") < 0))
		return err_errno(e, "cannot enter '%s'", w->root);
	return 0;
}

static int pipes(struct watch *w, struct err *e)
{
	int in[2], out[2];

	if (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0)
		return err_errno(e, "cannot make a pipe");
	(void)close(in[1]);
	w->in = in[0];
	w->out = out[0];
	w->out_write = out[1];
	return 0;
}

static int start(struct watch *w, const posix_spawn_file_actions_t *files, struct err *e)
{
	int r = posix_spawn(&w->pid, w->argv[0], files, NULL, w->argv, environ);

	return r > 0 ? err_set(e, -r, "cannot run '%s': %s", w->argv[0], strerror(r)) : 0;
}

static int finish(const struct watch *w, struct err *e)
{
	int status = 0;

	while (waitpid(w->pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_errno(e, "cannot wait for '%s'", w->argv[0]);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		return err_set(e, -EIO, "'%s' ended with status %#x", w->argv[0],
			       (unsigned int)status);
	return 0;
}

static int read_all(struct watch *w, struct err *e)
{
	static char block[READ_SIZE];
	ssize_t n;

	(void)close(w->out_write);
	while ((n = read(w->out, block, sizeof(block))) != 0) {
		if (n < 0 && errno != EINTR)
			return err_errno(e, "cannot read what '%s' writes", w->argv[0]);
		w->bytes += n > 0 ? (uint64_t)n : 0;
	}
	return 0;
}

static int measure(struct watch *w, const posix_spawn_file_actions_t *files, struct err *e)
{
	uint64_t begin = clock_mono();
	int r = 0;

	for (unsigned long i = 0; r == 0 && i < w->count; i++) {
		r = start(w, files, e);
		if (r == 0 && w->read)
			r = read_all(w, e);
		if (r == 0)
			r = finish(w, e);
	}
	w->ns = clock_mono() - begin;
	return r;
}

/* Prints the output of a failed program. */
static void show(const struct watch *w)
{
	char text[4096];
	ssize_t n;

	(void)fcntl(w->out, F_SETFL, O_NONBLOCK);
	while ((n = read(w->out, text, sizeof(text))) > 0)
		(void)fwrite(text, 1, (size_t)n, stderr);
}

int main(int argc, char **argv)
{
	struct watch w = { .count = 1 };
	struct err e = ERR_INIT;
	posix_spawn_file_actions_t files;
	int r = options(argc, argv, &w, &e);

	if (r == 0)
		r = enter(&w, &e);
	if (r == 0)
		r = pipes(&w, &e);
	if (r == 0) {
		(void)posix_spawn_file_actions_init(&files);
		(void)posix_spawn_file_actions_adddup2(&files, w.in, STDIN_FILENO);
		(void)posix_spawn_file_actions_adddup2(&files, w.out_write, STDOUT_FILENO);
		if (!w.read)
			(void)posix_spawn_file_actions_adddup2(&files, w.out_write, STDERR_FILENO);
		r = measure(&w, &files, &e);
		(void)posix_spawn_file_actions_destroy(&files);
		if (r < 0)
			show(&w);
	}
	if (r < 0)
		(void)fprintf(stderr, "bench-exec: %s\n", e.msg);
	else
		(void)printf("%llu %llu\n", (unsigned long long)w.ns, (unsigned long long)w.bytes);
	return r < 0;
}
