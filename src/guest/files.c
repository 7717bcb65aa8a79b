/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PID 1's side of file operations: it starts a worker, forwards its packets, and opens no path
 * itself. The worker is a process of the user, so PID 1 checks each packet before it becomes a
 * frame.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "guest/flow.h"
#include "guest/worker.h"

enum {
	PIPE_LARGE = 512 * 1024,
	ABORT_SEC = 5, /* how long an aborted operation may take to clean up */
};

struct file_job {
	struct job job;
	enum wire_op op;
	struct loop_fd control;
	struct outflow out; /* read, pack */
	struct inflow in;   /* write, unpack */
	struct loop_timer abort;
	bool accepted, done;
	struct failure result;
};

static bool gives_contents(enum wire_op op)
{
	return op == WIRE_OP_READ || op == WIRE_OP_PACK;
}

static bool takes_contents(enum wire_op op)
{
	return op == WIRE_OP_WRITE || op == WIRE_OP_UNPACK;
}

static struct file_job *file_of(struct job *j)
{
	return (struct file_job *)j;
}

static void release(struct file_job *f)
{
	loop_del_fd(&f->control);
	f->control.fd = fd_close(f->control.fd);
	outflow_done(&f->out);
	inflow_done(&f->in);
}

/* Closes the channel once the worker has sent its result and all contents are sent. May free. */
static void finish(struct job *j)
{
	struct file_job *f = file_of(j);

	if (!f->done || (f->result.code == WIRE_DONE && outflow_running(&f->out)))
		return;
	release(f);
	job_close(j, f->result.code, f->result.text[0] ? f->result.text : NULL);
}

/* The worker sent an invalid packet or has ended. May free. */
static void fail_job(struct file_job *f)
{
	f->done = true;
	(void)fail_with(&f->result, WIRE_IO, "the file operation was cut short");
	if (f->job.pid > 0)
		(void)kill(f->job.pid, SIGKILL);
	finish(&f->job);
}

static enum wire_message accept_message(enum wire_op op)
{
	enum wire_message m = MESSAGE_NONE;

	(void)message_of_accept((uint8_t)op, false, &m);
	return m;
}

/* Forwards one packet. Returns false if the operation may not send it now. */
static bool take_packet(struct file_job *f, char *data, size_t n)
{
	struct guest *g = f->job.guest;
	struct buf b = { .data = data + 1, .len = n - 1 };
	enum wire_message m = MESSAGE_NONE;
	struct fields fields;
	struct err e = ERR_INIT;

	if (data[0] == PACKET_END && n == 1 + sizeof(f->result)) {
		memcpy(&f->result, data + 1, sizeof(f->result));
		f->result.text[sizeof(f->result.text) - 1] = '\0';
		f->done = f->result.code < WIRE_CODE_MAX;
		return f->done;
	}
	if (data[0] == PACKET_ACCEPT)
		m = accept_message(f->op);
	else if (data[0] == PACKET_ENTRY && (f->op == WIRE_OP_LIST || f->op == WIRE_OP_WRITE))
		m = MESSAGE_ENTRY;
	else if (data[0] == PACKET_EVENT && f->op == WIRE_OP_WATCH)
		m = MESSAGE_EVENT;
	else
		return false;
	if ((data[0] == PACKET_ACCEPT) == f->accepted ||
	    fields_parse(m, b.data, b.len, &fields, &e) < 0)
		return false;
	if (data[0] != PACKET_ACCEPT) {
		guest_check(g, link_msg(g->link, f->job.ch,
					m == MESSAGE_ENTRY ? WIRE_MSG_ENTRY : WIRE_MSG_EVENT, &b));
		return true;
	}
	f->accepted = true;
	guest_check(g, link_accept(g->link, f->job.ch, &b));
	outflow_wake(&f->out);
	return true;
}

