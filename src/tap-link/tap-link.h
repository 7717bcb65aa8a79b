/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between a sandbox's keeper and its hutch-tap, over SOCK_SEQPACKET: one message a packet,
 * a C structure, since both programs are of one build. Each side checks what it receives; the
 * keeper trusts hutch-tap with nothing but the records of requests, because hutch-tap parses bytes
 * of the sandbox and of servers.
 *
 *	keeper to tap	TAP_OPEN, with two files: the sandbox's end and the server's end
 *	tap to keeper	TAP_REQUEST for each request, TAP_END once for each stream
 *
 * The warden has a socket of its own to the tap. It sends TAP_CONFIG with a file: a memfd with JSON
 * (tap/config.h). The first packet on that socket is a TAP_CONFIG; later ones replace the
 * values of secrets. hutch-tap sends TAP_RESERVE and TAP_SETTLE on it, the warden TAP_GRANT.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "names/rule.h"

enum {
	TAP_FD_WARDEN = 3, /* descriptors of hutch-tap when it starts */
	TAP_FD_KEEPER = 4,
	TAP_EARLY_MAX = 4096,
	TAP_METHOD_MAX = 24,
	TAP_PATH_MAX = 1024, /* records cut longer paths */
	TAP_TEXT_MAX = 200,
	TAP_SECRETS_MAX = 64, /* per sandbox */
	TAP_STREAMS_MAX = 16384,
	TAP_CONFIG_MAX = 6 * 1024 * 1024,
	TAP_CA_MAX = 4096, /* CA certificate, PEM */
	TAP_LLM_MAX = 16,  /* rules of `llm` */
	TAP_MODEL_MAX = 128,
	TAP_PROVIDER_MAX = 23,
};

enum tap_kind {
	TAP_OPEN = 1,
	TAP_REQUEST,
	TAP_END,
	TAP_CONFIG,
	TAP_RESERVE,
	TAP_SETTLE,
	TAP_GRANT,
};

/* How a request, or a stream, ended. */
enum tap_result {
	TAP_DONE,	   /* the response is complete; a stream: closed in order */
	TAP_DENIED,	   /* an L7 rule */
	TAP_BAD_REQUEST,   /* not strict HTTP/1.1, another host than the stream's, ... */
	TAP_TOO_LARGE,	   /* max_body, or a limit of hutch-tap */
	TAP_RATE,	   /* over the rule's rate */
	TAP_NO_SECRET,	   /* the secret has no value, or cannot be applied to this request */
	TAP_CLIENT_TRUST,  /* the program in the sandbox rejected our certificate */
	TAP_CLIENT_TLS,	   /* any other failure of TLS with the sandbox */
	TAP_SERVER_TRUST,  /* the server's certificate is not valid for its name */
	TAP_SERVER_TLS,	   /* any other failure of TLS with the server */
	TAP_BAD_RESPONSE,  /* not strict HTTP/1.1 */
	TAP_CLIENT_CLOSED, /* in the middle of a request or response */
	TAP_SERVER_CLOSED,
	TAP_TIME,   /* no progress within a deadline */
	TAP_FAULT,  /* out of memory or descriptors */
	TAP_LLM,    /* a rule of `llm`: the model, or a request that is no known call */
	TAP_BUDGET, /* the budget of a rule of `llm` */
	TAP_RESULTS,
};
const char *tap_result_text(enum tap_result i);

/* The protocols that the policy allows on a stream. 0 is invalid: a sender must choose. */
enum tap_protocol {
	TAP_TLS_OR_HTTP = 1,
	TAP_ONLY_TLS,
	TAP_ONLY_HTTP, /* without TLS */
	TAP_PROTOCOLS,
};

struct tap_open {
	uint64_t stream;
	uint32_t protocol; /* enum tap_protocol */
	uint16_t port;
	bool is_addr; /* then `host` is an address: no secret and no rule applies */
	char host[NAME_TEXT_MAX + 1];
	uint32_t n_early;	      /* bytes of the sandbox that the keeper has read already */
	uint8_t early[TAP_EARLY_MAX]; /* only n_early of them are sent */
};

/* A call of a language model. */
struct tap_call {
	bool is_call;  /* otherwise all is zero */
	bool is_guess; /* the response did not report its usage */
	bool has_cost;
	uint32_t rule;				     /* index of the rule of `llm` */
	uint64_t input, cached, cache_write, output; /* tokens */
	uint64_t cost;				     /* millionths of a dollar */
	char provider[TAP_PROVIDER_MAX + 1];
	char model[TAP_MODEL_MAX + 1]; /* chosen by the sandbox */
};

struct tap_request {
	uint64_t stream;
	uint32_t result;	      /* enum tap_result */
	int32_t rule;		      /* index of the deciding L7 rule, or -1 */
	int32_t secret;		      /* index of the secret that was sent, or -1 */
	uint16_t status;	      /* in the response to the sandbox; 0: none */
	bool reflected;		      /* the response contained the secret: it was masked */
	bool upgraded;		      /* became a WebSocket */
	uint64_t bytes_out, bytes_in; /* bodies of the request and the response */
	uint64_t ns;		      /* from the request's head to the end */
	struct tap_call llm;
	char method[TAP_METHOD_MAX + 1];
	char path[TAP_PATH_MAX + 1]; /* canonical, without query: a query may hold secrets */
	char text[TAP_TEXT_MAX + 1]; /* more about the result; may contain bytes of the sandbox */
};

struct tap_end {
	uint64_t stream;
	uint32_t result;
	char text[TAP_TEXT_MAX + 1];
};

/*
 * Budgets, between hutch-tap and the warden. hutch-tap asks before it sends a call, with the most
 * that the call may use and the least (its request alone), and settles with the usage. `call` is a
 * number that it never uses twice. A reservation that is not settled stays used.
 */
struct tap_reserve {
	uint64_t call;
	uint32_t rule;
	uint64_t tokens, usd, least_tokens, least_usd;
};

struct tap_settle {
	uint64_t call;
	bool as_reserved; /* the usage is unknown */
	uint64_t tokens, usd;
};

struct tap_grant {
	uint64_t call;
	bool granted;
	uint64_t tokens, usd;	     /* limits of the call; UINT64_MAX: none */
	char text[TAP_TEXT_MAX + 1]; /* why it is refused */
};

struct tap_message {
	uint32_t kind;
	union {
		struct tap_open open;
		struct tap_request request;
		struct tap_end end;
		struct tap_reserve reserve;
		struct tap_settle settle;
		struct tap_grant grant;
	};
};

/* Sends one message, with two files for TAP_OPEN, one for TAP_CONFIG (`m` needs only its kind) and
 * none else. Never blocks: -EAGAIN; -EPIPE: the other process has ended. The sender keeps the
 * files. */
int tap_send(int fd, const struct tap_message *m, const int *files, size_t n);

/*
 * Receives one message and checks it: kind, size, terminated texts, values in range, number of
 * files. 0, -EAGAIN, -EPIPE (the other process has ended), or -EBADMSG; files of a bad message are
 * closed. The receiver owns the files.
 */
int tap_receive(int fd, struct tap_message *ret, int files[static 2]);
