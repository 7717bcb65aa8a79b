/* SPDX-License-Identifier: Apache-2.0 */
#include "vm/tool-run.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"

enum {
	ARGV_MAX = 40,
	LINE_MAX_BYTES = 160 /* as much as fits into a message */
};

struct talk {
	const struct tool *tool;
	char line[LINE_MAX_BYTES], last[LINE_MAX_BYTES];
	size_t n;
};

static void take_line(struct talk *t)
{
	t->line[t->n] = '\0';
	t->n = 0;
	if (t->line[0] == '\0')
		return;
	str_make_utf8(t->line);
	memcpy(t->last, t->line, sizeof(t->last));
	if (t->tool->line)
		t->tool->line(t->line, t->tool->arg);
}

static int listen_to(struct talk *t, int fd)
{
	char chunk[4096] = "";
	ssize_t k;

	while ((k = RETRY_EINTR(read(fd, chunk, sizeof(chunk)))) > 0)
		for (ssize_t i = 0; i < k; i++) {
			if (chunk[i] == '\n' || chunk[i] == '\r')
				take_line(t);
			else if (t->n < sizeof(t->line) - 1)
				t->line[t->n++] = chunk[i];
		}
	take_line(t);
	return k < 0 ? -errno : 0;
}

static int start(const struct tool *t, int news, struct proc *ret, struct err *e)
{
	static const char *const env[] = {
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C.UTF-8", NULL
	};
	const char *argv[ARGV_MAX] = { "setpriv", "--pdeathsig", "KILL", t->argv[0] };
	char setpriv[PATH_MAX], path[PATH_MAX];

	for (size_t i = 1; t->argv[i]; i++) {
		assert(i + 4 < ARGV_MAX);
		argv[i + 3] = t->argv[i];
	}
	if (proc_find("setpriv", setpriv, sizeof(setpriv)) < 0)
		return err_set(e, -ENOENT, "setpriv is needed: apt-get install util-linux");
	if (proc_find(t->argv[0], path, sizeof(path)) < 0)
		return err_set(e, -ENOENT, "%s is needed: apt-get install %s", t->argv[0],
			       t->package);
	return proc_spawn(&(struct proc_spec){ .path = setpriv,
					       .argv = argv,
					       .env = env,
					       .in = t->in,
					       .out = t->out < 0 ? news : t->out,
					       .err = news,
					       .more = t->hold,
					       .n_more = t->hold ? 1 : 0 },
			  ret, e);
}

int tool_run(const struct tool *t, struct err *e)
{
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	_cleanup_proc_ struct proc p = PROC_INIT;
	struct talk talk = { .tool = t };
	siginfo_t info = { 0 };
	int r;

	if (fd_pipe(0, &from, &to) < 0)
		return err_errno(e, "cannot create a pipe");
	r = start(t, to, &p, e);
	to = fd_close(to); /* or we never see the end of its output */
	if (r < 0)
		return r;
	r = listen_to(&talk, from);
	if (r == 0)
		r = proc_wait(&p, UINT64_MAX, &info);
	if (r < 0)
		return err_set(e, r, "cannot wait for %s: %s", t->argv[0], strerror(-r));
	if (info.si_code == CLD_EXITED && info.si_status == 0)
		return 0;
	return err_set(e, -EIO, "%s failed: %s", t->argv[0], talk.last);
}
