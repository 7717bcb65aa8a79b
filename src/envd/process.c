/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process.Process of E2B's envd: commands. Start asks the keeper for a detached command and then
 * answers from its record, as Connect does; so the command is independent of its clients and of
 * hutchd. The keeper enforces the time limit of a Start, even if no client is left.
 *
 * A tag is the name of the command: it has the grammar of names, and is unique among running
 * commands.
 *
 * Extensions of E2B's protocol, for clients that must not miss output:
 *
 * - Start and Connect accept "offsets": true. Each event with data then has an "offset" beside the
 *   bytes (a decimal string): the position of its first byte in all output of the command, stdout
 * and stderr counted together.
 * - Connect accepts an "offset" (decimal string or number), which implies "offsets": output starts
 *   there and not at the current end. It also finds commands that ended long ago, while their
 * record is kept.
 * - Output that is no longer kept ends a stream with the code aborted, and a text that says how
 * many bytes are missing and at which offset the rest begins.
 */
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "envd/process.h"

enum {
	CWD_SHOWN = 200,
};

/* ---- Start: request ---- */

struct start {
	struct line *line; /* NULL: the keeper has answered */
	bool offsets;
	char cwd[CWD_SHOWN + 1]; /* for a message */
};

static int put_argv(struct buf *b, const json_t *process, struct err *e)
{
	const json_t *args = member(process, "args");
	const char *cmd = "";

	if (member_text(process, "cmd", &cmd, e) < 0)
		return e->num;
	if (cmd[0] == '\0')
		return err_set(e, -EINVAL, "'process' has no 'cmd'");
	if (args && !json_is_array(args))
		return err_set(e, -EINVAL, "'args' is not a list");
	fields_put_text(b, TAG_ARGV, cmd);
	for (size_t i = 0; i < json_array_size(args); i++) {
		const json_t *arg = json_array_get(args, i);

		if (!json_is_string(arg))
			return err_set(e, -EINVAL, "'args' has a member that is not a string");
		fields_put_text(b, TAG_ARGV, json_string_value(arg));
	}
	return 0;
}

static int put_variable(struct buf *b, const char *name, const json_t *value, struct err *e)
{
	_cleanup_buf_ struct buf text = BUF_INIT(WIRE_OPEN_MAX);

	if (!json_is_string(value))
		return err_set(e, -EINVAL, "the variable '%.80s' is not a string", name);
	if (name[0] == '\0' || strchr(name, '='))
		return err_set(e, -EINVAL, "'%.80s' is not the name of a variable", name);
	(void)buf_puts(&text, name);
	(void)buf_putc(&text, '=');
	(void)buf_puts(&text, json_string_value(value));
	if (text.err)
		return err_set(e, text.err == -ENOBUFS ? -EINVAL : text.err,
			       "the variable '%.80s' is too long", name);
	fields_put_bytes(b, TAG_ENV, text.data, text.len);
	return 0;
}

static int put_env(struct buf *b, const json_t *process, struct err *e)
{
	const json_t *envs = NULL;
	int r = member_object(process, "envs", &envs, e);

	if (!json_object_get(envs, "E2B_SANDBOX"))
		fields_put_text(b, TAG_ENV, "E2B_SANDBOX=true");
	for (void *i = json_object_iter((json_t *)envs); i && r == 0;
	     i = json_object_iter_next((json_t *)envs, i))
		r = put_variable(b, json_object_iter_key(i), json_object_iter_value(i), e);
	return r;
}

static int put_terminal(struct buf *b, const json_t *message, struct line *like, struct err *e)
{
	unsigned int cols, rows;

	like->terminal = member(message, "pty");
	like->input = true;
	if (member_flag(message, "stdin", &like->input, e) < 0)
		return e->num;
	like->input |= like->terminal;
	if (like->input)
		fields_put_flag(b, TAG_STDIN);
	if (!like->terminal)
		return 0;
	if (size_read(message, &cols, &rows, e) < 0)
		return e->num;
	fields_put_number(b, TAG_COLUMNS, cols);
	fields_put_number(b, TAG_ROWS, rows);
	return 0;
}

static int put_name(struct buf *b, const json_t *message, struct line *like, struct err *e)
{
	const char *tag = "";

	if (member_text(message, "tag", &tag, e) < 0)
		return e->num;
	if (tag[0] == '\0')
		return 0;
	if (!record_name_valid(tag, strlen(tag)))
		return err_set(e, -EINVAL,
			       "the tag '%.80s' is not a name: small letters, digits, '.', '_' and "
			       "'-', at most 63, and not a number",
			       tag);
	fields_put_text(b, TAG_NAME, tag);
	(void)snprintf(like->name, sizeof(like->name), "%s", tag);
	return 0;
}

/* Puts the fields of an exec, in the order of their tags, and the line's settings into `like`. */
static int put_exec(struct buf *b, const struct request *r, const char *user, struct start *s,
		    struct line *like, struct err *e)
{
	const json_t *process = NULL;
	const char *cwd = "";

