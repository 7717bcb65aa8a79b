/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callbacks of the loop and the link only note events. After each round of the loop, settle() moves
 * the data: output to its sinks (which returns credit), input to the link as far as credit allows,
 * and the link's output to the socket.
 *
 * The result of a session is decided before the session is over: all received output is written
 * first. The result need not come from the command: a signal to us, a closed output pipe or a lost
 * connection also decide it.
 */
#include "client/session.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/loop.h"
#include "base/trace.h"
#include "client/sink.h"
#include "client/terminal.h"
#include "wire/link.h"

enum {
	CHUNK = 64 * 1024,
	GRACE_SEC = 5,	    /* between passing SIGTERM on and our own end */
	AHEAD = 256 * 1024, /* bytes of a record waiting to be written */
	LAST_MS = 2000,	    /* to send a CLOSE */
	KEY_P = 0x10,	    /* Ctrl-P Ctrl-Q: detach, the command continues */
	KEY_Q = 0x11,
};

/* Signals passed on to the command; SIGWINCH only with a terminal. */
static const int forwarded[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGWINCH };

struct session {
	const struct session_spec *spec;
	struct session_result *result;
	struct loop *loop;
	struct link *link;
	uint32_t ch;
	uint32_t trace_ch; /* HUTCH_LOG=debug: trace lines of the other side; 0: none */
	struct trace_lines lines;
	struct loop_fd socket, input, watch;
	struct record_cursor cursor;
	bool closed;	    /* the channel of an attach */
	bool key;	    /* Ctrl-P was typed */
	struct sink out[2]; /* streams 1 and 2 */
	struct loop_signal signals[ARRAY_SIZE(forwarded)];
	struct loop_timer last; /* ends our wait after SIGTERM */
	bool started;		/* the command was accepted */
	bool input_open;	/* input has not ended */
	bool input_ready;	/* can be read without waiting */
	bool input_file;	/* a regular file, always ready: epoll rejects it */
	int ending;		/* the signal passed on that limits our wait */
	bool decided;
	bool over;	   /* only the sinks' contents are left to write */
	bool stop;	   /* leave now, without writing the rest */
	struct err *error; /* our own failure */
	int failed;
};

static void decide(struct session *s, enum session_how how, unsigned int number)
{
	if (s->decided)
		return;
	s->decided = true;
	s->result->how = how;
	s->result->number = number;
}

static void fail(struct session *s, int r, const char *what)
{
	if (s->failed == 0)
		s->failed = err_set(s->error, r, "%s: %s", what, strerror(-r));
	s->stop = true;
}

static void send_msg(struct session *s, enum wire_msg kind, unsigned int signo);

/* ---- link callbacks ---- */

static void on_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct session *s = arg;

	if (ch == s->trace_ch)
		return;
	s->started = true;
	s->result->record = fields_number(f, TAG_RECORD, 0);
	if (s->spec->signal > 0)
		send_msg(s, WIRE_MSG_SIGNAL, s->spec->signal);
	if (s->spec->attach > 0 && s->spec->terminal)
		send_msg(s, WIRE_MSG_RESIZE, 0);
	if (s->spec->detach || s->spec->signal > 0) {
		decide(s, SESSION_DETACHED, 0);
		s->stop = true;
	}
}

static void pass_line(void *arg, const char *text, size_t n)
{
	struct trace_line line;

	(void)arg;
	if (trace_parse(text, n, &line) == 0)
		trace_pass(&line);
}

static void on_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		    void *arg)
{
	struct session *s = arg;

	if (ch == s->trace_ch)
		trace_feed(&s->lines, data, n, pass_line, s);
	if (ch == s->trace_ch || stream == 0)
		(void)link_consumed(l, ch, stream, n); /* stream 0 carries no output */
	else if (sink_put(&s->out[stream - 1], data, n) < 0)
		fail(s, -ENOMEM, "cannot buffer output");
}

static void on_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		   void *arg)
{
	struct session *s = arg;
	unsigned int sig = (unsigned int)fields_number(f, TAG_SIGNAL, 0);

	if (kind == WIRE_MSG_LIMIT && fields_number(f, TAG_LIMIT, 0) == WIRE_LIMIT_MEMORY)
		s->result->memory = true;
	if (kind != WIRE_MSG_EXIT)
		return;
	if (sig > 0)
		decide(s, SESSION_SIGNALED, sig);
	else
		decide(s, SESSION_EXITED, (unsigned int)fields_number(f, TAG_CODE, 0));
}

