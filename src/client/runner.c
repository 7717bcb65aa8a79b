/* SPDX-License-Identifier: Apache-2.0 */
#include "client/runner.h"

#include <string.h>

#include "base/clock.h"

enum {
	LINE_MAX_BYTES = 4096,
	CHUNK = 64 * 1024,
	PATH_FIELDS_MAX = 16 * 1024,
};

struct runner {
	struct loop *loop;
	struct peer *peer;
	struct call *call; /* the running call */
	const struct runner_command *command;
	struct buf lines[2];
	bool accepted, ended;
	enum wire_code code;
	char text[WIRE_TEXT_MAX + 1];
	int status; /* -1: unknown */
	/* contents to send */
	runner_read_fn *read;
	void *arg;
	struct buf out;
	bool eof_sent;
	/* contents to read */
	struct buf *in;
	runner_entry_fn *entry;
	struct err trouble;
};

/* ---- commands ---- */

static void put_line(struct runner *r, unsigned int stream)
{
	struct buf *b = &r->lines[stream - 1];

	if (r->command && r->command->line)
		r->command->line(r->command->arg, stream, buf_text(b));
	buf_reset(b);
}

static void on_accepted(struct call *c, const struct fields *f, void *arg)
{
	struct runner *r = arg;

	r->accepted = true;
	if (r->command && r->command->detach) {
		r->ended = true;
		loop_stop(r->loop, 0);
	}
}

static void on_data(struct call *c, unsigned int stream, const char *data, size_t n, void *arg)
{
	struct runner *r = arg;
	const bool lines = !r->command->data;

	if (!lines && stream > 0)
		r->command->data(r->command->arg, stream, data, n);
	for (size_t i = 0; i < n && stream > 0 && lines; i++) {
		struct buf *b = &r->lines[stream - 1];

		if (data[i] == '\n' || b->len == LINE_MAX_BYTES)
			put_line(r, stream);
		if (data[i] != '\n' && data[i] != '\0')
			(void)buf_putc(b, data[i]);
	}
	peer_consumed(c, stream, n);
}

static void on_msg(struct call *c, enum wire_msg kind, const struct fields *f, void *arg)
{
	uint64_t sig = fields_number(f, TAG_SIGNAL, 0);
	struct runner *r = arg;

	if (kind == WIRE_MSG_EXIT)
		r->status = sig > 0 ? 128 + (int)sig : (int)fields_number(f, TAG_CODE, 0);
}

static void on_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct runner *r = arg;

	r->call = NULL;
	r->ended = true;
	r->code = code;
	(void)snprintf(r->text, sizeof(r->text), "%s", text);
	for (unsigned int i = 1; i <= 2; i++)
		if (r->lines[i - 1].len > 0)
			put_line(r, i);
	loop_stop(r->loop, 0);
}

static void push(struct runner *r);

static void on_credit(struct call *c, unsigned int stream, void *arg)
{
	struct runner *r = arg;

	if (r->read)
		push(r);
}

static void on_send_accepted(struct call *c, const struct fields *f, void *arg)
{
	on_accepted(c, f, arg);
	push(arg);
}

static const struct call_ops exec_ops = {
	.accepted = on_accepted, .data = on_data, .msg = on_msg, .closed = on_closed
};

static void end_call(struct runner *r)
{
	peer_close(r->call);
	r->call = NULL;
	r->ended = true;
	r->code = WIRE_DONE;
	loop_stop(r->loop, 0);
}

static void on_contents(struct call *c, unsigned int stream, const char *data, size_t n, void *arg)
{
	struct runner *r = arg;

	if (stream == 0 && r->in && buf_put(r->in, data, n) < 0) {
		(void)err_set(&r->trouble, r->in->err == -ENOMEM ? -ENOMEM : -EFBIG,
			      "the contents are larger than %zu bytes", r->in->max);
		end_call(r);
		return;
	}
	peer_consumed(c, stream, n);
}

static void on_entry(struct call *c, enum wire_msg kind, const struct fields *f, void *arg)
{
	struct runner *r = arg;

	if (kind == WIRE_MSG_ENTRY && r->entry)
		r->entry(r->arg, f);
}

static void on_described(struct call *c, const struct fields *f, void *arg)
{
	struct runner *r = arg;

	on_accepted(c, f, arg);
	r->entry(r->arg, f);
}

static const struct call_ops send_ops = { .accepted = on_send_accepted,
					  .credit = on_credit,
					  .closed = on_closed };
static const struct call_ops read_ops = { .accepted = on_accepted,
					  .data = on_contents,
					  .closed = on_closed };
