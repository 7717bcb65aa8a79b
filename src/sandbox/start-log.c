/* SPDX-License-Identifier: Apache-2.0 */
/* Shows a start's trace with HUTCH_LOG=debug: warden, keeper and guest write it to the sandbox's
 * log, and the starting process reads it there and passes it on, also after the directory of a
 * failed start is gone. */
#include "sandbox/start-log.h"

#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/path.h"

bool start_log_is_trace(const char *line, size_t n)
{
	struct trace_line ignored;

	return trace_parse(line, n, &ignored) == 0;
}

void start_log_open(struct start_log *l, int dir)
{
	if (!trace_on)
		return;
	l->fd = path_open_nofollow(dir, "log", O_RDONLY, 0);
	/* A spare's log already has lines, from before it had an owner. */
	if (l->fd >= 0)
		(void)lseek(l->fd, 0, SEEK_END);
}

/* A line of the log, or a trace line. */
static void pass(void *arg, const char *text, size_t n)
{
	struct trace_line line = { .process = "log" };

	(void)arg;
	if (trace_parse(text, n, &line) < 0)
		trace_fill(&line, TRACE_LOG, text, n);
	trace_pass(&line);
}

void start_log_follow(struct start_log *l)
{
	char bytes[16 * 1024];
	ssize_t n;

	while (l->fd >= 0 && (n = RETRY_EINTR(read(l->fd, bytes, sizeof(bytes)))) > 0)
		trace_feed(&l->lines, bytes, (size_t)n, pass, NULL);
}

void start_log_done(struct start_log *l)
{
	start_log_follow(l);
	l->fd = fd_close(l->fd);
}
