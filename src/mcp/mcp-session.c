/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a session run one after the other: the first of the list runs, the others wait. A
 * call is one job, or two if the session's own sandbox must be created first. The session always
 * waits for that job, so that it learns the id of every sandbox it creates.
 *
 *	waiting -> (starting) -> working -> answered
 *
 * A cancelled call is freed at once while it waits or works. While it starts a sandbox, or if its
 * tool is `whole`, it is freed when its job is done.
 */
#include <signal.h>
#include <string.h>

#include "base/proc.h"
#include "base/str.h"
#include "mcp/mcp-inner.h"

struct mcp_call {
	struct mcp_session *session;
	const struct mcp_tool *tool;
	json_t *id, *arguments;
	void (*done)(void *arg, const json_t *reply); /* NULL: cancelled */
	void *arg;
	struct job *job; /* running job; NULL: the call waits */
	bool starting;	 /* the job creates the session's sandbox */
	bool renewed;	 /* that sandbox replaces one that earlier calls used */
	struct mcp_call *next;
};

struct mcp_session {
	struct jobs *calls, *starts, *ends;
	char *agent, *level, *image, *owner;
	char id[MCP_SESSION + 1], own[SPEC_ID + 1];
	struct session_ref ref;
	struct mcp_call *first;
	bool had_own, ending;
	void (*ended)(void *arg, const struct err *e);
	void *ended_arg;
};

static void next(struct mcp_session *s);
static void end_now(struct mcp_session *s);

/* ---- one call ---- */

static void call_free(struct mcp_call *c)
{
	struct mcp_call **p = &c->session->first;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	json_decref(c->id);
	json_decref(c->arguments);
	free(c);
}

/* Answers the first call and starts the next one. Takes ownership of the reply. */
static void finish(struct mcp_call *c, json_t *reply)
{
	_cleanup_json_ json_t *r = reply;
	struct mcp_session *s = c->session;
	void (*done)(void *arg, const json_t *reply) = c->done;
	void *arg = c->arg;

	call_free(c);
	if (s->ending)
		end_now(s);
	else
		next(s);
	if (done)
		done(arg, r);
}

/* A tool's failure as its result. */
static json_t *failed(const struct mcp_call *c, const struct err *e)
{
	json_t *text = output_bytes(e->msg, strlen(e->msg));
	json_t *content = json_array();

	if (json_push(content, JSON_OBJECT({ "type", json_string("text") }, { "text", text })) <
	    0) {
		json_decref(content);
		return NULL;
	}
	return mcp_result(c->id, JSON_OBJECT({ "content", content }, { "isError", json_true() }));
}

static int start_work(void *arg, json_t **ret, struct err *e)
{
	_cleanup_state_root_ struct state_root root = STATE_ROOT_INIT;
	const struct mcp_call *c = arg;
	const struct session_ref *s = &c->session->ref;
	char id[SPEC_ID + 1];
	int r = state_root_open(&root, e);

	if (r < 0)
		return job_conceal(s->all, e, "cannot open the directory of sandboxes");
	r = session_start(s, &root, NULL, s->deadline, true, id, e);
	if (r < 0)
		return r;
	*ret = JSON_OBJECT({ "id", json_string(id) });
	return *ret ? 0 : err_oom(e);
}

static void start_done(void *arg, const json_t *result, const struct err *e)
{
	const char *id = json_string_value(json_object_get(result, "id"));
	struct mcp_call *c = arg;
	struct mcp_session *s = c->session;

	c->job = NULL;
	c->starting = false;
	if (!id) {
		finish(c, failed(c, e));
		return;
	}
	(void)snprintf(s->own, sizeof(s->own), "%s", id);
	c->renewed = s->had_own;
	s->had_own = true;
	if (!c->done)
		finish(c, NULL);
	else
		next(s);
}

static const struct job_ops start_ops = { .work = start_work, .done = start_done };

