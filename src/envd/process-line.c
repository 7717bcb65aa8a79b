/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line is a call to the keeper for one command. The exec that started the command stays open
 * while it runs, and carries its input; so input keeps its order, and a signal costs one message.
 * If another process started the command (the command line, or an earlier hutchd), hutchd attaches
 * a line: for input it stays until the command ends, for a signal it closes at once.
 *
 * A dropped request takes its errand along; bytes already sent stay sent. A line does not need a
 * request to live.
 */
#include <string.h>

#include "api/box.h"
#include "envd/process.h"

/* ---- the list ---- */

static struct line *line_new(struct box *b)
{
	struct commands *c = commands_of(b);
	struct line *l = c ? calloc(1, sizeof(*l)) : NULL;

	if (!l)
		return NULL;
	l->of = c;
	l->next = c->lines;
	if (l->next)
		l->next->prev = l;
	c->lines = l;
	return l;
}

static void line_free(struct line *l)
{
	if (l->prev)
		l->prev->next = l->next;
	else
		l->of->lines = l->next;
	if (l->next)
		l->next->prev = l->prev;
	free(l);
}

/* Finds a line for signals or input. A pid means its newest command. */
static struct line *find(struct box *b, const struct selector *s, bool input)
{
	for (struct line *l = b->commands ? b->commands->lines : NULL; l; l = l->next)
		if (!(l->transient && input) && selector_matches(s, l->pid, l->name))
			return l;
	return NULL;
}

/* ---- errands ---- */

void errand_cancel(struct errand *e)
{
	struct errand **at = e->line ? &e->line->errands : NULL;

	while (at && *at && *at != e)
		at = &(*at)->next;
	if (at && *at)
		*at = e->next;
	e->line = NULL;
}

static void send_msg(const struct line *l, const struct errand *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(64);

	if (e->msg == WIRE_MSG_SIGNAL)
		fields_put_number(&b, TAG_NUMBER, e->number);
	if (e->msg == WIRE_MSG_RESIZE) {
		fields_put_number(&b, TAG_COLUMNS, e->cols);
		fields_put_number(&b, TAG_ROWS, e->rows);
	}
	if (!b.err)
		peer_msg(l->call, e->msg, &b);
}

/* False: not everything is sent yet. */
static bool send_input(struct line *l, struct errand *e)
{
	while (e->sent < e->n) {
		ssize_t n = peer_send(l->call, 0, e->data + e->sent, e->n - e->sent);

		if (n <= 0)
			return false; /* credit() continues, or closed() ends it */
		e->sent += (size_t)n;
	}
	if (e->eof)
		peer_eof(l->call, 0);
	l->eof |= e->eof;
	return true;
}

static const char *input_refusal(const struct line *l)
{
	if (!l->input)
		return "the process has no stdin: start it with stdin, or a terminal";
	return l->eof ? "the stdin of the process is closed" : NULL;
}

/* Runs as many errands as possible. True: the line was freed. */
static bool run(struct line *l)
{
	while (l->accepted && l->errands) {
		struct errand *e = l->errands;
		const char *refusal = e->msg == 0 ? input_refusal(l) : NULL;

		if (!refusal && e->msg == 0 && !send_input(l, e))
			return false;
		errand_cancel(e);
		if (e->msg != 0)
			send_msg(l, e);
		if (refusal)
			rpc_fail(e->r, RPC_INTERNAL, "%s", refusal);
		else
			e->done(e);
	}
	if (!l->accepted || !l->transient)
		return false;
	peer_close(l->call);
	line_free(l);
	return true;
}

static void fail_errands(struct line *l, enum wire_code code, const char *text)
{
	while (l->errands) {
		struct errand *e = l->errands;

		errand_cancel(e);
		if (code == WIRE_GONE)
			request_gone(e->r);
		else if (code == WIRE_DONE)
			rpc_fail(e->r, RPC_NOT_FOUND, "the process has ended");
		else if (code == WIRE_UNSUPPORTED)
			rpc_fail(e->r, RPC_INTERNAL, "%s", text);
		else
			rpc_fail(e->r,
				 code == WIRE_EXISTS ? RPC_FAILED_PRECONDITION : rpc_of_wire(code),
				 "%s", text[0] ? text : wire_code_name(code));
	}
}

/* ---- answers of the keeper ---- */

