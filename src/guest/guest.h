/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-guest: PID 1 of a sandbox. One loop, one link to the keeper, and a table of jobs.
 *
 * A job is a process that was started for a channel: a command (exec.c) or a worker that does one
 * file operation (files.c). It ends in two halves, in either order: its process is reaped (pid
 * becomes 0), its channel is closed (ch becomes 0). With the second half it is freed. A connection
 * to a port (port.c) is a job without a process, so with its channel it is over.
 */
#pragma once

#include <sys/resource.h>

#include "link.h"
#include "loop.h"

enum {
	JOBS_MAX = 256,
	CHUNK = WIRE_PAYLOAD_MAX, /* read from a program at once */
};

struct job;

struct guest {
	struct loop *loop;
	struct link *link;
	struct loop_fd channel;
	struct loop_signal child;
	bool writing;	    /* the channel is watched for EPOLLOUT */
	bool input_stopped; /* and not for EPOLLIN: too much waits to be written */
	bool starved;	    /* somebody waits for link_ready() */
	bool ended;
	int result;
	int null; /* /dev/null */
	struct job *jobs;
	size_t n_jobs;
	char chunk[CHUNK];
};

/* What a kind of job does with what the keeper says. NULL: nothing. */
struct job_ops {
	void (*data)(struct job *j, unsigned int stream, const void *data, size_t n);
	void (*eof)(struct job *j, unsigned int stream);
	void (*msg)(struct job *j, enum wire_msg kind, const struct fields *f);
	void (*wake)(struct job *j);   /* there is credit again, or room in the link */
	void (*closed)(struct job *j); /* the channel is gone; j->ch is 0 already */
	void (*ended)(struct job *j, int status, const struct rusage *usage); /* j->pid is 0 */
	void (*free)(struct job *j);
};

struct job {
	struct guest *guest;
	const struct job_ops *ops;
	pid_t pid;
	uint32_t ch;
	struct job *prev, *next;
};

/* ---- channel.c: the link and the loop ---- */

/* Takes the channel's descriptor; all else in `g` is zero. 0 or -errno. */
int guest_start(struct guest *g, int fd);

/* Serves until the channel ends; the exit status of the program. */
int guest_serve(struct guest *g);

/* For results of link_*(): a dead link ends the guest. -ESTALE, the channel is gone, is nothing. */
void guest_check(struct guest *g, int r);

/* ---- jobs.c ---- */

/* Puts a job with a process (0: none) and a channel into the table. There is room: see job_room().
 */
void job_add(struct guest *g, struct job *j, const struct job_ops *ops, pid_t pid, uint32_t ch);
bool job_room(const struct guest *g);

/* Closes the job's channel from our side. May free the job: use it no more. */
void job_close(struct job *j, enum wire_code code, const char *text);

/* The keeper closed the job's channel. May free it. */
void job_closed(struct job *j);

/* Reaps whatever has ended: jobs and orphans. */
void jobs_reap(struct guest *g);

/* Tells every job that there is room in the link again. */
void jobs_wake(struct guest *g);

/* Signals the process group that the job led from its start; the job may have been reaped since. */
void job_signal_group(const struct job *j, pid_t group, int sig);

/* Refuses an operation before there is a job; the text is made fit for the wire. */
void guest_refuse(struct guest *g, uint32_t ch, enum wire_code code, const char *text);

/* ---- operations ---- */

void exec_open(struct guest *g, uint32_t ch, const struct fields *f);
void port_open(struct guest *g, uint32_t ch, const struct fields *f);
void files_open(struct guest *g, uint32_t ch, enum wire_op op, const struct fields *f);