static int call_work(void *arg, json_t **ret, struct err *e)
{
	const struct mcp_call *c = arg;

	/* Without the server the result would be lost, so die with it. */
	if (!c->tool->whole)
		(void)proc_die_with(0, SIGTERM);
	return work_run(&c->session->ref, c->tool, c->arguments, c->session->own, ret, e);
}

/* Warns the model, which may rely on files of the former sandbox. */
static int tell_renewed(const json_t *result)
{
	json_t *content = json_object_get(result, "content");
	json_t *note = JSON_OBJECT(
		{ "type", json_string("text") },
		{ "text",
		  json_string("hutch: the session's sandbox had ended, so this call ran in a new "
			      "one: files and processes of the former sandbox are gone") });

	return note && json_array_insert_new(content, 0, note) == 0 ? 0 : -ENOMEM;
}

static void call_done(void *arg, const json_t *result, const struct err *e)
{
	struct mcp_call *c = arg;

	c->job = NULL;
	if (!result)
		finish(c, failed(c, e));
	else if (c->renewed && tell_renewed(result) < 0)
		finish(c, NULL);
	else
		finish(c, mcp_result(c->id, json_incref((json_t *)result)));
}

static const struct job_ops call_ops = { .work = call_work, .done = call_done };

/* ---- one after the other ---- */

static bool needs_own(const struct mcp_call *c)
{
	return c->tool->in_sandbox && !json_object_get(c->arguments, "sandbox");
}

static int begin(struct mcp_call *c, struct err *e)
{
	struct mcp_session *s = c->session;

	if (s->own[0] && needs_own(c) && !session_alive(s->own))
		s->own[0] = '\0';
	c->starting = needs_own(c) && !s->own[0];
	if (c->starting)
		return job_start(s->starts, s->owner, &start_ops, c, &c->job, e);
	return job_start(s->calls, s->owner, &call_ops, c, &c->job, e);
}

/* Starts the first call, unless it is already running. */
static void next(struct mcp_session *s)
{
	struct err e = ERR_INIT;

	if (s->first && !s->first->job && begin(s->first, &e) < 0)
		finish(s->first, failed(s->first, &e));
}

int mcp_session_call(struct mcp_session *s, const struct mcp_message *m,
		     void (*done)(void *arg, const json_t *reply), void *arg, struct mcp_call **ret,
		     struct err *e)
{
	struct mcp_call *c, **last = &s->first;
	size_t n = 0;

	assert(m->kind == MCP_CALL && !s->ending);
	for (; *last; last = &(*last)->next)
		n++;
	if (n > MCP_WAITING_MAX)
		return err_set(e, -EAGAIN, "%zu calls of this session wait already", n - 1);
	c = calloc(1, sizeof(*c));
	if (!c)
		return err_oom(e);
	*c = (struct mcp_call){ .session = s, .tool = m->tool, .done = done, .arg = arg };
	c->id = json_incref(m->id);
	c->arguments = json_incref(m->arguments);
	*last = c;
	if (c == s->first && begin(c, e) < 0) {
		call_free(c);
		return e->num;
	}
	*ret = c;
	return 0;
}

struct mcp_call *mcp_session_find(const struct mcp_session *s, const json_t *id)
{
	struct mcp_call *c = s->first;

	while (c && !(c->done && json_equal(c->id, id)))
		c = c->next;
	return c;
}

void *mcp_call_arg(const struct mcp_call *c)
{
	return c->arg;
}

void mcp_call_cancel(struct mcp_call *c)
{
	struct mcp_session *s = c->session;

	c->done = NULL;
	if (c->job && (c->starting || c->tool->whole))
		return;
	if (c->job)
		job_kill(c->job);
	call_free(c);
	next(s);
}

/* ---- the session ---- */

struct mcp_session *mcp_session_free(struct mcp_session *s)
{
	if (!s)
		return NULL;
	while (s->first) {
		if (s->first->job)
			job_abandon(s->first->job, NULL, NULL);
		call_free(s->first);
	}
	free(s->agent);
	free(s->level);
	free(s->image);
	free(s->owner);
	free(s);
	return NULL;
}