	if (member_object(r->body, "process", &process, e) < 0 || put_argv(b, process, e) < 0 ||
	    put_env(b, process, e) < 0 || member_text(process, "cwd", &cwd, e) < 0 ||
	    member_flag(r->body, "offsets", &s->offsets, e) < 0)
		return e->num;
	(void)snprintf(s->cwd, sizeof(s->cwd), "%s", cwd);
	if (cwd[0])
		fields_put_text(b, TAG_CWD, cwd);
	if (user[0])
		fields_put_text(b, TAG_USER, user);
	if (put_terminal(b, r->body, like, e) < 0)
		return e->num;
	if (rpc_timeout(r) > 0)
		fields_put_number(b, TAG_TIMEOUT, rpc_timeout(r));
	if (put_name(b, r->body, like, e) < 0)
		return e->num;
	fields_put_flag(b, TAG_DETACH);
	if (b->err == -ENOBUFS)
		return err_set(e, -EINVAL, "arguments and environment are too long together");
	return b->err ? err_oom(e) : 0;
}

/* ---- Start: result ---- */

/* The client is gone before the keeper answered: the command still runs. */
static void drop_start(struct request *r)
{
	struct start *s = r->data;

	if (s->line)
		s->line->starter = NULL;
	free(s);
}

static void started(struct request *r, const struct line *l)
{
	_cleanup_found_ struct found f = FOUND_INIT;
	struct start *s = r->data;
	struct err e = ERR_INIT;
	bool offsets = s->offsets;

	s->line = NULL;
	if (record_open(r->box, l->record, &f, &e) < 0) {
		rpc_fail_err(r, RPC_INTERNAL, &e);
		return;
	}
	r->data = NULL;
	r->drop = NULL;
	free(s);
	output_begin(r, &f, l->pid, 0, offsets);
}

static void refused(struct request *r, enum wire_code code, const char *text)
{
	struct start *s = r->data;

	s->line = NULL;
	if (code == WIRE_GONE)
		request_gone(r);
	else if (code == WIRE_NO_USER)
		rpc_fail_status(r, RPC_UNAUTHENTICATED, "%s", text);
	else if (code == WIRE_NOT_DIRECTORY && s->cwd[0])
		rpc_fail(r, RPC_INVALID_ARGUMENT, "cwd '%s' does not exist: %s", s->cwd, text);
	else
		rpc_fail(r, rpc_of_wire(code), "%s", text[0] ? text : wire_code_name(code));
}

static void have_start(struct request *r)
{
	static const struct start_ops ops = { .started = started, .refused = refused };
	_cleanup_buf_ struct buf fields = BUF_INIT(WIRE_OPEN_MAX);
	struct start *s = calloc(1, sizeof(*s));
	char user[RPC_USER_MAX + 1];
	struct line like = { .start = &ops };
	struct err e = ERR_INIT;

	if (!s) {
		rpc_fail(r, RPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	r->data = s;
	r->drop = drop_start;
	if (rpc_user(r, user) < 0)
		rpc_fail_status(r, RPC_UNAUTHENTICATED,
				"the field Authorization does not name a user: expected Basic");
	else if (put_exec(&fields, r, user, s, &like, &e) < 0 ||
		 line_exec(r, &fields, &like, &s->line, &e) < 0)
		process_unreachable(r, &e);
}

static void start(struct request *r)
{
	rpc_read_stream(r, have_start);
}

/* ---- Connect, List ---- */

static int read_connect(const json_t *message, struct selector *ret, uint64_t *ret_offset,
			bool *ret_offsets, struct err *e)
{
	if (selector_read(message, ret, e) < 0 ||
	    member_flag(message, "offsets", ret_offsets, e) < 0 ||
	    member_number(message, "offset", INT64_MAX, ret_offset, e) < 0)
		return e->num;
	return 0;
}

static void have_connect(struct request *r)
{
	_cleanup_found_ struct found f = FOUND_INIT;
	struct selector s;
	struct err e = ERR_INIT;
	uint64_t offset = UINT64_MAX;
	bool offsets = false;

	if (read_connect(r->body, &s, &offset, &offsets, &e) < 0) {
		rpc_fail(r, RPC_INVALID_ARGUMENT, "%s", e.msg);
		return;
	}
	if (command_find(r->box, &s, offset < UINT64_MAX, &f, &e) < 0) {
		rpc_fail_err(r, e.num == -ENOENT ? RPC_NOT_FOUND : RPC_INTERNAL, &e);
		return;
	}
	offsets |= offset < UINT64_MAX;
	output_begin(r, &f, f.info.slot.pid, offset < UINT64_MAX ? offset : record_bytes(&f.info),
		     offsets);
}

static void connect_to(struct request *r)
{
	rpc_read_stream(r, have_connect);
}

static void have_list(struct request *r)
{
	struct err e = ERR_INIT;
	json_t *list = command_list(r->box, &e);

	if (list)
		rpc_answer(r, JSON_OBJECT({ "processes", list }));
	else
		rpc_fail_err(r, RPC_INTERNAL, &e);
}

static void list(struct request *r)
{
	rpc_read(r, have_list);
}

#define METHOD(name, fn)                                           \
	{                                                          \
		"POST", "/process.Process/" name, ROLE_TOKEN, (fn) \
	}

const struct route envd_process_routes[] = {
	METHOD("Start", start),
	METHOD("Connect", connect_to),
	METHOD("List", list),
	METHOD("SendInput", process_send_input),
	METHOD("StreamInput", process_stream_input),
	METHOD("CloseStdin", process_close_stdin),
	METHOD("SendSignal", process_send_signal),
	METHOD("Update", process_update),
	{ 0 },
};