static void on_closed(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	unsigned int code = (unsigned int)fields_number(f, TAG_CODE, 0);
	struct session *s = arg;
	const char *text = NULL;
	size_t pos = 0, n = 0;

	if (ch == s->trace_ch)
		return;
	s->closed = true;
	if (s->spec->attach > 0 && s->started)
		return; /* the record has the rest */
	if (!s->decided && fields_next(f, TAG_TEXT, &pos, &text, &n))
		(void)snprintf(s->result->text, sizeof(s->result->text), "%.*s", (int)n, text);
	if (code == WIRE_TIMEOUT)
		decide(s, SESSION_TIMEOUT, 0);
	else
		decide(s, s->started ? SESSION_LOST : SESSION_REFUSED, code);
	s->over = true;
}

static const struct link_ops ops = {
	.accepted = on_accepted,
	.data = on_data,
	.msg = on_msg,
	.closed = on_closed,
};

/* ---- the socket ---- */

static void lost(struct session *s, const char *why)
{
	if (!s->decided)
		(void)snprintf(s->result->text, sizeof(s->result->text), "%s", why);
	decide(s, SESSION_LOST, 0);
	s->over = true;
}

static void on_socket(struct loop_fd *src, uint32_t events)
{
	struct session *s = src->arg;
	struct err e = ERR_INIT;
	char chunk[CHUNK];
	ssize_t n;

	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	n = recv(src->fd, chunk, sizeof(chunk), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0 && s->spec->attach > 0 && s->started) {
		s->closed = true;
		loop_del_fd(src);
	} else if (n <= 0)
		lost(s, "");
	else if (link_feed(s->link, chunk, (size_t)n, &e) < 0)
		lost(s, e.msg);
}

static ssize_t send_now(void *arg, const struct iovec pieces[static 2])
{
	const struct session *s = arg;
	struct msghdr m = { .msg_iov = (struct iovec *)pieces, .msg_iovlen = 2 };
	ssize_t k = sendmsg(s->socket.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);

	return k < 0 ? -errno : k;
}

static bool waits(const struct session *s)
{
	size_t n;

	(void)link_pending(s->link, &n);
	return n > 0;
}

static void flush_link(struct session *s)
{
	uint32_t events;

	(void)link_flush(s->link); /* on failure: received data is still read */
	events = waits(s) ? EPOLLIN | EPOLLOUT : EPOLLIN;
	if (s->socket.loop && s->socket.events != events)
		(void)loop_mod_fd(&s->socket, events);
}

/* ---- output from a record ---- */

int session_gap(char *out, size_t n, const struct record_piece *gap)
{
	return snprintf(out, n, "hutch: ... %llu bytes dropped ...\n", (unsigned long long)gap->n);
}

void session_result_of(const struct record_info *info, struct session_result *ret)
{
	const struct record_slot *slot = &info->slot;

	*ret = (struct session_result){ .record = info->head.number, .number = slot->value };
	(void)snprintf(ret->text, sizeof(ret->text), "%s", slot->text);
	if (slot->how == RECORD_EXITED)
		ret->how = SESSION_EXITED;
	else if (slot->how == RECORD_SIGNALED)
		ret->how = SESSION_SIGNALED;
	else if (slot->value == WIRE_TIMEOUT)
		ret->how = SESSION_TIMEOUT;
	else
		ret->how = slot->pid > 0 ? SESSION_LOST : SESSION_REFUSED;
}

static void on_written(struct loop_fd *src, uint32_t events)
{
	char events_read[4096];

	(void)events;
	(void)!read(src->fd, events_read, sizeof(events_read));
}

static int take_piece(struct session *s, const struct record_piece *p)
{
	char text[64];

	if (p->stream > 0)
		return sink_put(&s->out[p->stream - 1], p->data, p->n_data);
	return sink_put(&s->out[1], text, (size_t)session_gap(text, sizeof(text), p));
}

/* Reads as much of the record as is written soon. The session is over when the record has the
 * command's end, or when the channel is closed and no end can follow. */