static int copy(char **to, const char *text)
{
	*to = text ? strdup(text) : NULL;
	return text && !*to ? -ENOMEM : 0;
}

int mcp_session_new(const struct mcp_config *c, const char *id, const char *sandbox,
		    struct mcp_session **ret, struct err *e)
{
	struct mcp_session *s = calloc(1, sizeof(*s));

	if (!s)
		return err_oom(e);
	s->calls = c->calls;
	s->starts = c->starts;
	s->ends = c->ends;
	if (copy(&s->agent, c->agent) < 0 || copy(&s->level, c->level) < 0 ||
	    copy(&s->image, c->image) < 0 || copy(&s->owner, c->owner ? c->owner : "") < 0) {
		(void)mcp_session_free(s);
		return err_oom(e);
	}
	if (id)
		(void)snprintf(s->id, sizeof(s->id), "%s", id);
	else
		session_draw_id(s->id);
	(void)snprintf(s->own, sizeof(s->own), "%s", sandbox ? sandbox : "");
	s->had_own = id != NULL;
	s->ref = (struct session_ref){ .agent = s->agent,
				       .level = s->level,
				       .image = s->image,
				       .owner = s->owner,
				       .id = s->id,
				       .quota = c->quota,
				       .all = c->all,
				       .deadline = c->deadline ? c->deadline : MCP_DEADLINE_MS };
	*ret = s;
	return 0;
}

int mcp_session_grant(struct mcp_session *s, const struct mcp_config *c, struct err *e)
{
	char *agent = NULL, *level = NULL;

	if (copy(&agent, c->agent) < 0 || copy(&level, c->level) < 0) {
		free(agent);
		return err_oom(e);
	}
	free(s->agent);
	free(s->level);
	s->ref.agent = s->agent = agent;
	s->ref.level = s->level = level;
	s->ref.quota = c->quota;
	s->ref.all = c->all;
	return 0;
}

const char *mcp_session_id(const struct mcp_session *s)
{
	return s->id;
}

const char *mcp_session_owner(const struct mcp_session *s)
{
	return s->owner;
}

size_t mcp_session_calls(const struct mcp_session *s)
{
	size_t n = 0;

	for (const struct mcp_call *c = s->first; c; c = c->next)
		n++;
	return n;
}

/* ---- end of a session ---- */

static int end_work(void *arg, json_t **ret, struct err *e)
{
	const struct mcp_session *s = arg;

	return session_end_all(&s->ref, e);
}

static void end_done(void *arg, const json_t *result, const struct err *e)
{
	struct mcp_session *s = arg;

	if (s->ended)
		s->ended(s->ended_arg, e);
	(void)mcp_session_free(s);
}

static const struct job_ops end_ops = { .work = end_work, .done = end_done };

static void end_now(struct mcp_session *s)
{
	struct err e = ERR_INIT;
	struct job *job;

	if (job_start(s->ends, s->owner, &end_ops, s, &job, &e) < 0)
		end_done(s, NULL, &e);
}

/* Sends an error reply to a client that still waits for the call. */
static void answer_ended(struct mcp_call *c)
{
	void (*done)(void *arg, const json_t *reply) = c->done;
	_cleanup_json_ json_t *reply = NULL;

	if (!done)
		return;
	c->done = NULL;
	reply = mcp_error(c->id, MCP_INTERNAL, "the session has ended");
	done(c->arg, reply);
}

void mcp_session_end(struct mcp_session *s, void (*ended)(void *arg, const struct err *e),
		     void *arg)
{
	s->ending = true;
	s->ended = ended;
	s->ended_arg = arg;
	for (struct mcp_call *c = s->first; c; c = c->next)
		answer_ended(c);
	/* Only the first call runs. If it must not be interrupted, its end calls end_now(). */
	while (s->first && s->first->next)
		call_free(s->first->next);
	if (s->first && (s->first->starting || s->first->tool->whole))
		return;
	if (s->first) {
		job_kill(s->first->job);
		call_free(s->first);
	}
	end_now(s);
}