static void on_accepted(struct call *c, const struct fields *f, void *arg)
{
	struct line *l = arg;
	struct request *starter = l->starter;

	(void)c;
	l->accepted = true;
	l->pid = (uint32_t)fields_number(f, TAG_PID, 0);
	l->record = fields_number(f, TAG_RECORD, 0);
	l->starter = NULL;
	if (starter)
		l->start->started(starter, l);
	(void)run(l);
}

static void on_credit(struct call *c, unsigned int stream, void *arg)
{
	(void)c;
	if (stream == 0)
		(void)run(arg);
}

static void on_closed(struct call *c, enum wire_code code, const char *text, void *arg)
{
	struct line *l = arg;
	struct request *starter = l->starter;

	(void)c;
	l->starter = NULL;
	if (starter)
		l->start->refused(starter, code, text);
	fail_errands(l, code, text);
	line_free(l);
}

static const struct call_ops ops = {
	.accepted = on_accepted,
	.credit = on_credit,
	.closed = on_closed,
};

/* ---- creating a line ---- */

void process_unreachable(struct request *r, const struct err *e)
{
	if (e->num == -ESRCH || e->num == -EPIPE)
		request_gone(r);
	else if (e->num == -EINVAL)
		rpc_fail(r, RPC_INVALID_ARGUMENT, "%s", e->msg);
	else if (e->num == -EAGAIN || e->num == -ENOMEM)
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "%s", e->msg);
	else
		rpc_fail_err(r, RPC_UNAVAILABLE, e);
}

static int line_open(struct box *b, enum wire_op op, const struct buf *fields,
		     const struct line *like, struct line **ret, struct err *e)
{
	struct peer *peer;
	struct line *l;

	if (box_peer(b, &peer, e) < 0)
		return e->num;
	l = line_new(b);
	if (!l)
		return err_oom(e);
	l->record = like->record;
	l->pid = like->pid;
	memcpy(l->name, like->name, sizeof(l->name));
	l->input = like->input;
	l->terminal = like->terminal;
	l->transient = like->transient;
	if (peer_call(peer, op, fields, &ops, l, &l->call, e) < 0) {
		line_free(l);
		return e->num;
	}
	*ret = l;
	return 0;
}

int line_exec(struct request *r, const struct buf *fields, const struct line *like,
	      struct line **ret, struct err *e)
{
	if (line_open(r->box, WIRE_OP_EXEC, fields, like, ret, e) < 0)
		return e->num;
	(*ret)->starter = r;
	(*ret)->start = like->start;
	return 0;
}

static int line_attach(struct box *b, const struct record_info *info, bool input, struct line **ret,
		       struct err *e)
{
	_cleanup_buf_ struct buf fields = BUF_INIT(64);
	struct line like = { .record = info->head.number,
			     .pid = info->slot.pid,
			     .input = input,
			     .terminal = info->head.flags & RECORD_TERMINAL,
			     .transient = !input };

	memcpy(like.name, info->head.name, sizeof(like.name));
	if (input)
		fields_put_flag(&fields, TAG_STDIN);
	fields_put_number(&fields, TAG_RECORD, info->head.number);
	if (fields.err)
		return err_oom(e);
	return line_open(b, WIRE_OP_ATTACH, &fields, &like, ret, e);
}

/* ---- sending ---- */

static int get_line(struct box *b, const struct selector *s, bool input, struct line **ret,
		    struct err *e)
{
	_cleanup_found_ struct found f = FOUND_INIT;

	*ret = find(b, s, input);
	if (*ret && (input || !(*ret)->accepted))
		return 0;
	/* The record, which other clients see, shows the end before the line does. */
	if (*ret ? record_open(b, (*ret)->record, &f, e) < 0 : command_find(b, s, false, &f, e) < 0)
		return e->num;
	if (f.info.slot.state == RECORD_ENDED)
		return err_set(e, -ENOENT, "the process has ended");
	return *ret ? 0 : line_attach(b, &f.info, input, ret, e);
}

void errand_send(struct errand *e, const struct selector *s)
{
	struct err err = ERR_INIT;
	struct errand **at;
	struct line *l = NULL;

	if (get_line(e->r->box, s, e->msg == 0, &l, &err) < 0) {
		if (err.num == -ENOENT)
			rpc_fail(e->r, RPC_NOT_FOUND, "%s", err.msg);
		else
			process_unreachable(e->r, &err);
		return;
	}
	e->line = l;
	e->next = NULL;
	for (at = &l->errands; *at; at = &(*at)->next)
		;
	*at = e;
	(void)run(l);
}