static void pump_record(struct session *s)
{
	struct err e = ERR_INIT;
	struct record_info info;
	struct record_piece p;
	bool closed = s->closed;
	int r = 1;

	while (!s->over && s->out[0].buf.len < AHEAD && s->out[1].buf.len < AHEAD &&
	       (r = record_next(&s->cursor, &info, &p, &e)) > 0)
		if (take_piece(s, &p) < 0)
			r = -ENOMEM;
	if (s->over || r > 0)
		return;
	if (r < 0) {
		s->failed = err_set(s->error, r, "%s", e.msg[0] ? e.msg : "out of memory");
		s->stop = true;
	} else if (info.slot.state == RECORD_ENDED) {
		if (!s->decided)
			session_result_of(&info, s->result);
		s->decided = s->over = true;
	} else if (closed) {
		lost(s, "");
	}
}

static int watch_record(struct session *s)
{
	char path[64];
	int r;

	if (s->spec->attach == 0 || s->spec->record < 0)
		return 0;
	record_cursor_init(&s->cursor, s->spec->record, s->spec->from);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", s->spec->record);
	s->watch.fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (s->watch.fd < 0 || inotify_add_watch(s->watch.fd, path, IN_MODIFY) < 0)
		return -errno;
	r = loop_add_fd(s->loop, &s->watch, s->watch.fd, EPOLLIN);
	return r;
}

/* ---- output ---- */

static void flush_sink(struct session *s, unsigned int stream)
{
	ssize_t n = sink_flush(&s->out[stream - 1]);

	if (n == -EPIPE) {
		/* End at once with all that depends on us, as a local program would by SIGPIPE. */
		s->decided = false;
		decide(s, SESSION_PIPE, SIGPIPE);
		s->stop = true;
	} else if (n < 0) {
		fail(s, (int)n,
		     stream == 1 ? "cannot write to standard output"
				 : "cannot write to standard error");
	} else if (n > 0 && s->spec->attach == 0) {
		(void)link_consumed(s->link, s->ch, stream, (size_t)n);
	}
}

/* ---- input ---- */

static void on_input(struct loop_fd *src, uint32_t events)
{
	struct session *s = src->arg;

	s->input_ready = true;
}

static bool input_wanted(const struct session *s)
{
	return s->input_open && s->started && !s->over && link_ready(s->link) &&
	       link_credit(s->link, s->ch, 0) > 0;
}

static void input_end(struct session *s)
{
	s->input_open = false;
	(void)link_eof(s->link, s->ch, 0);
}

/*
 * Detects the two detach keys and returns how many bytes to pass on. Input after the keys is
 * dropped. A Ctrl-P without a Ctrl-Q behind it is ordinary input.
 */
static ssize_t leave(struct session *s, const char *keys, ssize_t n)
{
	for (ssize_t i = 0; i < n; i++) {
		if (s->key && keys[i] == KEY_Q) {
			decide(s, SESSION_DETACHED, 0);
			s->stop = true;
			return 0;
		}
		s->key = keys[i] == KEY_P;
	}
	return n;
}

static void read_input(struct session *s)
{
	size_t credit = link_credit(s->link, s->ch, 0);
	char chunk[CHUNK];
	ssize_t n = read(s->spec->in, chunk, MIN(credit, sizeof(chunk)));

	s->input_ready = s->input_file;
	if (n > 0 && s->spec->attach > 0 && s->spec->terminal && (n = leave(s, chunk, n)) == 0)
		return;
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0 && errno != EIO) /* EIO: the terminal has hung up */
		fail(s, -errno, "cannot read standard input");
	else if (n <= 0)
		input_end(s);
	else if (link_data(s->link, s->ch, 0, chunk, (size_t)n) != n)
		lost(s, "the connection accepts no more data"); /* cannot happen: there was credit
								   and room */
}

/* Like a sink, the input is in the loop only while it is wanted: epoll would report a hang-up again
 * and again. */
static void pump_input(struct session *s)
{
	int r;

	while (s->input_ready && input_wanted(s) && !s->stop)
		read_input(s);
	if (s->stop || !input_wanted(s)) {
		loop_del_fd(&s->input);
		return;
	}
	r = loop_add_fd(s->loop, &s->input, s->spec->in, EPOLLIN);
	if (r == -EPERM) {
		s->input_file = s->input_ready = true;
		pump_input(s);
	} else if (r < 0 && r != -EEXIST) {
		fail(s, r, "cannot wait for standard input");
	}
}

/* ---- signals and time ---- */

