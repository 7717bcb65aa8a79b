/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden's trace lines for readers. The keeper asks for them by a note and gets the read end of
 * a pipe. Each line is one write(2), which the pipe takes whole or not at all. The warden never
 * waits: a line that does not fit is dropped and counted.
 */
#include <fcntl.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/trace.h"
#include "warden/warden.h"

static struct {
	int fd;
	uint64_t lost;
} out = { .fd = -EBADF };

static void on_line(void *arg, const struct trace_line *line)
{
	struct trace_line l = *line;
	char text[TRACE_LINE_MAX];
	size_t n;

	(void)arg;
	if (out.lost > 0) {
		l.kind = TRACE_LOST;
		(void)snprintf(l.text, sizeof(l.text), "%llu lines dropped: they were not read",
			       (unsigned long long)out.lost);
		n = trace_format(&l, text);
		if (write(out.fd, text, n) < 0) {
			out.lost++;
			return;
		}
		out.lost = 0;
	}
	n = trace_format(line, text);
	out.lost += write(out.fd, text, n) < 0;
}

static void end(void)
{
	trace_to(NULL, NULL);
	out.fd = fd_close(out.fd);
	out.lost = 0;
}

void warden_trace(const struct warden *w, bool on)
{
	_cleanup_close_ int from = -EBADF;
	int to, r;

	end();
	if (!on || fd_pipe(O_NONBLOCK, &from, &to) < 0)
		return;
	r = note_send(w->note, NOTE_TRACE, 0, &from, 1);
	out.fd = to;
	if (r < 0)
		end();
	else
		trace_to(on_line, NULL);
}

/* Names the sandbox and request in the trace lines of the warden and of its child, the keeper. */
void warden_name_lines(const struct spec *s)
{
	trace_set_sandbox(s->id);
	trace_set_request(s->request);
	if (s->trace)
		log_trace(true);
}