static const struct call_ops list_ops = { .accepted = on_accepted,
					  .msg = on_entry,
					  .closed = on_closed };

static const struct call_ops stat_ops = { .accepted = on_described, .closed = on_closed };

static int run(struct runner *r, enum wire_op op, const struct buf *fields,
	       const struct call_ops *ops, struct err *e)
{
	int rc;

	r->accepted = r->ended = false;
	r->status = -1;
	r->trouble = (struct err)ERR_INIT;
	rc = peer_call(r->peer, op, fields, ops, r, &r->call, e);
	while (rc == 0 && !r->ended)
		rc = loop_run(r->loop);
	if (rc < 0)
		return e->num < 0 ? e->num : err_set(e, rc, "%s", strerror(-rc));
	if (r->call) { /* detached */
		peer_close(r->call);
		r->call = NULL;
		return 0;
	}
	if (r->trouble.num < 0)
		return (*e = r->trouble).num;
	if (r->code == WIRE_DONE)
		return 0;
	return err_set(e, r->code == WIRE_TIMEOUT ? -ETIME : -EIO, "%s",
		       r->text[0] ? r->text : wire_code_name(r->code));
}

int runner_put_command(struct buf *b, const struct runner_command *c, struct err *e)
{
	static const char *const shell[] = { "/bin/bash", "-l", "-c" };

	for (size_t i = 0; !c->argv && i < ARRAY_SIZE(shell); i++)
		fields_put_text(b, TAG_ARGV, shell[i]);
	if (!c->argv)
		fields_put_bytes(b, TAG_ARGV, c->script, strlen(c->script));
	for (size_t i = 0; c->argv && c->argv[i]; i++)
		fields_put_bytes(b, TAG_ARGV, c->argv[i], strlen(c->argv[i]));
	for (size_t i = 0; c->env && c->env[i]; i++)
		fields_put_bytes(b, TAG_ENV, c->env[i], strlen(c->env[i]));
	if (c->cwd)
		fields_put_bytes(b, TAG_CWD, c->cwd, strlen(c->cwd));
	if (c->user)
		fields_put_text(b, TAG_USER, c->user);
	if (c->timeout > 0)
		fields_put_number(b, TAG_TIMEOUT, c->timeout);
	if (c->detach)
		fields_put_flag(b, TAG_DETACH);
	return b->err < 0 ? err_set(e, -E2BIG, "the command is longer than 1 MiB") : 0;
}

/* Closing the connection would not end the command; closing its channel does. */
static void on_stop(struct loop_signal *src, int signo)
{
	struct runner *r = src->arg;

	if (!r->call)
		return;
	(void)err_set(&r->trouble, -ECANCELED, "cancelled");
	end_call(r);
}

int runner_exec(struct runner *r, const struct runner_command *c, int *ret_status, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(RUNNER_OPEN_MAX);
	struct loop_signal stop = { .cb = on_stop, .arg = r };
	int rc = runner_put_command(&b, c, e);

	if (rc < 0)
		return rc;
	if (c->stop && loop_add_signal(r->loop, &stop, c->stop) < 0)
		return err_oom(e);
	r->command = c;
	rc = run(r, WIRE_OP_EXEC, &b, &exec_ops, e);
	r->command = NULL;
	loop_del_signal(&stop);
	if (rc < 0)
		return rc;
	*ret_status = r->status;
	return 0;
}

static void on_pause(struct loop_timer *t)
{
	loop_stop(t->arg, 0);
}

static int sleep_ms(struct runner *r, uint64_t ms)
{
	struct loop_timer t = { .cb = on_pause, .arg = r->loop };
	int rc = loop_set_timer(r->loop, &t, clock_mono() + ms * NSEC_PER_MSEC);

	if (rc == 0)
		rc = loop_run(r->loop);
	loop_del_timer(&t);
	return rc;
}

int runner_wait(struct runner *r, const char *ready, uint64_t limit_ms, struct err *e)
{
	uint64_t end = clock_mono() + limit_ms * NSEC_PER_MSEC, now;
	struct runner_command c = { .script = ready };
	int status = -1, rc;

	for (;;) {
		now = clock_mono();
		/* A hanging ready command shares the time of failing ones. */
		c.timeout = now < end ? (end - now) / NSEC_PER_MSEC + 1 : 1;
		rc = runner_exec(r, &c, &status, e);
		if ((rc < 0 && rc != -ETIME) || (rc == 0 && status == 0))
			return rc;
		if (rc == -ETIME || clock_mono() > end)
			return err_set(e, -ETIME, "the ready command did not succeed within %llu s",
				       (unsigned long long)(limit_ms / 1000));
		rc = sleep_ms(r, RUNNER_PAUSE_MS);
		if (rc < 0)
			return err_set(e, rc, "%s", strerror(-rc));
	}
}

