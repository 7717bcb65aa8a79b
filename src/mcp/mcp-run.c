/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a tool in a child process, from its arguments to its result; and the tools that run commands
 * or manage sandboxes. */
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"
#include "mcp/mcp-inner.h"

enum {
	TOOL_S = 120,		  /* tools other than commands: a guest may never answer */
	BUSY_MORE_MS = 10 * 1000, /* to start a command, and to report its end */
	AMOUNT_MAX = 80,
};

/* ---- commands ---- */

struct running {
	struct output streams[2];
};

static void on_data(void *arg, unsigned int stream, const char *data, size_t n)
{
	struct running *r = arg;

	output_put(&r->streams[stream - 1], data, n);
}

static int add_stream(struct tool_work *w, const struct output *o, const char *name, struct err *e)
{
	_cleanup_json_ json_t *text = output_text(o);
	char key[32];

	(void)snprintf(key, sizeof(key), "%sCut", name);
	if (!text || json_put(w->structured, name, json_incref(text)) < 0 ||
	    json_put(w->structured, key, json_number(output_cut(o))) < 0)
		return err_oom(e);
	return o->total == 0 ? 0 : work_add(w, TAKE_PTR(text), e);
}

/* Writes "12 bytes", and how many of them were left out. */
static const char *amount(const struct output *o, char out[static AMOUNT_MAX])
{
	int n = snprintf(out, AMOUNT_MAX, "%llu bytes", (unsigned long long)o->total);

	if (output_cut(o) > 0)
		(void)snprintf(out + n, (size_t)(AMOUNT_MAX - n), ", %llu of them left out",
			       (unsigned long long)output_cut(o));
	return out;
}

static int say_end(struct tool_work *w, const struct running *r, int status, const char *why,
		   struct err *e)
{
	char how[ERR_MSG_MAX + 64], out[AMOUNT_MAX], err[AMOUNT_MAX];

	if (why)
		(void)snprintf(how, sizeof(how), "no exit status: %s", why);
	else
		(void)snprintf(how, sizeof(how), "exit status %d", status);
	return work_say(w, e, "%s; standard output: %s; standard error: %s", how,
			amount(&r->streams[0], out), amount(&r->streams[1], err));
}

/* Hutch's text and the command's output are separate items: output cannot pose as Hutch's. */
static int command_result(struct tool_work *w, const struct running *r, int status, const char *why,
			  struct err *e)
{
	int rc = work_struct(
		w, JSON_OBJECT({ "exitStatus", why ? json_null() : json_integer(status) }), e);

	w->failed = why || status != 0;
	if (rc == 0)
		rc = say_end(w, r, status, why, e);
	if (rc == 0)
		rc = add_stream(w, &r->streams[0], "stdout", e);
	return rc < 0 ? rc : add_stream(w, &r->streams[1], "stderr", e);
}

static int run(struct tool_work *w, const struct runner_command *with, struct err *e)
{
	uint64_t ms = work_number(w, "timeout_s", MCP_COMMAND_S) * 1000;
	struct running *r = calloc(1, sizeof(*r));
	struct runner_command c = *with;
	struct err own = ERR_INIT;
	int status = -1, rc;

	if (!r)
		return err_oom(e);
	c.timeout = w->spec.limits.timeout > 0 ? MIN(ms, w->spec.limits.timeout) : ms;
	(void)alarm((unsigned int)(c.timeout / 1000) + TOOL_S); /* the keeper's limit is shorter */
	c.stop = SIGTERM;					/* sent by mcp_call_cancel() */
	c.data = on_data;
	c.arg = r;
	session_use(&w->box, &w->spec, c.timeout + BUSY_MORE_MS);
	rc = runner_exec(w->runner, &c, &status, &own);
	if (c.timeout + BUSY_MORE_MS > w->spec.deadline)
		session_rest(&w->box, &w->spec);
	rc = command_result(w, r, status,
			    rc < 0	 ? own.msg
			    : status < 0 ? "it is unknown"
					 : NULL,
			    e);
	free(r);
	return rc;
}

int tool_run_command(struct tool_work *w, struct err *e)
{
	const struct runner_command c = { .script = work_text(w, "command"),
					  .cwd = work_text(w, "cwd"),
					  .user = work_text(w, "user") };

	return run(w, &c, e);
}

/* ---- code ---- */

static const struct {
	const char *language, *program, *suffix;
} interpreters[] = {
	{ "python", "python3", "py" },
	{ "javascript", "node", "js" },
	{ "bash", "bash", "sh" },
};

static const char code_script[] = "\"$1\" \"$2\"; status=$?; rm -f -- \"$2\"; exit $status";

int tool_run_code(struct tool_work *w, struct err *e)
{
	char name[MCP_SESSION + 1], path[128];
	const char *argv[] = { "/bin/sh", "-c", code_script, "run_code", NULL, NULL, NULL };
	const char *language = work_text(w, "language");
	size_t i = 0;
	int r;

	while (!str_eq(interpreters[i].language, language))
		i++;
	session_draw_id(name);
	(void)snprintf(path, sizeof(path), "/tmp/code-%.8s.%s", name, interpreters[i].suffix);
	r = work_write(w, path, json_object_get(w->arguments, "code"), e);
	if (r < 0)
		return r;
	argv[4] = interpreters[i].program;
	argv[5] = path;
	return run(w, &(struct runner_command){ .argv = argv }, e);
}

/* ---- sandboxes ---- */

static int count_one(void *arg, const struct sandbox *b, const struct spec *spec, struct err *e)
{
	(*(size_t *)arg)++;
	return 0;
}

