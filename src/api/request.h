/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request, as a handler sees it. It ends by one of the functions below that say so, or because
 * the client or the sandbox is gone. In each case drop() is called, once and last, and the request
 * is freed. So drop() is the destructor of `data`, however the request ended.
 */
#pragma once

#include "api/api-inner.h"
#include "base/json-util.h"
#include "http/http-server.h"
#include "keys/keys.h"

/* The client's role; bits, because a route lists the allowed ones. */
enum role {
	ROLE_NOBODY = 1,  /* no credential at all */
	ROLE_METRICS = 2, /* a key for /metrics only */
	ROLE_USER = 4,	  /* a key */
	ROLE_ADMIN = 8,	  /* a key, or the Unix socket without one */
	ROLE_TOKEN = 16,  /* the sandbox's own token: data plane */
	ROLE_SIGNED = 32, /* a signed URL for one file */
};

struct request;

struct route {
	const char *method;
	const char *path; /* "{}" matches one component, stored decoded in args[] */
	unsigned int roles;
	void (*handle)(struct request *r);
	enum {
		ON_LOOP,
		APART,	    /* waits for files: apart.h */
		BODY_APART, /* the same, after the body is read */
	} apart;
};

enum {
	REQUEST_ARGS = 2,
	REQUEST_ARG_MAX = 128,
	REQUEST_TEXT_MAX = 512, /* for an error's message */
};

struct request {
	struct api *api;
	char id[TRACE_REQUEST + 1]; /* in the answer, trace lines and the audit log */
	uint64_t since;		    /* clock_mono() */
	struct exchange *x;
	const struct route *route;
	enum role role;
	char owner[64];		/* name of the used key; "" for the Unix socket */
	struct key_grant grant; /* limits of that key's sandboxes; see request_agent() */
	char args[REQUEST_ARGS][REQUEST_ARG_MAX + 1];
	struct box *box; /* data plane; else NULL */
	uint64_t port;	 /* data plane */
	bool begun;	 /* a streamed answer has begun */
	json_t *body;	 /* body.h: an object; freed with the request */
	void (*drop)(struct request *r);
	void (*room)(struct request *r); /* called when http_full() becomes false */
	void *data;
	struct rpc *rpc;		   /* a Connect stream */
	void (*forget)(struct request *r); /* destructor of `rpc`, after drop() */
	struct apart *apart;		   /* apart.c: set in the child's copy */
	void (*tell)(struct request *r, int status, const char *type, const char *text, size_t n);
	/* private */
	void (*then)(struct request *r);
	void (*have_body)(struct request *r);
	struct request *prev, *next; /* in the box's list */
};

/* ---- the request ---- */

/* Returns the default agent of the client: the first one granted to the key, else hutchd's. */
const char *request_agent(const struct request *r);

/* May the client create sandboxes of this agent? Then the agent's policy is not secret to it. */
bool request_may_use(const struct request *r, const char *agent);

/* ---- answers that end the request ---- */
void request_answer(struct request *r, int status, json_t *body); /* taken; NULL: out of memory */
void request_empty(struct request *r, int status);
void request_text(struct request *r, int status, const char *type, const char *text, size_t n);
/* {"code": status, "message": ...}; escapes text from a sandbox. */
void request_fail(struct request *r, int status, const char *fmt, ...) _printf_(3, 4);
/* Adds Retry-After to an answer with this status, if a retry is useful. */
void request_retry(struct request *r, int status);
/* The errno sets the status. Administrators see the error's own text; see request_reason(). */
void request_fail_err(struct request *r, const struct err *e);
/*
 * Returns the text of an error as this client may see it. Texts of lower layers can name and quote
 * files of the host. So clients other than administrators get a general text if the host failed
 * (5xx) or the text names a path; the details go to the log.
 */
const char *request_reason(const struct request *r, int status, const struct err *e,
			   char out[static REQUEST_TEXT_MAX]);
void request_gone(struct request *r); /* 502, E2B's answer for a missing sandbox; or cuts */

/* ---- streamed answers ---- */
void request_begin(struct request *r, int status, const char *type, int64_t length);
void request_write(struct request *r, const void *data, size_t n);
void request_end(struct request *r);
void request_finish(struct request *r, const void *data, size_t n); /* `data` is not of r */
void request_cut(struct request *r);

/* Calls, jobs and trace lines between these two belong to this request. It may end in between. */
void request_enter(const struct request *r);
void request_leave(void);

/* For the creator of the request: ends it without touching its exchange. */
void request_free(struct request *r);

/* Attaches the request to this box: it ends when the box does. */
void request_join(struct request *r, struct box *b);