/* ---- contents ---- */

static void push(struct runner *r)
{
	while (!r->eof_sent) {
		ssize_t n = r->out.len > 0 ? peer_send(r->call, 0, r->out.data, r->out.len) : 0;
		char *room;

		if (n > 0)
			buf_consume(&r->out, (size_t)n);
		if (n < 0 || r->out.len > 0)
			return;
		room = buf_reserve(&r->out, CHUNK);
		n = room ? r->read(r->arg, room, CHUNK, &r->trouble) : err_oom(&r->trouble);
		if (n < 0) {
			end_call(r);
			return;
		}
		buf_commit(&r->out, (size_t)n);
		if (n == 0) {
			r->eof_sent = true;
			peer_eof(r->call, 0);
		}
	}
}

static int send_contents(struct runner *r, enum wire_op op, const struct buf *fields,
			 runner_read_fn *read, void *arg, struct err *e)
{
	int rc;

	r->out = (struct buf)BUF_INIT(CHUNK);
	r->read = read;
	r->arg = arg;
	r->eof_sent = false;
	rc = run(r, op, fields, &send_ops, e);
	r->read = NULL;
	buf_done(&r->out);
	return rc;
}

static void put_path(struct buf *b, const char *path, const char *user)
{
	fields_put_bytes(b, TAG_PATH, path, strlen(path));
	if (user)
		fields_put_text(b, TAG_USER, user);
}

int runner_unpack(struct runner *r, const char *dir, const char *user, runner_read_fn *read,
		  void *arg, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PATH_FIELDS_MAX);

	put_path(&b, dir, user);
	return send_contents(r, WIRE_OP_UNPACK, &b, read, arg, e);
}

int runner_write(struct runner *r, const char *path, const char *user, runner_read_fn *read,
		 void *arg, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PATH_FIELDS_MAX);

	put_path(&b, path, user);
	fields_put_flag(&b, TAG_PARENTS);
	return send_contents(r, WIRE_OP_WRITE, &b, read, arg, e);
}

int runner_read(struct runner *r, const char *path, const char *user, uint64_t offset,
		uint64_t length, struct buf *out, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PATH_FIELDS_MAX);
	int rc;

	put_path(&b, path, user);
	fields_put_number(&b, TAG_OFFSET, offset);
	fields_put_number(&b, TAG_LENGTH, length);
	r->in = out;
	rc = run(r, WIRE_OP_READ, &b, &read_ops, e);
	r->in = NULL;
	return rc;
}

int runner_stat(struct runner *r, const char *path, const char *user, runner_entry_fn *entry,
		void *arg, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PATH_FIELDS_MAX);
	int rc;

	put_path(&b, path, user);
	fields_put_flag(&b, TAG_FOLLOW);
	r->entry = entry;
	r->arg = arg;
	rc = run(r, WIRE_OP_STAT, &b, &stat_ops, e);
	r->entry = NULL;
	return rc;
}

int runner_list(struct runner *r, const char *path, const char *user, uint64_t depth,
		runner_entry_fn *entry, void *arg, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(PATH_FIELDS_MAX);
	int rc;

	put_path(&b, path, user);
	fields_put_number(&b, TAG_DEPTH, depth);
	r->entry = entry;
	r->arg = arg;
	rc = run(r, WIRE_OP_LIST, &b, &list_ops, e);
	r->entry = NULL;
	return rc;
}

/* ---- life ---- */

int runner_new(int fd, struct runner **ret, struct err *e)
{
	struct runner *r = calloc(1, sizeof(*r));
	int rc;

	if (!r) {
		(void)fd_close(fd);
		return err_oom(e);
	}
	r->lines[0] = r->lines[1] = (struct buf)BUF_INIT(LINE_MAX_BYTES);
	rc = loop_new(&r->loop);
	if (rc < 0) {
		(void)fd_close(fd);
		rc = err_set(e, rc, "cannot create an event loop: %s", strerror(-rc));
	} else {
		rc = peer_new(r->loop, fd, NULL, NULL, &r->peer, e);
	}
	if (rc < 0) {
		(void)runner_free(r);
		return rc;
	}
	*ret = r;
	return 0;
}

struct runner *runner_free(struct runner *r)
{
	if (!r)
		return NULL;
	(void)peer_free(r->peer);
	(void)loop_free(r->loop);
	buf_done(&r->lines[0]);
	buf_done(&r->lines[1]);
	free(r);
	return NULL;
}
