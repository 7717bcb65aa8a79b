/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch mcp: the Model Context Protocol over standard input and output, one message per line. Tools
 * run in children (mcp-session.c), so that hutch answers a ping and notices the end of the client
 * while a tool runs.
 *
 * The end of standard input ends the session: pending calls are answered first if the client still
 * reads. SIGTERM, or a client that stopped reading, ends it at once. In all cases its sandboxes end
 * before hutch does.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "cli/cli-life.h"
#include "mcp/mcp.h"

enum {
	CHUNK = 64 * 1024,
	PIECE = 4096, /* a pipe that epoll reports writable has room for this */
	OUT_MAX = 64 * 1024 * 1024,
	OUT_ENOUGH = 1024 * 1024, /* stops reading while this many bytes wait to be written */
};

struct server {
	struct loop *loop;
	struct mcp_session *session;
	struct loop_fd in, out;
	struct buf line, reply;
	bool skip;  /* skip the rest of an overlong line */
	bool begun; /* initialize was received */
	bool eof, ending, over;
	int trouble;
};

/* ---- the end ---- */

static void ended(void *arg, const struct err *e)
{
	struct server *s = arg;

	if (e->num < 0)
		log_error("cannot end the sandboxes of the session: %s", e->msg);
	s->trouble = e->num;
	s->over = true;
	loop_stop(s->loop, 0);
}

static void end(struct server *s)
{
	if (s->ending)
		return;
	s->ending = true;
	loop_del_fd(&s->in);
	mcp_session_end(s->session, ended, s);
}

/* Ends the session once input has ended and all calls are answered. */
static void end_if_done(struct server *s)
{
	if (s->eof && !s->ending && mcp_session_calls(s->session) == 0 && s->reply.len == 0)
		end(s);
}

static void on_signal(struct loop_signal *src, int signo)
{
	end(src->arg);
}

/* ---- out ---- */

/* stdout may be shared with other processes, so it must not be made non-blocking. */
static ssize_t write_some(struct server *s)
{
	ssize_t n = RETRY_EINTR(
		send(s->out.fd, s->reply.data, s->reply.len, MSG_DONTWAIT | MSG_NOSIGNAL));

	if (n < 0 && errno == ENOTSOCK)
		n = RETRY_EINTR(write(s->out.fd, s->reply.data, MIN(s->reply.len, (size_t)PIECE)));
	return n;
}

static void watch(struct server *s)
{
	(void)loop_mod_fd(&s->out, s->reply.len > 0 ? EPOLLOUT : 0);
	if (!s->eof && !s->ending)
		(void)loop_mod_fd(&s->in, s->reply.len < OUT_ENOUGH ? EPOLLIN : 0);
}

static void on_output(struct loop_fd *src, uint32_t events)
{
	struct server *s = src->arg;
	ssize_t n = 0;

	if (!(events & (EPOLLERR | EPOLLHUP)) && s->reply.len > 0) {
		n = write_some(s);
		if (n > 0)
			buf_consume(&s->reply, (size_t)n);
	}
	if ((events & (EPOLLERR | EPOLLHUP)) || (n < 0 && errno != EAGAIN)) {
		loop_del_fd(&s->out);
		buf_reset(&s->reply);
		end(s);
		return;
	}
	watch(s);
	end_if_done(s);
}

static void put(struct server *s, const json_t *reply)
{
	_cleanup_free_ char *text = reply ? json_write_line(reply) : NULL;

	if (!text || buf_puts(&s->reply, text) < 0 || buf_putc(&s->reply, '\n') < 0) {
		log_error("out of memory");
		end(s);
		return;
	}
	if (s->out.loop)
		watch(s);
	else if (fd_write_all(s->out.fd, s->reply.data, s->reply.len) < 0)
		end(s);
	else
		buf_reset(&s->reply);
}

static void answered(void *arg, const json_t *reply)
{
	struct server *s = arg;

	put(s, reply);
	end_if_done(s);
}

/* ---- in ---- */

static void call(struct server *s, const struct mcp_message *m)
{
	_cleanup_json_ json_t *reply = NULL;
	struct mcp_call *c = NULL;
	struct err e = ERR_INIT;

	if (mcp_session_call(s->session, m, answered, s, &c, &e) == 0)
		return;
	reply = mcp_error(m->id, MCP_INTERNAL, "%s", e.msg);
	put(s, reply);
}

static void take_line(struct server *s, const char *line, size_t n)
{
	_cleanup_mcp_message_ struct mcp_message m = { 0 };
	struct mcp_call *c;

	if (mcp_handle(line, n, s->begun, &m) < 0) {
		log_error("out of memory");
		end(s);
		return;
	}
	switch (m.kind) {
	case MCP_INITIALIZE:
		s->begun = true;
		put(s, m.reply);
		break;
	case MCP_REPLY:
		put(s, m.reply);
		break;
	case MCP_CALL:
		call(s, &m);
		break;
	case MCP_CANCEL:
		c = mcp_session_find(s->session, m.id);
		if (c)
			mcp_call_cancel(c);
		break;
	case MCP_SILENT:
		break;
	}
}

static void too_long(struct server *s)
{
	_cleanup_json_ json_t *reply =
		mcp_error(NULL, MCP_PARSE_ERROR, "a line has at most %d bytes", MCP_MESSAGE_MAX);

	s->skip = true;
	buf_reset(&s->line);
	put(s, reply);
}

