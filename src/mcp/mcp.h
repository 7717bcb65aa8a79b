/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Model Context Protocol, as a server of tools: JSON-RPC 2.0 without batches, one message at a
 * time. Nothing here knows how messages travel (src/cli/cmd-mcp.c: stdio; src/v1/mcp-http.c:
 * HTTP).
 *
 * A session has its own sandbox, created when a tool first needs it, and the sandboxes that the
 * client creates. Only their specs (`api`) record that, so a client can find them again by the
 * session's id. They end with the session or at their deadline, which each use extends.
 */
#pragma once

#include "job/job.h"
#include "state/spec.h"

enum {
	MCP_MESSAGE_MAX = 4 * 1024 * 1024,
	MCP_ID_MAX = 256,	  /* bytes of a request's id, if it is a string */
	MCP_TEXT_MAX = 64 * 1024, /* bytes of a file or a stream in one result */
	MCP_SESSION = 32,	  /* hex digits of a session's id */
	MCP_SANDBOXES_MAX = 8,	  /* per session, at once */
	MCP_WAITING_MAX = 16,	  /* waiting calls per session */
	MCP_COMMAND_S = 60,	  /* default time limit of a command */
	MCP_COMMAND_MAX_S = 3600,
	MCP_DEADLINE_MS = 3600 * 1000, /* default deadline of a sandbox after its last use */
};

/* ---- messages ---- */

enum mcp_kind {
	MCP_SILENT,	/* send no reply */
	MCP_REPLY,	/* send `reply` */
	MCP_INITIALIZE, /* send `reply`; the session has begun */
	MCP_CALL,	/* call `tool` with `arguments` */
	MCP_CANCEL,	/* the client has cancelled the request `id` */
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

/*
 * Reads one message. Invalid messages give an error reply; -ENOMEM is the only failure. `begun`:
 * the session has seen an initialize.
 */
int mcp_handle(const char *text, size_t n, bool begun, struct mcp_message *ret);

/*
 * Make replies to the request `id`, which the caller keeps; NULL without memory. mcp_result() takes
 * ownership of the result.
 */
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
	const char *agent;	    /* policy of the sandboxes; NULL: "default" */
	const char *level;	    /* minimum isolation level; NULL or "": the policy's */
	const char *image;	    /* default image; NULL: the agent's */
	const char *owner;	    /* name of the API key, or "" */
	struct quota quota;	    /* for all sandboxes of the owner together */
	bool all;		    /* the client may see details of this host: see job_conceal() */
	uint64_t deadline;	    /* ms; 0: MCP_DEADLINE_MS */
	struct jobs *calls;	    /* queue for tools */
	struct jobs *starts, *ends; /* queues for starting and ending sandboxes */
};

struct mcp_session;
struct mcp_call;

/*
 * Makes a session; strings are copied. `id` NULL: a new session. Otherwise it continues session
 * `id`, whose own sandbox is `sandbox` (may be NULL).
 */
int mcp_session_new(const struct mcp_config *c, const char *id, const char *sandbox,
		    struct mcp_session **ret, struct err *e);
/* Sets agent, level, quota and `all` for new sandboxes. -ENOMEM leaves the session unchanged. */
int mcp_session_grant(struct mcp_session *s, const struct mcp_config *c, struct err *e);
const char *mcp_session_id(const struct mcp_session *s);
const char *mcp_session_owner(const struct mcp_session *s);
size_t mcp_session_calls(const struct mcp_session *s); /* running and waiting */

/*
 * Queues a call of a tool; calls run in order. The loop calls done() with the complete reply (NULL:
 * out of memory), of which it may keep a reference. -EAGAIN: too many calls wait.
 */
int mcp_session_call(struct mcp_session *s, const struct mcp_message *m,
		     void (*done)(void *arg, const json_t *reply), void *arg, struct mcp_call **ret,
		     struct err *e);

/* Cancels a call: done() will not be called, and a running command is killed. */
void mcp_call_cancel(struct mcp_call *c);

/* Returns the call with this id, or NULL if there is none or it was cancelled; and its `arg`. */
struct mcp_call *mcp_session_find(const struct mcp_session *s, const json_t *id);
void *mcp_call_arg(const struct mcp_call *c);

/*
 * Ends the session and all its sandboxes. Unfinished calls get an error reply first. The loop calls
 * `ended` (may be NULL) when all is done, with e->num 0 or an error. The caller must not use the
 * session any more.
 */
void mcp_session_end(struct mcp_session *s, void (*ended)(void *arg, const struct err *e),
		     void *arg);

/* Frees the session. Its sandboxes continue to their deadline, or until the session is resumed. */
struct mcp_session *mcp_session_free(struct mcp_session *s);

/*
 * Does this metadata of a spec's `api` belong to a session's sandbox? Returns the session's id, and
 * in *ret_own whether it is the session's own sandbox.
 */
bool mcp_session_of(const json_t *metadata, char ret_id[static MCP_SESSION + 1], bool *ret_own);
