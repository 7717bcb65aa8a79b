/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Callbacks of the loop and of the link only note what has happened. After each round of the loop,
 * settle() moves what can be moved: output to its sinks (which gives credit back), input to the
 * link as far as there is credit, the link to the socket.
 *
 * A session is decided (how did it end?) before it is over: what the command wrote is written out
 * first. It need not be the command that decides: a signal to us, a reader that has gone, a
 * connection that ended.
 */
#include "session.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "link.h"
#include "loop.h"
#include "sink.h"
#include "terminal.h"

enum {
	CHUNK = 64 * 1024,
	GRACE_SEC = 5, /* from a SIGTERM that was passed on to our own end */
};

/* What is passed on to the command; the last one only with a terminal. */
static const int forwarded[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGWINCH };

struct session {
	const struct session_spec *spec;
	struct session_result *result;
	struct loop *loop;
	struct link *link;
	uint32_t ch;
	struct loop_fd socket, input;
	struct sink out[2]; /* streams 1 and 2 */
	struct loop_signal signals[ARRAY_SIZE(forwarded)];
	struct loop_timer last; /* of our patience */
	bool started;		/* the command runs */
	bool input_open;	/* there may be more of it */
	bool input_ready;	/* to be read without waiting */
	bool input_file;	/* always ready: epoll has no opinion about regular files */
	int ending;		/* the signal after which we do not wait for ever */
	bool decided;
	bool over;	   /* nothing more comes or goes but what is in the sinks */
	bool stop;	   /* not even that */
	struct err *error; /* our own trouble */
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

/* ---- what the other side says ---- */

static void on_accepted(struct link *l, uint32_t ch, const struct fields *f, void *arg)
{
	struct session *s = arg;

	s->started = true;
}

static void on_data(struct link *l, uint32_t ch, unsigned int stream, const void *data, size_t n,
		    void *arg)
{
	struct session *s = arg;

	if (stream == 0)
		(void)link_consumed(l, ch, stream, n); /* means nothing */
	else if (sink_put(&s->out[stream - 1], data, n) < 0)
		fail(s, -ENOMEM, "cannot keep output");
}

static void on_msg(struct link *l, uint32_t ch, enum wire_msg kind, const struct fields *f,
		   void *arg)
{
	struct session *s = arg;
	unsigned int sig = (unsigned int)fields_number(f, TAG_SIGNAL, 0);

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
	if (n <= 0)
		lost(s, "");
	else if (link_feed(s->link, chunk, (size_t)n, &e) < 0)
		lost(s, e.msg);
}

static void flush_link(struct session *s)
{
	const void *data;
	size_t n;

	while ((data = link_pending(s->link, &n)) && n > 0) {
		ssize_t sent = send(s->socket.fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		/* Of a connection that has ended, what came before that is still read. */
		if (sent < 0)
			break;
		link_wrote(s->link, (size_t)sent);
	}
	(void)loop_mod_fd(&s->socket, n > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

/* ---- output ---- */

static void flush_sink(struct session *s, unsigned int stream)
{
	ssize_t n = sink_flush(&s->out[stream - 1]);

	if (n == -EPIPE) {
		/* The way a local program would end: at once, with all that hangs on it. */
		s->decided = false;
		decide(s, SESSION_PIPE, SIGPIPE);
		s->stop = true;
	} else if (n < 0) {
		fail(s, (int)n,
		     stream == 1 ? "cannot write to standard output"
				 : "cannot write to standard error");
	} else if (n > 0) {
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

static void read_input(struct session *s)
{
	size_t credit = link_credit(s->link, s->ch, 0);
	char chunk[CHUNK];
	ssize_t n = read(s->spec->in, chunk, MIN(credit, sizeof(chunk)));

	s->input_ready = s->input_file;
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n < 0 && errno != EIO) /* a terminal that has gone */
		fail(s, -errno, "cannot read standard input");
	else if (n <= 0)
		input_end(s);
	else if (link_data(s->link, s->ch, 0, chunk, (size_t)n) != n)
		lost(s, "the connection takes no more"); /* credit and room were there */
}

/* Like a sink, it is in the loop only while it is wanted: an end that was hung up is reported for
 * ever. */
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

/* A program that was sent SIGTERM and goes on is not waited for. */
static void on_last(struct loop_timer *src)
{
	struct session *s = src->arg;

	decide(s, SESSION_STOPPED, (unsigned int)s->ending);
	s->stop = true;
}

static void on_signal(struct loop_signal *src, int signo)
{
	struct session *s = src->arg;
	bool ends = signo == SIGTERM || signo == SIGHUP;

	if (signo == SIGWINCH) {
		send_msg(s, WIRE_MSG_RESIZE, 0);
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

/* What whoever started us has made us ignore (nohup(1)) stays ignored. */
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

static int ask(struct session *s, struct err *e)
{
	_cleanup_buf_ struct buf hello = BUF_INIT(64), b = BUF_INIT(WIRE_OPEN_MAX);
	const struct session_spec *spec = s->spec;
	uint16_t columns, rows;
	int r;

	fields_put_number(&hello, TAG_VERSION, WIRE_VERSION);
	for (const char *const *arg = spec->argv; *arg; arg++)
		fields_put_text(&b, TAG_ARGV, *arg);
	for (const char *const *var = spec->env; var && *var; var++)
		fields_put_text(&b, TAG_ENV, *var);
	if (spec->cwd)
		fields_put_text(&b, TAG_CWD, spec->cwd);
	if (spec->user)
		fields_put_text(&b, TAG_USER, spec->user);
	if (spec->input)
		fields_put_flag(&b, TAG_STDIN);
	if (spec->terminal) {
		terminal_size(spec->in, &columns, &rows);
		fields_put_number(&b, TAG_COLUMNS, columns);
		fields_put_number(&b, TAG_ROWS, rows);
	}
	if (spec->timeout > 0)
		fields_put_number(&b, TAG_TIMEOUT, spec->timeout);
	if (b.err == -ENOBUFS)
		return err_set(e, -E2BIG, "the command and its environment are longer than 1 MiB");
	r = link_hello(s->link, &hello);
	if (r == 0)
		r = link_open(s->link, WIRE_OP_EXEC, &b, NULL, &s->ch);
	return r < 0 ? err_set(e, r, "cannot ask for the command: %s", strerror(-r)) : 0;
}

static int start(struct session *s, int fd, struct err *e)
{
	int r = loop_new(&s->loop);

	if (r == 0)
		r = link_new(LINK_KEEPER, &ops, s, &s->link);
	if (r == 0)
		r = loop_add_fd(s->loop, &s->socket, fd, EPOLLIN);
	if (r == 0)
		r = watch_signals(s);
	sink_init(&s->out[0], s->loop, s->spec->out, WIRE_CREDIT_MAX);
	sink_init(&s->out[1], s->loop, s->spec->err, WIRE_CREDIT_MAX);
	return r < 0 ? err_set(e, r, "cannot start a session: %s", strerror(-r)) : ask(s, e);
}

static void settle(struct session *s)
{
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
		return err_set(e, r, "cannot wait: %s", strerror(-r));
	return s->failed;
}

static void session_done(struct session *s)
{
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
	};
	/* Restored before a signal that still waits can end us. */
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
