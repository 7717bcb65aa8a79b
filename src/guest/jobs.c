/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "base/str.h"
#include "guest/guest.h"
#include "guest/standby.h"

enum {
	REAP_BATCH = 1024
};

bool job_room(const struct guest *g)
{
	return g->n_jobs < JOBS_MAX;
}

void job_add(struct guest *g, struct job *j, const struct job_ops *ops, pid_t pid, uint32_t ch)
{
	assert(ops->own || job_room(g));
	*j = (struct job){ .guest = g, .ops = ops, .pid = pid, .ch = ch, .next = g->jobs };
	if (g->jobs)
		g->jobs->prev = j;
	g->jobs = j;
	g->n_jobs += !ops->own;
	link_set_cookie(g->link, ch, j);
}

/* Frees the job once its process and channel are gone. */
static void release(struct job *j)
{
	struct guest *g = j->guest;

	if (j->pid != 0 || j->ch != 0 || j->orphan)
		return;
	if (j->prev)
		j->prev->next = j->next;
	else
		g->jobs = j->next;
	if (j->next)
		j->next->prev = j->prev;
	g->n_jobs -= !j->ops->own;
	if (j->ops->done)
		j->ops->done(j);
	free(j);
}

void job_close(struct job *j, enum wire_code code, const char *text)
{
	uint32_t ch = j->ch;

	j->ch = 0;
	guest_refuse(j->guest, ch, code, text);
	release(j);
}

void job_closed(struct job *j)
{
	j->ch = 0;
	j->ops->closed(j);
	release(j);
}

void jobs_reset(struct guest *g)
{
	struct job *next;

	for (struct job *j = g->jobs; j; j = next) {
		next = j->next;
		if (j->ch == 0)
			continue;
		j->orphan = j->ops->orphaned && j->ops->orphaned(j);
		if (j->orphan)
			j->ch = 0;
		else
			job_closed(j);
	}
}

void job_adopt(struct job *j, uint32_t ch)
{
	j->orphan = false;
	j->ch = ch;
	link_set_cookie(j->guest->link, ch, j);
}

void jobs_forget(struct guest *g)
{
	struct job *oldest = NULL;

	for (struct job *j = g->jobs; j; j = j->next)
		if (j->orphan && j->pid == 0)
			oldest = j;
	if (!oldest)
		return;
	oldest->orphan = false;
	release(oldest);
}

static struct job *find(const struct guest *g, pid_t pid)
{
	struct job *j = g->jobs;

	while (j && j->pid != pid)
		j = j->next;
	return j;
}

static void reaped(struct job *j, int status, const struct rusage *usage)
{
	/* ended() holds the channel open or closes it; either way release() runs once. */
	j->pid = 0;
	if (j->ch != 0 || j->orphan)
		j->ops->ended(j, status, usage);
	else
		release(j);
}

void job_reap(struct job *j)
{
	struct rusage usage;
	int status = 0;

	if (j->pid > 0 && RETRY_EINTR(wait4(j->pid, &status, WNOHANG, &usage)) == j->pid)
		reaped(j, status, &usage);
}

void jobs_reap(struct guest *g)
{
	for (unsigned int i = 0; i < REAP_BATCH; i++) {
		struct rusage usage;
		int status = 0;
		pid_t pid = RETRY_EINTR(wait4(-1, &status, WNOHANG, &usage));
		struct job *j = pid > 0 ? find(g, pid) : NULL;

		if (pid <= 0)
			return;
		if (j)
			reaped(j, status, &usage);
		else
			standby_ended(g, pid);
	}
	/* There may be more children; the other sources of the loop get their turn first. */
	(void)kill(getpid(), SIGCHLD);
}

/* Moves the first job to the end. */
static void rotate(struct guest *g)
{
	struct job *first = g->jobs, *last = first;

	if (!first || !first->next)
		return;
	while (last->next)
		last = last->next;
	g->jobs = first->next;
	g->jobs->prev = NULL;
	first->next = NULL;
	first->prev = last;
	last->next = first;
}

/* The first jobs fill the link again, so the list rotates to let others be first next time. */
void jobs_wake(struct guest *g)
{
	struct job *next;

	rotate(g);
	for (struct job *j = g->jobs; j; j = next) {
		next = j->next;
		if (j->ops->wake && j->ch != 0)
			j->ops->wake(j);
	}
}

void job_signal_group(const struct job *j, pid_t group, int sig)
{
	const struct job *other = find(j->guest, group);

	/*
	 * Once the leader is reaped and the last member is gone, the kernel may reuse the group's
	 * number. If another job has that pid, the intended group no longer exists.
	 */
	if (group > 0 && (!other || other == j))
		(void)kill(-group, sig);
}