int tool_create_sandbox(struct tool_work *w, struct err *e)
{
	const uint64_t deadline = work_number(w, "timeout_s", w->session->deadline / 1000) * 1000;
	char id[SPEC_ID + 1];
	size_t n = 0;
	int r = session_each(w->session, &w->root, count_one, &n, e);

	if (r == 0 && n >= MCP_SANDBOXES_MAX)
		r = err_set(e, -EAGAIN,
			    "this session has %zu sandboxes; the limit is %d: end one with "
			    "kill_sandbox",
			    n, MCP_SANDBOXES_MAX);
	if (r == 0)
		r = session_start(w->session, &w->root, work_text(w, "template"), deadline, false,
				  id, e);
	if (r == 0)
		r = work_struct(w, JSON_OBJECT({ "sandbox", json_string(id) }), e);
	return r < 0 ? r : work_say(w, e, "sandbox %s is ready", id);
}

static json_t *time_json(uint64_t ns)
{
	char text[CLOCK_RFC3339_MAX];

	return json_string(clock_format(ns, text));
}

static int list_one(void *arg, const struct sandbox *b, const struct spec *spec, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	char id[MCP_SESSION + 1];
	json_t *list = arg;
	bool own = false;

	if (json_read(spec->api, strlen(spec->api), &j, e) < 0)
		return e->num;
	(void)mcp_session_of(json_object_get(j, "metadata"), id, &own);
	if (json_push(list, JSON_OBJECT({ "sandbox", json_string(b->id) },
					{ "image", json_string(spec->image) },
					{ "created", time_json(spec->created) },
					{ "own", json_boolean(own) })) < 0)
		return err_oom(e);
	return 0;
}

int tool_list_sandboxes(struct tool_work *w, struct err *e)
{
	json_t *list = json_array(), *one;
	size_t i;
	int r = work_struct(w, JSON_OBJECT({ "sandboxes", list }), e);

	if (r == 0)
		r = session_each(w->session, &w->root, list_one, list, e);
	if (r == 0 && json_array_size(list) == 0)
		r = work_say(w, e, "there are none yet: one is created when a tool needs it");
	json_array_foreach(list, i, one)
	{
		if (r == 0)
			r = work_say(w, e, "%s  image %s, created %s%s",
				     json_string_value(json_object_get(one, "sandbox")),
				     json_string_value(json_object_get(one, "image")),
				     json_string_value(json_object_get(one, "created")),
				     json_is_true(json_object_get(one, "own"))
					     ? ", the session's own"
					     : "");
	}
	return r;
}

int tool_kill_sandbox(struct tool_work *w, struct err *e)
{
	_cleanup_sandbox_ struct sandbox b = SANDBOX_INIT;
	_cleanup_spec_ struct spec spec = { 0 };
	const char *id = work_text(w, "sandbox");
	char by[END_BY_MAX + 1];
	struct err owed = ERR_INIT;
	int r = session_open(w->session, &w->root, id, &b, &spec, e);

	if (r == 0)
		r = sandbox_kill(&w->root, &b, session_killer(w->session, by), &owed, e);
	if (r == 0)
		r = work_struct(w, JSON_OBJECT({ "sandbox", json_string(id) }), e);
	return r < 0 ? r : work_say(w, e, "sandbox %s has ended", id);
}

/* ---- from a call to its result ---- */

static int enter(struct tool_work *w, const char *own, struct err *e)
{
	const char *id = work_text(w, "sandbox");
	int fd = -EBADF, r;

	r = session_open(w->session, &w->root, id ? id : own, &w->box, &w->spec, e);
	if (r == 0)
		r = sandbox_connect(&w->box, &fd, e);
	if (r == 0)
		r = runner_new(fd, &w->runner, e);
	if (r == 0)
		session_use(&w->box, &w->spec, 0);
	return r;
}

static void leave(struct tool_work *w)
{
	(void)runner_free(w->runner);
	spec_done(&w->spec);
	sandbox_close(&w->box);
	state_root_close(&w->root);
	json_decref(w->content);
	json_decref(w->structured);
}

static int result_of(const struct tool_work *w, json_t **ret, struct err *e)
{
	_cleanup_json_ json_t *j = JSON_OBJECT({ "content", json_incref(w->content) },
					       { "isError", json_boolean(w->failed) });

	if (!j ||
	    (w->structured && json_put(j, "structuredContent", json_incref(w->structured)) < 0))
		return err_oom(e);
	*ret = TAKE_PTR(j);
	return 0;
}

int work_run(const struct session_ref *s, const struct mcp_tool *tool, const json_t *arguments,
	     const char *own, json_t **ret, struct err *e)
{
	struct tool_work w = { .session = s,
			       .arguments = arguments,
			       .root = STATE_ROOT_INIT,
			       .box = SANDBOX_INIT,
			       .content = json_array() };
	struct err why = ERR_INIT;
	int r = w.content ? state_root_open(&w.root, &why) : err_oom(&why);

	if (r < 0 && r != -ENOMEM)
		(void)job_conceal(s->all, &why, "cannot open the directory of sandboxes");
	(void)alarm(TOOL_S);
	if (r == 0 && tool->in_sandbox)
		r = enter(&w, own, &why);
	if (r == 0)
		r = tool->run(&w, &why);
	/* A tool's failure is a result for the model, not a protocol error. */
	if (r < 0 && r != -ENOMEM) {
		w.failed = true;
		json_decref(w.structured);
		w.structured = NULL;
		(void)json_array_clear(w.content);
		r = work_say(&w, &why, "%s", why.msg);
	}
	r = r < 0 ? err_oom(e) : result_of(&w, ret, e);
	leave(&w);
	return r;
}
