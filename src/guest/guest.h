/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-guest: PID 1 of a sandbox. One loop, one link to the keeper, and a table of jobs.
 *
 * A job is a process that was started for a channel: a command (exec.c) or a worker that does one
 * file operation (files.c). It ends in two halves, in either order: its process is reaped (pid
 * becomes 0), its channel is closed (ch becomes 0). With the second half it is freed. A connection
 * to a port (port.c) is a job without a process, so with its channel it is over. So is what goes
 * out (egress.c), whose channels are the guest's own.
 *
 * In a virtual machine that was saved and is continued by another keeper the channels are gone. A
 * command then is an orphan: nothing is read from it until it is adopted.
 */
#pragma once

#include <sys/resource.h>

#include "base/loop.h"
#include "wire/link.h"

enum {
	JOBS_MAX = 768,		  /* the keeper has budgets by kind: src/keeper/relay.h */
	CHUNK = WIRE_PAYLOAD_MAX, /* read from a program at once */
};

struct job;
struct capture;

struct guest {
	struct loop *loop;
	struct link *link;
	struct loop_fd channel;
	struct loop_signal child;
	bool writing;	    /* the channel is watched for EPOLLOUT */
	bool input_stopped; /* and not for EPOLLIN: too much waits to be written */
	bool starved;	    /* somebody waits for link_ready() */
	bool falling;	    /* SLEEP has come: ASLEEP is due at the end of the round */
	bool asleep;	    /* nothing is looked at but the channel */
	uint64_t held;	    /* until then `held_bytes` to the keeper may wait; 0: nothing may */
	size_t held_bytes;
	bool ended;
	int result;
	int null; /* /dev/null */
	struct job *jobs;
	size_t n_jobs;		 /* that the keeper asked for */
	struct capture *capture; /* what catches what goes out; NULL: nothing does */
	size_t n_streams;	 /* of it */
	struct loop_timer look;	 /* for limits that were met */
	uint32_t trace_ch;	 /* trace lines go here; 0: nobody wants them */
	uint64_t trace_lost;
	char chunk[CHUNK];
};

/* What a kind of job does with what the keeper says. NULL: nothing. */
struct job_ops {
	bool own;			 /* we opened its channel */
	void (*accepted)(struct job *j); /* of such */
	/* Likewise: the keeper closes it, and says why. closed() follows. */
	void (*answered)(struct job *j, enum wire_code code, const char *text);
	void (*data)(struct job *j, unsigned int stream, const void *data, size_t n);
	void (*eof)(struct job *j, unsigned int stream);
	void (*msg)(struct job *j, enum wire_msg kind, const struct fields *f);
	void (*wake)(struct job *j);   /* there is credit again, or room in the link */
	void (*closed)(struct job *j); /* the channel is gone; j->ch is 0 already */
	void (*ended)(struct job *j, int status, const struct rusage *usage); /* j->pid is 0 */
	/* The keeper is another one, who may adopt the job: false if there is nothing to adopt, and
	 * without this callback; then the job is closed. */
	bool (*orphaned)(struct job *j);
	bool (*runs)(const struct job *j); /* whether it is a running command with a client */
	void (*done)(struct job *j);	   /* releases its resources, before it is freed; or NULL */
};

struct job {
	struct guest *guest;
	const struct job_ops *ops;
	pid_t pid;
	uint32_t ch;
	bool orphan; /* kept without a channel, until it is adopted */
	struct job *prev, *next;
};

/* ---- channel.c: the link and the loop ---- */

/* Takes the channel's descriptor; all else in `g` is zero. 0 or -errno. */
int guest_start(struct guest *g, int fd);

/* Serves until the channel ends; the exit status of the program. */
int guest_serve(struct guest *g);

/* For results of link_*(): a dead link ends the guest. -ESTALE, the channel is gone, is nothing. */
void guest_check(struct guest *g, int r);

/*
 * What is to be said now may wait for what is about to follow: that a command runs is said together
 * with its end if that comes within HOLD_US, so that the keeper and the client wake up once instead
 * of twice. Whatever else is said takes it along. `more`: only if something waits already.
 */
void guest_hold(struct guest *g, bool more);

/* ---- jobs.c ---- */

/* Puts a job with a process (0: none) and a channel into the table. There is room: see job_room(),
 * which is about jobs that the keeper asks for. */
void job_add(struct guest *g, struct job *j, const struct job_ops *ops, pid_t pid, uint32_t ch);
bool job_room(const struct guest *g);

/* Closes the job's channel from our side. May free the job: use it no more. */
void job_close(struct job *j, enum wire_code code, const char *text);

/* The keeper closed the job's channel. May free it. */
void job_closed(struct job *j);

/* The link is new: every channel is gone. */
void jobs_reset(struct guest *g);

/* The job has this channel now. */
void job_adopt(struct job *j, uint32_t ch);

/* Makes room by forgetting an orphan that has ended. */
void jobs_forget(struct guest *g);

/* Reaps the job's process if it has ended already. May free the job. */
void job_reap(struct job *j);

/* Reaps whatever has ended: jobs, and what was left to PID 1. */
void jobs_reap(struct guest *g);

/* Tells every job that there is room in the link again. */
void jobs_wake(struct guest *g);

/* Signals the process group that the job led from its start; the job may have been reaped since. */
void job_signal_group(const struct job *j, pid_t group, int sig);

/* Refuses an operation before there is a job; the text is made fit for the wire. */
void guest_refuse(struct guest *g, uint32_t ch, enum wire_code code, const char *text);

/* ---- met.c ---- */

/* What the keeper hears of limits that users have met; nothing where its own kernel counts. */
void met_tell(struct guest *g);
void met_watch(struct guest *g); /* a command runs now */

/* ---- tracing.c ---- */

void tracing_open(struct guest *g, uint32_t ch);
void tracing_closed(struct guest *g, uint32_t ch); /* if it is that one; 0: it is */

/* ---- operations ---- */

/* egress.c: makes the sockets that catch what goes out, if HELLO says that anything may. Before
 * privileges are given up. */
int egress_open(struct guest *g, const struct fields *hello, struct err *e);

void exec_open(struct guest *g, uint32_t ch, const struct fields *f);
void exec_adopt(struct guest *g, uint32_t ch, const struct fields *f);
void port_open(struct guest *g, uint32_t ch, const struct fields *f);
void files_open(struct guest *g, uint32_t ch, enum wire_op op, const struct fields *f);
