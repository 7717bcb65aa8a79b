/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the capture share. */
#pragma once

#include <netinet/in.h>

#include "capture.h"
#include "dns.h"

enum {
	ACCEPTS_MAX = 16,     /* of one listener in a round */
	QUERIES_MAX = 32,     /* in a round, by UDP */
	DNS_CLIENTS_MAX = 8,  /* by TCP, at the same time */
	QUESTIONS_MAX = 64,   /* whose answer comes later */
	HEADS_MAX = 32,	      /* programs that talk to the proxy and have not said all */
	CLIENT_MS = 5 * 1000, /* for all of it, whichever it is */
	ANSWER_MS = 4 * 1000, /* for what is answered later: less than a program waits */
	ANSWER_TURNS = 4,     /* of the loop, at least */
	PAUSE_MS = 100,	      /* when the system has no descriptor or memory for one more */
};

/* Room for one question more than what is being answered; nobody waits with more. */
enum {
	DNS_IN_MAX = 2 + DNS_QUERY_MAX,
	DNS_OUT_MAX = 2 + DNS_ANSWER_MAX,
};

/* A program that asks by TCP. */
struct dns_client {
	struct capture *capture;
	struct loop_fd src; /* .fd is -EBADF in a free one */
	struct loop_timer deadline;
	size_t n;
	uint8_t in[DNS_IN_MAX];
	struct buf out;		   /* one answer, and sent before the next */
	struct question *question; /* whose answer it waits for */
};

/* A question whose answer comes later, with all that the answer is made of. */
struct question {
	struct capture *capture;
	uint64_t number;	   /* 0: free */
	struct dns_client *client; /* NULL: by UDP, from... */
	struct sockaddr_in from;
	struct loop_timer deadline;
	unsigned int turns; /* that its deadline has had */
	struct name name;
	size_t n;
	uint8_t query[DNS_QUERY_MAX];
};

/* A program that talks to the proxy. */
struct head {
	struct capture *capture;
	struct loop_fd src; /* as above */
	struct loop_timer deadline;
	struct front front;
};

struct listener {
	struct capture *capture;
	struct loop_fd src;
	struct loop_timer again; /* after a pause */
	void (*accepted)(struct capture *c, int fd);
	bool full; /* no room for what it accepts, until something ends */
};

struct capture {
	struct loop *loop;
	const struct capture_ops *ops;
	void *arg;
	struct pool *pool;
	struct listener listeners[CAPTURE_SOCKETS];
	struct dns_client dns[DNS_CLIENTS_MAX];
	struct head heads[HEADS_MAX];
	struct question questions[QUESTIONS_MAX];
	size_t n_dns, n_heads, n_questions;
	uint64_t asked; /* the number of the last question */
	struct buf out; /* one answer or reply */
};

/* capture-listen.c: accepts nothing while there is no room for it. */
void listener_full(struct listener *l, bool full);
void listener_init(struct listener *l, struct capture *c);
void listener_accept(struct loop_fd *src, uint32_t events);

/* A free row of such a list. The listener is not watched while all are taken. */
#define CAPTURE_FREE(list)                     \
	({                                     \
		size_t _i = 0;                 \
                                               \
		while ((list)[_i].src.fd >= 0) \
			_i++;                  \
		assert(_i < ARRAY_SIZE(list)); \
		&(list)[_i];                   \
	})

/*
 * Watches an accepted connection for input and for the end of its time; takes `fd`. `src` and
 * `deadline` have their callbacks. -errno: there is no room, and `fd` is closed.
 */
int capture_watch(struct capture *c, int fd, struct loop_fd *src, struct loop_timer *deadline);

/* Puts the name in the place of the address that stands for it. -ENOENT for one of our range that
 * stands for nothing, -EACCES for the sandbox's own loopback. */
int capture_target(const struct capture *c, struct target *t);

/* capture-dns.c */
void dns_on_udp(struct loop_fd *src, uint32_t events);
void dns_accepted(struct capture *c, int fd);
void dns_close(struct dns_client *d);
void dns_forget(struct question *w);

/* capture-proxy.c */
void head_accepted(struct capture *c, int fd);
void head_close(struct head *h);
