/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-guest: PID 1 of a sandbox. One loop, one link to the keeper, and a table of jobs.
 *
 * A job is a process started for a channel: a command (exec.c) or a worker that does one file
 * operation (files.c). It ends in two halves, in either order: its process is reaped (pid becomes
 * 0), its channel is closed (ch becomes 0). Then it is freed. A connection to a port (port.c) is a
 * job without a process, so it ends with its channel. So is an outgoing connection (egress.c),
 * whose channel the guest opens itself.
 *
 * When another keeper resumes a saved VM, the channels are gone. A command is then an orphan: the
 * guest reads nothing from it until it is adopted.
 */
#pragma once

#include <sys/resource.h>

#include "base/loop.h"
#include "wire/link.h"

enum {
	JOBS_MAX = 768,		  /* the keeper limits each kind: src/keeper/relay.h */
	CHUNK = WIRE_PAYLOAD_MAX, /* per read of a program's output */
};

struct job;
struct capture;

struct guest {
	struct loop *loop;
	struct link *link;
	struct loop_fd channel;
	struct loop_signal child;
	bool writing;	    /* the channel is watched for EPOLLOUT */
	bool input_stopped; /* EPOLLIN is off: too many bytes wait to be written */
	bool starved;	    /* a job waits for link_ready() */
	bool falling;	    /* SLEEP received: send ASLEEP at the end of the round */
	bool asleep;	    /* only the channel is watched */
	uint64_t held;	    /* `held_bytes` to the keeper may wait until then; 0: none */
	size_t held_bytes;
	bool ended;
	int result;
	int null; /* /dev/null */
	struct job *jobs;
	size_t n_jobs;		 /* requested by the keeper */
	struct capture *capture; /* captures outgoing connections; NULL: no egress */
	size_t n_streams;	 /* outgoing connections */
	struct loop_timer look;	 /* checks limits: met.c */
	uint32_t trace_ch;	 /* receives trace lines; 0: tracing is off */
	uint64_t trace_lost;
	char chunk[CHUNK];
};

/* Callbacks of a kind of job for events of its channel and process. NULL: ignored. */
struct job_ops {
	bool own;			 /* the guest opened its channel */
	void (*accepted)(struct job *j); /* only if `own` */
	/* Only if `own`: the keeper closes the channel, and why. closed() follows. */
	void (*answered)(struct job *j, enum wire_code code, const char *text);
	void (*data)(struct job *j, unsigned int stream, const void *data, size_t n);
	void (*eof)(struct job *j, unsigned int stream);
	void (*msg)(struct job *j, enum wire_msg kind, const struct fields *f);
	void (*wake)(struct job *j);   /* new credit, or room in the link */
	void (*closed)(struct job *j); /* the channel is gone; j->ch is 0 already */
	void (*ended)(struct job *j, int status, const struct rusage *usage); /* j->pid is 0 */
	/* Another keeper has taken over and may adopt the job. False, or NULL: there is nothing to
	 * adopt, and the job is closed. */
	bool (*orphaned)(struct job *j);
	bool (*runs)(const struct job *j); /* whether this is a running command with a client */
	void (*done)(struct job *j); /* releases resources before the job is freed; may be NULL */
};

struct job {
	struct guest *guest;
	const struct job_ops *ops;
	pid_t pid;
	uint32_t ch;
	bool orphan; /* kept without a channel until adopted */
	struct job *prev, *next;
};

/* ---- channel.c: the link and the loop ---- */

/* Takes the channel's descriptor; the rest of `g` must be zero. 0 or -errno. */
int guest_start(struct guest *g, int fd);

/* Serves until the channel ends; returns the exit status. */
int guest_serve(struct guest *g);

/* Checks a result of link_*(): a dead link ends the guest. -ESTALE (channel gone) is ignored. */
void guest_check(struct guest *g, int r);

/*
 * Delays queued frames for up to HOLD_US: if a command ends quickly, "started" and "ended" go out
 * together, and the keeper and the client wake up once instead of twice. Any other frame ends the
 * delay. `more`: only if something is delayed already.
 */
void guest_hold(struct guest *g, bool more);

/* ---- jobs.c ---- */

/* Adds a job with a process (0: none) and a channel to the table. For jobs of the keeper the caller
 * checks job_room() first. */
void job_add(struct guest *g, struct job *j, const struct job_ops *ops, pid_t pid, uint32_t ch);
bool job_room(const struct guest *g);

/* Closes the job's channel from our side. May free the job. */
void job_close(struct job *j, enum wire_code code, const char *text);

/* The keeper closed the job's channel. May free the job. */
void job_closed(struct job *j);

/* The link is new and every channel is gone. */
void jobs_reset(struct guest *g);

/* Assigns the channel to an orphaned job. */
void job_adopt(struct job *j, uint32_t ch);

/* Makes room by removing an orphan that has ended. */
void jobs_forget(struct guest *g);

/* Reaps the job's process if it has ended already. May free the job. */
void job_reap(struct job *j);

/* Reaps all ended processes: jobs, and orphans that PID 1 inherited. */
void jobs_reap(struct guest *g);

/* Notifies every job that there is room in the link again. */
void jobs_wake(struct guest *g);

/* Signals the process group that the job led at its start; the job may have been reaped. */
void job_signal_group(const struct job *j, pid_t group, int sig);

/* Refuses an operation before it has a job; converts the text to valid UTF-8 of limited length. */
void guest_refuse(struct guest *g, uint32_t ch, enum wire_code code, const char *text);

/* ---- met.c ---- */

/* Reports limits that users have hit to the keeper. Only in a VM: the host counts otherwise. */
void met_tell(struct guest *g);
void met_watch(struct guest *g); /* call when a command starts */

/* ---- tracing.c ---- */

void tracing_open(struct guest *g, uint32_t ch);
void tracing_closed(struct guest *g, uint32_t ch); /* only if it is the trace channel; 0: it is */

/* ---- operations ---- */

/* egress.c: creates the capturing sockets, if HELLO allows egress. Needs the guest's privileges. */
int egress_open(struct guest *g, const struct fields *hello, struct err *e);

void exec_open(struct guest *g, uint32_t ch, const struct fields *f);
void exec_adopt(struct guest *g, uint32_t ch, const struct fields *f);
void port_open(struct guest *g, uint32_t ch, const struct fields *f);
void files_open(struct guest *g, uint32_t ch, enum wire_op op, const struct fields *f);