static void take_lines(struct server *s)
{
	char *end;

	while (!s->ending && s->line.len > 0 && (end = memchr(s->line.data, '\n', s->line.len))) {
		size_t n = (size_t)(end - s->line.data);

		if (!s->skip && n > strspn(s->line.data, " \t\r\n"))
			take_line(s, s->line.data, n);
		s->skip = false;
		buf_consume(&s->line, n + 1);
	}
	if (s->skip)
		buf_reset(&s->line);
	else if (s->line.len > MCP_MESSAGE_MAX)
		too_long(s);
}

static void on_input(struct loop_fd *src, uint32_t events)
{
	struct server *s = src->arg;
	char *room = buf_reserve(&s->line, CHUNK);
	ssize_t n = room ? RETRY_EINTR(read(s->in.fd, room, CHUNK)) : 0;

	if (n > 0) {
		buf_commit(&s->line, (size_t)n);
		take_lines(s);
		return;
	}
	s->eof = true;
	loop_del_fd(&s->in);
	end_if_done(s);
}

/* ---- life ---- */

/* epoll does not support regular files, which are always ready. */
static int add_streams(struct server *s, struct err *e)
{
	int r = loop_add_fd(s->loop, &s->out, STDOUT_FILENO, 0);

	s->out.fd = STDOUT_FILENO;
	if (r < 0 && r != -EPERM)
		return err_set(e, r, "cannot wait for standard output: %s", strerror(-r));
	r = loop_add_fd(s->loop, &s->in, STDIN_FILENO, EPOLLIN);
	s->in.fd = STDIN_FILENO;
	if (r < 0 && r != -EPERM)
		return err_set(e, r, "cannot wait for standard input: %s", strerror(-r));
	while (r == -EPERM && !s->eof && !s->ending)
		on_input(&s->in, EPOLLIN);
	return 0;
}

static int serve(struct server *s, struct mcp_config *c, struct err *e)
{
	struct loop_signal stop[] = { { .cb = on_signal, .arg = s },
				      { .cb = on_signal, .arg = s },
				      { .cb = on_signal, .arg = s } };
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP };
	int r = mcp_session_new(c, NULL, NULL, &s->session, e);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(stop); i++)
		if (loop_add_signal(s->loop, &stop[i], signals[i]) < 0)
			r = err_oom(e);
	if (r == 0)
		r = add_streams(s, e);
	if (r < 0 && !s->ending)
		s->session = mcp_session_free(s->session);
	if (r == 0 && !s->over && loop_run(s->loop) < 0)
		r = err_set(e, -EIO, "the event loop failed");
	for (size_t i = 0; i < ARRAY_SIZE(stop); i++)
		loop_del_signal(&stop[i]);
	return r;
}

static int take_config(const struct invocation *inv, struct mcp_config *c)
{
	const char *text = cli_option(inv, "deadline");

	c->agent = cli_option(inv, "agent");
	c->image = cli_option(inv, "image");
	return text ? cli_take_time(inv, "--deadline", text, &c->deadline) : EXIT_OK;
}

static int run_mcp(struct invocation *inv)
{
	struct server s = { .in = { .cb = on_input, .arg = &s },
			    .out = { .cb = on_output, .arg = &s },
			    .line = BUF_INIT(MCP_MESSAGE_MAX + CHUNK),
			    .reply = BUF_INIT(OUT_MAX) };
	_cleanup_loop_ struct loop *loop = NULL;
	struct mcp_config c = { .all = true };
	struct err e = ERR_INIT;
	int code = take_config(inv, &c), r;

	if (code != EXIT_OK)
		return code;
	log_open("hutch", LOG_LEVEL_INFO);
	(void)signal(SIGPIPE, SIG_IGN);
	r = loop_new(&loop);
	if (r < 0)
		return cli_fail(inv, &(struct err){ r, "cannot make an event loop" });
	s.loop = loop;
	if (r == 0)
		r = jobs_new(loop, 1, &c.calls, &e);
	if (r == 0)
		r = jobs_new(loop, 1, &c.starts, &e);
	c.ends = c.starts;
	if (r == 0)
		r = serve(&s, &c, &e);
	c.calls = jobs_free(c.calls);
	c.starts = jobs_free(c.starts);
	buf_done(&s.line);
	buf_done(&s.reply);
	if (r < 0)
		return cli_fail(inv, &e);
	return s.trouble < 0 ? EXIT_HUTCH : EXIT_OK;
}

/* clang-format off */
const struct command cmd_mcp = {
	.name = "mcp", .args = "",
	.summary = "serve tools that run code in sandboxes to a model (MCP over stdio)",
	.help = "Started by a client of the Model Context Protocol. Its tools run commands and code, and read and write files,\n"
		"in a sandbox that the first call creates. The end of standard input or SIGTERM ends the session and all its\n"
		"sandboxes; if hutch is killed, their deadline ends them.",
	.options = OPTIONS(
		{ "agent", 'a', "AGENT", "the policy of its sandboxes" },
		{ "image", 'i', "IMAGE", "image of its sandboxes, unless the client names a template" },
		{ "deadline", 0, "TIME", "lifetime of a sandbox after its last use, default 1h" }),
	.run = run_mcp,
};
/* clang-format on */
