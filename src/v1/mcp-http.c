/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Model Context Protocol over HTTP ("streamable HTTP"): a message is a POST, and its answer is
 * JSON. The server sends nothing unasked, so there are no event streams: GET is 405.
 *
 * A session belongs to the key that started it. Its id, and which sandbox is its own, are recorded
 * in the specs of its sandboxes. So a session survives a restart of hutchd with its next message,
 * unless it had no sandbox yet; then the answer is 404, and clients start a new one.
 */
#include "v1/mcp-http.h"

#include <string.h>
#include <strings.h>

#include "api/box.h"
#include "base/clock.h"
#include "mcp/mcp.h"

enum {
	CALLS_AT_ONCE = 16, /* total of all sessions */
	SESSIONS_MAX = 256,
	SESSIONS_OF_KEY = 64,
};

static const uint64_t idle_ns = 3600 * NSEC_PER_SEC; /* after that a new session may replace it */

struct entry {
	struct mcp_session *session;
	uint64_t used; /* clock_mono() */
};

struct mcp_sessions {
	struct jobs *calls;
	struct entry list[SESSIONS_MAX];
	size_t n;
};

int mcp_sessions_new(struct loop *loop, struct mcp_sessions **ret, struct err *e)
{
	struct mcp_sessions *m = calloc(1, sizeof(*m));
	int r = m ? jobs_new(loop, CALLS_AT_ONCE, &m->calls, e) : err_oom(e);

	if (r < 0) {
		free(m);
		return r;
	}
	*ret = m;
	return 0;
}

struct mcp_sessions *mcp_sessions_free(struct mcp_sessions *m)
{
	if (!m)
		return NULL;
	for (size_t i = 0; i < m->n; i++)
		(void)mcp_session_free(m->list[i].session);
	(void)jobs_free(m->calls);
	free(m);
	return NULL;
}

/* ---- the table ---- */

static void remove_at(struct mcp_sessions *m, size_t i)
{
	m->list[i] = m->list[--m->n];
}

/* Makes room for a session of this key, by dropping the one that has been idle longest, if long
 * enough. Its sandboxes end by their deadlines. */
static bool make_room(struct mcp_sessions *m, const char *owner)
{
	const uint64_t now = clock_mono();
	size_t own = 0, oldest = m->n;

	for (size_t i = 0; i < m->n; i++) {
		const struct entry *e = &m->list[i];

		own += str_eq(mcp_session_owner(e->session), owner);
		if (mcp_session_calls(e->session) == 0 && now - e->used > idle_ns &&
		    (oldest == m->n || e->used < m->list[oldest].used))
			oldest = i;
	}
	if (own < SESSIONS_OF_KEY && m->n < SESSIONS_MAX)
		return true;
	if (oldest == m->n)
		return false;
	(void)mcp_session_free(m->list[oldest].session);
	remove_at(m, oldest);
	return m->n < SESSIONS_MAX;
}

static struct mcp_config config_of(const struct request *r)
{
	return (struct mcp_config){ .agent = request_agent(r),
				    .level = r->grant.level,
				    .owner = r->owner,
				    .quota = r->grant.quota,
				    .all = r->role == ROLE_ADMIN,
				    .calls = r->api->mcp->calls,
				    .starts = r->api->pools[POOL_START],
				    .ends = r->api->pools[POOL_END] };
}

static int add(struct request *r, const char *id, const char *sandbox, struct mcp_session **ret,
	       struct err *e)
{
	struct mcp_sessions *m = r->api->mcp;
	const struct mcp_config c = config_of(r);
	int rc;

	if (!make_room(m, r->owner))
		return err_set(e, -EAGAIN, "there are too many sessions: end one with DELETE");
	rc = mcp_session_new(&c, id, sandbox, ret, e);
	if (rc == 0)
		m->list[m->n++] = (struct entry){ *ret, clock_mono() };
	return rc;
}

struct search {
	const struct request *request;
	const char *id;
	bool found;
	char own[SPEC_ID + 1];
};

static int look(struct box *b, void *arg)
{
	struct search *s = arg;
	char id[MCP_SESSION + 1];
	bool own = false;

	if (!str_eq(b->owner, s->request->owner) || !mcp_session_of(b->metadata, id, &own) ||
	    !str_eq(id, s->id))
		return 0;
	s->found = true;
	if (own)
		(void)snprintf(s->own, sizeof(s->own), "%s", b->sandbox.id);
	return 0;
}

static struct mcp_session *find(struct request *r, const char *id)
{
	struct search s = { .request = r, .id = id };
	struct mcp_sessions *m = r->api->mcp;
	const struct mcp_config c = config_of(r);
	struct mcp_session *found = NULL;
	struct err e = ERR_INIT;

	for (size_t i = 0; i < m->n; i++) {
		struct entry *one = &m->list[i];

		if (!str_eq(mcp_session_id(one->session), id) ||
		    !str_eq(mcp_session_owner(one->session), r->owner))
			continue;
		one->used = clock_mono();
		/* The key's grant may have changed since the session started. */
		return mcp_session_grant(one->session, &c, &e) < 0 ? NULL : one->session;
	}
	(void)box_each(r->api, look, &s);
	if (s.found && add(r, id, s.own, &found, &e) < 0)
		log_warning("cannot continue an MCP session: %s", e.msg);
	return found;
}

/* ---- calls ---- */

