/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends trace lines to the keeper as "KIND TEXT", on the channel of a trace operation. At most one
 * such channel is open. Lines without credit or room in the link are dropped and counted. A new
 * channel first lists the running jobs.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/trace.h"
#include "guest/guest.h"

/* Field numbers of /proc/PID/stat: proc(5). */
enum {
	STAT_STATE = 3, /* the first after the name */
	STAT_USER = 14,
	STAT_SYSTEM = 15,
};

static bool send_text(struct guest *g, const char *kind, const char *text)
{
	char line[TRACE_LINE_MAX];
	int n = snprintf(line, sizeof(line), "%s %s\n", kind, text);
	ssize_t sent;

	if (!link_ready(g->link) || link_credit(g->link, g->trace_ch, 0) < (size_t)n)
		return false;
	sent = link_data(g->link, g->trace_ch, 0, line, (size_t)n);
	guest_check(g, sent < 0 ? (int)sent : 0);
	return sent == (ssize_t)n;
}

static void on_line(void *arg, const struct trace_line *line)
{
	struct guest *g = arg;
	char text[64];

	if (g->trace_lost > 0) {
		(void)snprintf(text, sizeof(text), "%llu lines dropped: they were not read",
			       (unsigned long long)g->trace_lost);
		if (!send_text(g, trace_kind_names[TRACE_LOST], text)) {
			g->trace_lost++;
			return;
		}
		g->trace_lost = 0;
	}
	g->trace_lost += !send_text(g, trace_kind_names[line->kind], line->text);
}

/* Traces a process's state and CPU time from /proc. */
static void look_at(const struct job *j)
{
	static const long tick_ms = 10; /* USER_HZ is 100 on all supported platforms */
	char path[32], text[512] = "", state = '?';
	unsigned long user = 0, system = 0;
	const char *rest;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)j->pid);
	(void)fd_read_line(AT_FDCWD, path, text, sizeof(text));
	rest = strrchr(text, ')'); /* the program chooses the name before it */
	if (rest && rest[1] == ' ' && rest[2])
		state = rest[2];
	for (int word = STAT_STATE; rest && word <= STAT_SYSTEM; word++) {
		rest = strchr(rest + 1, ' ');
		if (rest && word == STAT_USER)
			user = strtoul(rest, NULL, 10);
		else if (rest && word == STAT_SYSTEM)
			system = strtoul(rest, NULL, 10);
	}
	TRACE(TRACE_STATE, "channel %u: pid %d, state %c, %lu ms of CPU time", j->ch, (int)j->pid,
	      state, (user + system) * (unsigned long)tick_ms);
}

void tracing_open(struct guest *g, uint32_t ch)
{
	if (g->trace_ch != 0)
		guest_refuse(g, g->trace_ch, WIRE_DONE, NULL);
	guest_check(g, link_accept(g->link, ch, NULL));
	g->trace_ch = ch;
	g->trace_lost = 0;
	trace_to(on_line, g);
	for (const struct job *j = g->jobs; j && trace_on; j = j->next)
		if (j->pid > 0)
			look_at(j);
	TRACE(TRACE_STATE, "jobs: %zu", g->n_jobs);
}

void tracing_closed(struct guest *g, uint32_t ch)
{
	if (g->trace_ch == 0 || (ch != 0 && ch != g->trace_ch))
		return;
	trace_to(NULL, NULL);
	g->trace_ch = 0;
}