static void on_control(struct loop_fd *src, uint32_t events)
{
	static char packet[PACKET_BYTES];
	struct file_job *f = src->arg;
	struct guest *g = f->job.guest;
	ssize_t k;

	if (!link_ready(g->link)) {
		g->starved = true;
		loop_del_fd(src);
		return;
	}
	k = recv(src->fd, packet, sizeof(packet), 0);
	if (k < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (k <= 0 || !take_packet(f, packet, (size_t)k)) {
		fail_job(f);
	} else if (f->done) {
		loop_del_fd(src);
		finish(&f->job);
	}
}

static void file_data(struct job *j, unsigned int stream, const void *data, size_t n)
{
	if (stream == 0)
		inflow_data(&file_of(j)->in, data, n);
	else
		guest_check(j->guest, link_consumed(j->guest->link, j->ch, stream, n));
}

/* All bytes are in the pipe: the worker may rename the file into place when it has read them. */
static void commit(struct job *j)
{
	(void)!send(file_of(j)->control.fd, "", 1, MSG_NOSIGNAL);
}

static void file_eof(struct job *j, unsigned int stream)
{
	struct file_job *f = file_of(j);

	if (stream != 0 || !takes_contents(f->op))
		return;
	if (f->in.fd < 0) /* some bytes are lost */
		(void)shutdown(f->control.fd, SHUT_WR);
	inflow_eof(&f->in);
}

static void file_wake(struct job *j)
{
	struct file_job *f = file_of(j);

	if (f->control.fd >= 0 && !f->control.loop && !f->done &&
	    loop_add_fd(j->guest->loop, &f->control, f->control.fd, EPOLLIN) < 0)
		j->guest->starved = true;
	if (f->accepted)
		outflow_wake(&f->out);
}

static void on_abort(struct loop_timer *t)
{
	const struct file_job *f = t->arg;

	if (f->job.pid > 0)
		(void)kill(f->job.pid, SIGKILL);
}

static void file_closed(struct job *j)
{
	struct file_job *f = file_of(j);

	release(f);
	/* A worker with incomplete contents removes its temporary file itself. */
	if (!takes_contents(f->op) ||
	    loop_set_timer(j->guest->loop, &f->abort, clock_mono() + ABORT_SEC * NSEC_PER_SEC) < 0)
		on_abort(&f->abort);
}

/* Nothing to do: the end of the control socket reports the same, after its last packet. */
static void file_ended(struct job *j, int status, const struct rusage *usage)
{
}

static void file_done(struct job *j)
{
	loop_del_timer(&file_of(j)->abort);
	release(file_of(j));
}

static const struct job_ops ops = {
	.data = file_data,
	.eof = file_eof,
	.wake = file_wake,
	.closed = file_closed,
	.ended = file_ended,
	.done = file_done,
};

/* Makes the pipe for contents: [0] is ours. */
static int make_pipe(enum wire_op op, int ret[2])
{
	int p[2], ours = gives_contents(op) ? 0 : 1;

	if (!gives_contents(op) && !takes_contents(op))
		return 0;
	if (fd_pipe(0, &p[0], &p[1]) < 0)
		return -errno;
	ret[0] = p[ours];
	ret[1] = p[1 - ours];
	(void)fcntl(p[0], F_SETPIPE_SZ, PIPE_LARGE); /* may fail at the user's limit */
	return fcntl(ret[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int start(enum wire_op op, const struct fields *f, int control[2], int contents[2])
{
	int r = make_pipe(op, contents);
	pid_t pid;

	if (r == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0)
		r = -errno;
	if (r == 0 && fcntl(control[0], F_SETFL, O_NONBLOCK) < 0)
		r = -errno;
	if (r < 0)
		return r;
	pid = fork();
	if (pid == 0)
		worker_run(op, f, control[1], contents[1]);
	return pid < 0 ? -errno : pid;
}

void files_open(struct guest *g, uint32_t ch, enum wire_op op, const struct fields *fields)
{
	int control[2] = { -EBADF, -EBADF }, contents[2] = { -EBADF, -EBADF };
	struct file_job *f = calloc(1, sizeof(*f));
	int r = f ? start(op, fields, control, contents) : -ENOMEM;

	(void)fd_close(control[1]);
	(void)fd_close(contents[1]);
	if (r < 0) {
		free(f);
		(void)fd_close(control[0]);
		(void)fd_close(contents[0]);
		guest_refuse(g, ch, code_of_errno(-r), strerror(-r));
		return;
	}
	job_add(g, &f->job, &ops, r, ch);
	f->op = op;
	f->abort = (struct loop_timer){ .cb = on_abort, .arg = f };
	f->control = (struct loop_fd){ .cb = on_control, .arg = f, .fd = control[0] };
	outflow_init(&f->out, &f->job, 0, gives_contents(op) ? contents[0] : -EBADF, finish);
	inflow_init(&f->in, &f->job, 0, takes_contents(op) ? contents[0] : -EBADF);
	/* An archive marks its own end, and an unread byte would reset the socket. */
	if (op == WIRE_OP_WRITE)
		f->in.drained = commit;
	file_wake(&f->job);
}