static void send_msg(struct session *s, enum wire_msg kind, unsigned int signo)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);
	uint16_t columns, rows;

	if (kind == WIRE_MSG_RESIZE) {
		terminal_size(s->spec->in, &columns, &rows);
		fields_put_number(&b, TAG_COLUMNS, columns);
		fields_put_number(&b, TAG_ROWS, rows);
	} else {
		fields_put_number(&b, TAG_NUMBER, signo);
	}
	(void)link_msg(s->link, s->ch, kind, &b);
}

/* A program that ignores SIGTERM is not waited for. */
static void on_last(struct loop_timer *src)
{
	struct session *s = src->arg;

	decide(s, SESSION_STOPPED, (unsigned int)s->ending);
	s->stop = true;
}

static void on_signal(struct loop_signal *src, int signo)
{
	struct session *s = src->arg;
	bool ends = signo == SIGTERM;

	if (signo == SIGWINCH) {
		send_msg(s, WIRE_MSG_RESIZE, 0);
	} else if (signo == SIGHUP || (s->spec->attach > 0 && !s->spec->terminal)) {
		decide(s, signo == SIGHUP ? SESSION_HANGUP : SESSION_STOPPED, (unsigned int)signo);
		s->stop = true;
	} else if (s->over || !s->started || (ends && s->ending > 0)) {
		decide(s, SESSION_STOPPED, (unsigned int)signo);
		s->stop = true;
	} else {
		send_msg(s, WIRE_MSG_SIGNAL, (unsigned int)signo);
		if (ends) {
			s->ending = signo;
			(void)loop_set_timer(s->loop, &s->last,
					     clock_mono() + GRACE_SEC * NSEC_PER_SEC);
		}
	}
}

static bool is_ignored(int signo)
{
	struct sigaction old;

	return sigaction(signo, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
}

/* Signals that our parent made us ignore (nohup(1)) stay ignored. */
static int watch_signals(struct session *s)
{
	size_t n = ARRAY_SIZE(forwarded) - (s->spec->terminal ? 0 : 1);
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++) {
		s->signals[i] = (struct loop_signal){ .cb = on_signal, .arg = s };
		if (!is_ignored(forwarded[i]))
			r = loop_add_signal(s->loop, &s->signals[i], forwarded[i]);
	}
	(void)signal(SIGPIPE, SIG_IGN);
	return r;
}

/* ---- start, run, end ---- */

static int send_open(struct session *s, const struct buf *hello, enum wire_op op, struct buf *b,
		     struct err *e)
{
	int r;

	if (b->err == -ENOBUFS)
		return err_set(e, -E2BIG, "the command and its environment are longer than 1 MiB");
	if (fields_check_open(op, true, b, e) < 0)
		return e->num;
	r = link_hello(s->link, hello);
	if (r == 0 && trace_on)
		r = link_open(s->link, WIRE_OP_TRACE, NULL, NULL, &s->trace_ch);
	if (r == 0)
		r = link_open(s->link, op, b, NULL, &s->ch);
	return r < 0 ? err_set(e, r, "cannot request the command: %s", strerror(-r)) : 0;
}

static void put_request(struct buf *b)
{
	if (trace_request()[0])
		fields_put_text(b, TAG_REQUEST, trace_request());
}

static int ask(struct session *s, struct err *e)
{
	_cleanup_buf_ struct buf hello = BUF_INIT(64), b = BUF_INIT(WIRE_OPEN_MAX);
	const struct session_spec *spec = s->spec;
	uint16_t columns, rows;

	fields_put_number(&hello, TAG_VERSION, WIRE_VERSION);
	if (spec->attach > 0) {
		if (spec->input)
			fields_put_flag(&b, TAG_STDIN);
		fields_put_number(&b, TAG_RECORD, spec->attach);
		put_request(&b);
		return send_open(s, &hello, WIRE_OP_ATTACH, &b, e);
	}
	for (const char *const *arg = spec->argv; *arg; arg++)
		fields_put_text(&b, TAG_ARGV, *arg);
	for (const char *const *var = spec->env; var && *var; var++)
		fields_put_text(&b, TAG_ENV, *var);
	if (spec->cwd)
		fields_put_text(&b, TAG_CWD, spec->cwd);
	if (spec->user)
		fields_put_text(&b, TAG_USER, spec->user);
	if (spec->input || spec->keep_input)
		fields_put_flag(&b, TAG_STDIN);
	if (spec->terminal) {
		terminal_size(spec->in, &columns, &rows);
		fields_put_number(&b, TAG_COLUMNS, columns);
		fields_put_number(&b, TAG_ROWS, rows);
	}
	if (spec->timeout > 0)
		fields_put_number(&b, TAG_TIMEOUT, spec->timeout);
	if (spec->name)
		fields_put_text(&b, TAG_NAME, spec->name);
	if (spec->detach)
		fields_put_flag(&b, TAG_DETACH);
	put_request(&b);
	return send_open(s, &hello, WIRE_OP_EXEC, &b, e);
}