struct pending {
	struct request *request;
	struct mcp_call *call;
};

static void drop(struct request *r)
{
	struct pending *p = r->data;

	if (p->call)
		mcp_call_cancel(p->call);
	free(p);
}

static void answered(void *arg, const json_t *reply)
{
	struct pending *p = arg;

	p->call = NULL;
	request_answer(p->request, 200, reply ? json_incref((json_t *)reply) : NULL);
}

static void call(struct request *r, struct mcp_session *s, const struct mcp_message *m)
{
	struct pending *p = calloc(1, sizeof(*p));
	struct err e = ERR_INIT;
	int rc = p ? 0 : err_oom(&e);

	if (p) {
		p->request = r;
		r->data = p;
		r->drop = drop;
		rc = mcp_session_call(s, m, answered, p, &p->call, &e);
	}
	if (rc < 0)
		request_answer(r, 200, mcp_error(m->id, MCP_INTERNAL, "%s", e.msg));
}

/* The cancelled call's HTTP request still needs an answer. */
static void cancel(const struct mcp_session *s, const json_t *id)
{
	struct mcp_call *c = mcp_session_find(s, id);
	struct pending *p = c ? mcp_call_arg(c) : NULL;

	if (p)
		request_answer(p->request, 200, mcp_error(id, MCP_INTERNAL, "cancelled"));
}

/* ---- messages ---- */

static void begin(struct request *r, const struct mcp_message *m)
{
	struct mcp_session *s = NULL;
	struct err e = ERR_INIT;

	if (add(r, NULL, NULL, &s, &e) < 0) {
		request_fail_err(r, &e);
		return;
	}
	http_add_field(r->x, "Mcp-Session-Id", mcp_session_id(s));
	request_answer(r, 200, json_incref(m->reply));
}

static void say(struct request *r, const struct mcp_message *m)
{
	const bool unread = json_is_null(json_object_get(m->reply, "id"));

	request_answer(r, unread ? 400 : 200, json_incref(m->reply));
}

static void take(struct request *r, struct mcp_session *s, const struct mcp_message *m)
{
	switch (m->kind) {
	case MCP_INITIALIZE:
		begin(r, m);
		return;
	case MCP_REPLY:
		say(r, m);
		return;
	case MCP_CALL:
		call(r, s, m);
		return;
	case MCP_CANCEL:
		cancel(s, m->id);
		break;
	case MCP_SILENT:
		break;
	}
	request_empty(r, 202);
}

static void collected(struct exchange *x, const char *data, size_t n)
{
	_cleanup_mcp_message_ struct mcp_message m = { 0 };
	const char *id = http_field(x, "mcp-session-id");
	struct request *r = x->cookie;
	struct mcp_session *s = id ? find(r, id) : NULL;

	request_enter(r);
	if (id && !s)
		request_fail(r, 404, "there is no such session: begin a new one with initialize");
	else if (mcp_handle(data, n, s != NULL, &m) < 0)
		request_fail(r, 503, "out of memory");
	else if (!s && m.kind != MCP_INITIALIZE &&
		 !(m.kind == MCP_REPLY && json_is_null(json_object_get(m.reply, "id"))))
		request_fail(r, 400, "Mcp-Session-Id is missing: begin with initialize");
	else
		take(r, s, &m);
	request_leave();
}

static void post(struct request *r)
{
	const char *type = http_field(r->x, "content-type");
	const char *version = http_field(r->x, "mcp-protocol-version");

	if (!type || strncasecmp(type, "application/json", 16) != 0)
		request_fail(r, 415, "expected Content-Type: application/json");
	else if (version && !mcp_version_known(version))
		request_fail(r, 400, "MCP-Protocol-Version: unsupported version");
	else
		http_collect(r->x, HTTP_SERVER_JSON_MAX, collected);
}

/* ---- end of a session ---- */

struct ending {
	struct request *request; /* NULL: the client is gone */
};

static void ended(void *arg, const struct err *e)
{
	struct ending *x = arg;
	struct request *r = x->request;

	if (e->num < 0)
		log_error("cannot end the sandboxes of an MCP session: %s", e->msg);
	if (r) {
		r->drop = NULL;
		if (e->num < 0)
			request_fail_err(r, e);
		else
			request_empty(r, 204);
	}
	free(x);
}

static void end_drop(struct request *r)
{
	struct ending *x = r->data;

	x->request = NULL;
}

static void end(struct request *r)
{
	const char *id = http_field(r->x, "mcp-session-id");
	struct mcp_sessions *m = r->api->mcp;
	struct mcp_session *s = id ? find(r, id) : NULL;
	struct ending *x;
	size_t i = 0;

	if (!s) {
		request_fail(r, id ? 404 : 400,
			     id ? "there is no such session" : "Mcp-Session-Id is missing");
		return;
	}
	x = calloc(1, sizeof(*x));
	if (!x) {
		request_fail(r, 503, "out of memory");
		return;
	}
	while (m->list[i].session != s)
		i++;
	remove_at(m, i);
	x->request = r;
	r->data = x;
	r->drop = end_drop;
	mcp_session_end(s, ended, x);
}

const struct route mcp_routes[] = {
	{ "POST", "/mcp", ROLE_USER | ROLE_ADMIN, post },
	{ "DELETE", "/mcp", ROLE_USER | ROLE_ADMIN, end },
	{ NULL },
};
