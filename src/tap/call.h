/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request and its response, whatever version of HTTP carries them: rules, secrets, bodies,
 * masking, the record. The caller reads messages from one connection and writes them to the other;
 * it passes each part through the functions here.
 *
 *	call_begin()			the first byte of a request
 *	call_admit()			its head: the rules, the choice of a secret
 *	call_collect()			its body, if the credential depends on it
 *	call_review()			its body is complete: may it be sent?
 *	call_credit()			its head as it will be sent
 *	call_body()			its body
 *	call_response()			the head of the response
 *	call_pass(), call_pass_end()	the body of the response
 *	call_report()			the end
 *
 *  call.c           begin, response, end
 *  call-request.c   rules, secrets, the body of the request
 *  gateway.c        calls of language models
 */
#pragma once

#include "tap/aws-chunk.h"
#include "tap/inject.h"
#include "tap/mask.h"
#include "tap/response.h"

enum {
	COLLECT_MAX = 1024 * 1024, /* bytes of a body to sign */
	INTERIM_MAX = 64,	   /* 1xx responses before the final one */
	ANSWER_MAX = 1024,
	STATUS_SWITCHING = 101,
	STATUS_FINAL = 200,
};

struct call {
	const struct exchange_conf *conf;
	struct mask *mask; /* the secrets sent on this connection; NULL: none yet */
	bool active;	   /* it must be reported */
	bool responded;	   /* the head of its final response is written */
	bool opaque;	   /* the response is compressed, although it must be searched */
	unsigned int interims;
	uint64_t started, max_body;
	struct tap_request record;
	struct buf collected;
	struct buf again;	   /* the piece of the body with new signatures */
	struct gateway *gateway;   /* NULL: no rule of `llm` names the host */
	struct aws_chunks *chunks; /* signs the body's chunks; NULL: it has none */
};

/* `conf` must outlive it. */
void call_init(struct call *c, const struct exchange_conf *conf);
void call_done(struct call *c);

void call_begin(struct call *c);

struct place call_place(const struct call *c);
void call_name(struct call *c, const struct request *q); /* for the record */

/*
 * Checks the parsed request against the rules and chooses its secret. If ret->need_body, the whole
 * body goes through call_collect(); then call_choose() chooses again for the request, parsed again.
 * 0, -ENOMEM, or -EBADMSG with *why, as all of these functions.
 */
int call_admit(struct call *c, struct request *q, struct injection *ret, struct refusal *why);
int call_collect(struct call *c, const char *data, size_t n, struct refusal *why);
int call_choose(struct call *c, struct request *q, struct injection *ret, struct refusal *why);

/* 0: send the request; 1: ask again after gateway_answer(). */
int call_review(struct call *c, struct refusal *why);

/*
 * Completes the head: length, credentials. `body` is the complete body if need_body, else NULL.
 * `is_done`: no body follows.
 */
int call_credit(struct call *c, struct request *q, const struct injection *inj,
		const struct buf *body, bool is_done, struct refusal *why);

/* A piece of the body; *ret is what to send, valid until the next call. `is_last`: it is complete.
 */
int call_body(struct call *c, const char *data, size_t n, bool is_last, const char **ret,
	      size_t *ret_n, struct refusal *why);

/* Returns -EBADMSG, *why says what the response has. */
int call_bad_response(struct refusal *why, const char *what);

/* Notes the head of a final response, or counts an interim one. */
int call_response(struct call *c, struct response *r); /* 0 or -ENOMEM */
int call_interim(struct call *c, struct refusal *why);

/* Masks a piece of the response's body; *ret is what to pass on. 0 or -ENOMEM. */
int call_pass(struct call *c, const char *data, size_t n, const char **ret, size_t *ret_n);

/* The gateway has ended the response in call_pass(): pass no more of it, and report. */
bool call_is_cut(const struct call *c);
void call_report_cut(struct call *c);

/* Reports the request, if it is not reported yet. */
void call_report(struct call *c, enum tap_result result, const char *text);
void call_complete(struct call *c); /* with its response */

/* The response of hutch-tap itself. */
struct answer {
	const char *word; /* of X-Hutch-Denied */
	unsigned int status;
	unsigned int retry_after; /* seconds; 0: no such field */
	bool has_body;		  /* not for HEAD; `length` counts it anyway */
	size_t length;
	bool stop_retries; /* with X-Should-Retry: false */
	const char *type;
	char body[ANSWER_MAX];
};

/* Reports the request as refused. True if *ret must be sent: the response has not begun. */
bool call_refuse(struct call *c, const struct refusal *why, struct answer *ret);

/*
 * The refusal for an end of a connection, or for a deadline. False: the request cannot be answered
 * and is only reported.
 */
bool call_refusal(enum tap_result result, const char *text, struct refusal *ret);
