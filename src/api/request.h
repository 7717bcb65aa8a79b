/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request as a handler has it. It ends by one of the functions below that say so, or because
 * the client or the sandbox has gone; in each case drop() is called, once and last, and the
 * request is no more. So drop() is the destructor of `data`, and nothing else needs to know how
 * it ended.
 */
#pragma once

#include "api/api-inner.h"
#include "base/json-util.h"
#include "http/http-server.h"
#include "keys/keys.h"

/* Who asks; bits, for a route says who may. */
enum role {
	ROLE_NOBODY = 1,  /* no credential at all */
	ROLE_METRICS = 2, /* a key for /metrics only */
	ROLE_USER = 4,	  /* a key */
	ROLE_ADMIN = 8,	  /* a key, or the Unix socket without one */
	ROLE_TOKEN = 16,  /* the sandbox's own token: data plane */
	ROLE_SIGNED = 32, /* a signed URL of one file */
};

struct request;

struct route {
	const char *method;
	const char *path; /* components; "{}" stands for one, decoded, kept in args[] */
	unsigned int roles;
	void (*handle)(struct request *r);
	enum {
		ON_LOOP,
		APART,	    /* it waits for files: apart.h */
		BODY_APART, /* the same, once the body is there */
	} apart;
};

enum {
	REQUEST_ARGS = 2,
	REQUEST_ARG_MAX = 128,
	REQUEST_TEXT_MAX = 512, /* of an error's message */
};

struct request {
	struct api *api;
	char id[TRACE_REQUEST + 1]; /* in the answer, in trace lines, in the audit log */
	uint64_t since;		    /* clock_mono() */
	struct exchange *x;
	const struct route *route;
	enum role role;
	char owner[64];		/* the name of the key that was used; "" for the Unix socket */
	struct key_grant grant; /* what sandboxes of that key may be; see request_agent() */
	char args[REQUEST_ARGS][REQUEST_ARG_MAX + 1];
	struct box *box; /* of the data plane; else NULL */
	uint64_t port;	 /* of the data plane */
	bool begun;	 /* an answer in pieces has begun */
	json_t *body;	 /* body.h: an object; dropped with the request */
	void (*drop)(struct request *r);
	void (*room)(struct request *r); /* more can be written again: http_full() is false */
	void *data;
	struct rpc *rpc;		   /* of a Connect stream */
	void (*forget)(struct request *r); /* the destructor of that, after drop() */
	struct apart *apart;		   /* apart.c: this is the child's copy */
	void (*tell)(struct request *r, int status, const char *type, const char *text, size_t n);
	/* private */
	void (*then)(struct request *r);
	void (*have_body)(struct request *r);
	struct request *prev, *next; /* of the box */
};

/* ---- the request ---- */

/* The agent whose policy sandboxes of whoever asks have, unless something names another: the first
 * one that the key is granted, else that of hutchd. */
const char *request_agent(const struct request *r);

/* ---- answers that end it ---- */
void request_answer(struct request *r, int status, json_t *body); /* taken; NULL: out of memory */
void request_empty(struct request *r, int status);
void request_text(struct request *r, int status, const char *type, const char *text, size_t n);
/* {"code": status, "message": ...}; text from a sandbox is escaped here. */
void request_fail(struct request *r, int status, const char *fmt, ...) _printf_(3, 4);
/* Of an answer of that status: when to try again, if that is of use. */
void request_retry(struct request *r, int status);
/* Status by errno. What an administrator reads is the error's own text; see request_reason(). */
void request_fail_err(struct request *r, const struct err *e);
/*
 * The text of an error as this client may see it. Texts of lower layers can name files of the host
 * and quote them: whoever is no administrator reads a general text instead of one that belongs to a
 * failure of the host (5xx) or that names a path, and the log has the details.
 */
const char *request_reason(const struct request *r, int status, const struct err *e,
			   char out[static REQUEST_TEXT_MAX]);
void request_gone(struct request *r); /* 502, as E2B says that a sandbox is not there; or cuts */

/* ---- an answer in pieces ---- */
void request_begin(struct request *r, int status, const char *type, int64_t length);
void request_write(struct request *r, const void *data, size_t n);
void request_end(struct request *r);
void request_finish(struct request *r, const void *data, size_t n); /* both; `data` is not of r */
void request_cut(struct request *r);

/* What is done between the two is done for this request: calls, jobs, trace lines. It may end
 * meanwhile. */
void request_enter(const struct request *r);
void request_leave(void);

/* For whoever made it: it ends, and its exchange is not touched. */
void request_free(struct request *r);

/* The request becomes one of this box's: it ends when the box does. */
void request_join(struct request *r, struct box *b);
