/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Model Context Protocol, as a server of tools: JSON-RPC 2.0 without batches, one message at a
 * time. Nothing here knows how messages travel (src/cli/cmd-mcp.c: stdio; src/v1/mcp-http.c:
 * HTTP).
 *
 * A session has sandboxes: one that is made when a tool first needs it, and those that were asked
 * for. Which they are stands in their specs (`api`), and nowhere else: whoever has a session's id
 * finds them again. They end with the session, or else by their deadline, which each use puts off.
 */
#pragma once

#include "job.h"
#include "spec.h"

enum {
	MCP_MESSAGE_MAX = 4 * 1024 * 1024,
	MCP_ID_MAX = 256,	  /* bytes of a request's id, if that is a text */
	MCP_TEXT_MAX = 64 * 1024, /* of a file or a stream in one result */
	MCP_SESSION = 32,	  /* hex */
	MCP_SANDBOXES_MAX = 8,	  /* of a session, at once */
	MCP_WAITING_MAX = 16,	  /* calls of a session that wait for the one that runs */
	MCP_COMMAND_S = 60,	  /* time limit of a command that names none */
	MCP_COMMAND_MAX_S = 3600,
	MCP_DEADLINE_MS = 3600 * 1000, /* of a sandbox, after its last use */
};

/* ---- messages ---- */

enum mcp_kind {
	MCP_SILENT,	/* nothing is to be said */
	MCP_REPLY,	/* `reply` is to be said */
	MCP_INITIALIZE, /* the same, and the session has begun */
	MCP_CALL,	/* `tool` is to be called with `arguments` */
	MCP_CANCEL,	/* nobody waits for the request `id` any more */
};

struct mcp_tool;

struct mcp_message {
	enum mcp_kind kind;
	json_t *id;
	json_t *reply;
	const struct mcp_tool *tool;
	json_t *arguments; /* checked */
};

#define _cleanup_mcp_message_ _cleanup_(mcp_message_done)
void mcp_message_done(struct mcp_message *m);

/* Reads one message. What is wrong with it is a reply; -ENOMEM is the only failure. `begun`: there
 * has been an initialize. */
int mcp_handle(const char *text, size_t n, bool begun, struct mcp_message *ret);

/* Answers to the request `id`, which stays the caller's; NULL without memory. mcp_result() takes
 * the result. */
json_t *mcp_result(const json_t *id, json_t *result);
json_t *mcp_error(const json_t *id, int code, const char *fmt, ...) _printf_(3, 4);

enum {
	MCP_PARSE_ERROR = -32700,
	MCP_INVALID_REQUEST = -32600,
	MCP_NO_METHOD = -32601,
	MCP_INVALID_PARAMS = -32602,
	MCP_INTERNAL = -32603,
};

bool mcp_version_known(const char *version);

/* ---- sessions ---- */

struct mcp_config {
	const char *agent;  /* the policy of its sandboxes; NULL: "default" */
	const char *level;  /* the lowest isolation level; NULL or "": that of the policy */
	const char *image;  /* of those that name none; NULL: the agent's */
	const char *owner;  /* the name of a key; "" */
	struct quota quota; /* of all sandboxes of the owner together */
	bool all;	    /* the client may read what this host has to say: see job_conceal() */
	uint64_t deadline;  /* ms; 0: MCP_DEADLINE_MS */
	struct jobs *calls; /* where tools run */
	struct jobs *starts, *ends; /* where sandboxes are started, and ended */
};

struct mcp_session;
struct mcp_call;

/* Texts are copied. `id`: of a session that goes on, whose own sandbox is `sandbox` (or NULL); NULL
 * for a new one. */
int mcp_session_new(const struct mcp_config *c, const char *id, const char *sandbox,
		    struct mcp_session **ret, struct err *e);
/* What its sandboxes may be from now on: agent, level and `all` of `c`. On an error, -ENOMEM, it is
 * as it was. */
int mcp_session_grant(struct mcp_session *s, const struct mcp_config *c, struct err *e);
const char *mcp_session_id(const struct mcp_session *s);
const char *mcp_session_owner(const struct mcp_session *s);
size_t mcp_session_calls(const struct mcp_session *s); /* under way */

/*
 * Calls a tool, after those that were called before. done() is called from the loop with the whole
 * answer (NULL: out of memory), which it may keep a reference of. -EAGAIN: too many wait.
 */
int mcp_session_call(struct mcp_session *s, const struct mcp_message *m,
		     void (*done)(void *arg, const json_t *reply), void *arg, struct mcp_call **ret,
		     struct err *e);

/* Nobody waits for it: done() will not be called. A command that runs is ended. */
void mcp_call_cancel(struct mcp_call *c);

/* The call with this id that somebody waits for, or NULL; and what done() would be called with. */
struct mcp_call *mcp_session_find(const struct mcp_session *s, const json_t *id);
void *mcp_call_arg(const struct mcp_call *c);

/*
 * Ends the session and all its sandboxes. Calls that are under way are answered first, with an
 * error. `ended` (may be NULL) is called from the loop when all is done, with e->num 0 or what went
 * wrong; the session is no more from here on.
 */
void mcp_session_end(struct mcp_session *s, void (*ended)(void *arg, const struct err *e),
		     void *arg);

/* Forgets it; its sandboxes go on, until somebody makes the session anew or their deadline. */
struct mcp_session *mcp_session_free(struct mcp_session *s);

/* Is this the text of a spec's `api` of a session's sandbox, and of which? With the one that is its
 * own *ret_own is true. */
bool mcp_session_of(const json_t *metadata, char ret_id[static MCP_SESSION + 1], bool *ret_own);