static int start(struct session *s, int fd, struct err *e)
{
	int r = loop_new(&s->loop);

	if (r == 0)
		r = link_new(LINK_KEEPER, &ops, s, &s->link);
	if (r == 0) {
		link_with_client(s->link);
		link_set_output(s->link, send_now, s);
		r = loop_add_fd(s->loop, &s->socket, fd, EPOLLIN);
	}
	if (r == 0)
		r = watch_signals(s);
	if (r == 0)
		r = watch_record(s);
	sink_init(&s->out[0], s->loop, s->spec->out, WIRE_CREDIT_MAX);
	sink_init(&s->out[1], s->loop, s->spec->err, WIRE_CREDIT_MAX);
	return r < 0 ? err_set(e, r, "cannot start a session: %s", strerror(-r)) : ask(s, e);
}

static void settle(struct session *s)
{
	if (s->spec->attach > 0 && !s->stop && s->started && s->spec->record >= 0)
		pump_record(s);
	for (unsigned int stream = 1; stream <= ARRAY_SIZE(s->out) && !s->stop; stream++)
		flush_sink(s, stream);
	pump_input(s);
	flush_link(s);
	if (!s->over)
		return;
	loop_del_fd(&s->socket);
	if (sink_empty(&s->out[0]) && sink_empty(&s->out[1]))
		s->stop = true;
}

static int serve(struct session *s, struct err *e)
{
	int r = 0;

	for (settle(s); r == 0 && !s->stop; settle(s))
		r = loop_once(s->loop, UINT64_MAX);
	if (r < 0)
		return err_set(e, r, "cannot wait for events: %s", strerror(-r));
	return s->failed;
}

/*
 * Ends the command of a session that ends first. A broken connection alone lets the command
 * continue, which is meant for a terminal or a hutch process that has gone away.
 */
static void say_close(struct session *s)
{
	struct pollfd p = { .fd = s->socket.fd, .events = POLLOUT };
	uint64_t end = clock_mono() + LAST_MS * NSEC_PER_MSEC;

	if (!s->link || s->ch == 0 || s->over || s->result->how == SESSION_HANGUP)
		return;
	(void)link_close(s->link, s->ch, WIRE_DONE, NULL);
	while (waits(s) && clock_mono() < end)
		if (poll(&p, 1, LAST_MS) > 0 && link_flush(s->link) < 0)
			return;
}

static void session_done(struct session *s)
{
	say_close(s);
	loop_del_fd(&s->watch);
	s->watch.fd = fd_close(s->watch.fd);
	for (size_t i = 0; i < ARRAY_SIZE(s->signals); i++)
		loop_del_signal(&s->signals[i]);
	sink_done(&s->out[0]);
	sink_done(&s->out[1]);
	s->link = link_free(s->link);
	s->loop = loop_free(s->loop);
}

int session_run(int fd, const struct session_spec *spec, struct session_result *ret, struct err *e)
{
	_cleanup_(session_done) struct session s = {
		.spec = spec,
		.result = ret,
		.error = e,
		.input_open = spec->input,
		.watch = { .cb = on_written, .fd = -EBADF },
	};
	/* Restored before a pending signal can end us. */
	_cleanup_terminal_ struct terminal terminal = TERMINAL_INIT;
	int r;

	*ret = (struct session_result){ .how = SESSION_LOST };
	s.socket = (struct loop_fd){ .cb = on_socket, .arg = &s };
	s.input = (struct loop_fd){ .cb = on_input, .arg = &s };
	s.last = (struct loop_timer){ .cb = on_last, .arg = &s };
	r = start(&s, fd, e);
	if (r == 0 && spec->terminal && spec->input && terminal_raw(&terminal, spec->in) < 0)
		r = err_errno(e, "cannot set up the terminal");
	return r < 0 ? r : serve(&s, e);
}
