/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the capture. */
#pragma once

#include <netinet/in.h>

#include "egress/capture.h"
#include "egress/dns.h"

enum {
	ACCEPTS_MAX = 16,     /* per listener and round of the loop */
	QUERIES_MAX = 32,     /* UDP queries per round */
	DNS_CLIENTS_MAX = 8,  /* concurrent TCP connections */
	QUESTIONS_MAX = 64,   /* queries waiting for a late answer */
	HEADS_MAX = 32,	      /* proxy clients whose request is incomplete */
	CLIENT_MS = 5 * 1000, /* time limit for one client */
	ANSWER_MS = 4 * 1000, /* time limit for a late answer: shorter than resolvers wait */
	ANSWER_TURNS = 4,     /* rounds of the loop, at least */
	PAUSE_MS = 100,	      /* pause when out of descriptors or memory */
};

/* Room for one query and one answer; more stays in the socket. */
enum {
	DNS_IN_MAX = 2 + DNS_QUERY_MAX,
	DNS_OUT_MAX = 2 + DNS_ANSWER_MAX,
};

/* A DNS client on TCP. */
struct dns_client {
	struct capture *capture;
	struct loop_fd src; /* .fd is -EBADF in a free one */
	struct loop_timer deadline;
	size_t n;
	uint8_t in[DNS_IN_MAX];
	struct buf out;		   /* one answer, sent before the next query is read */
	struct question *question; /* waiting for its late answer; or NULL */
};

/* A query whose answer comes later, with all that the answer needs. */
struct question {
	struct capture *capture;
	uint64_t number;	   /* 0: free */
	struct dns_client *client; /* NULL: by UDP, from `from` */
	struct sockaddr_in from;
	struct loop_timer deadline;
	unsigned int turns; /* rounds of the deadline so far */
	struct name name;
	size_t n;
	uint8_t query[DNS_QUERY_MAX];
};

/* A proxy client whose request is being read. */
struct head {
	struct capture *capture;
	struct loop_fd src; /* as above */
	struct loop_timer deadline;
	struct front front;
};

struct listener {
	struct capture *capture;
	struct loop_fd src;
	struct loop_timer again; /* ends a pause */
	void (*accepted)(struct capture *c, int fd);
	bool full; /* no room for another connection until one ends */
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
	uint64_t asked; /* number of the last query */
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

/* Replaces an address of our range by its name. -ENOENT for an unassigned address of that range,
 * -EACCES for the sandbox's own loopback. */
int capture_target(const struct capture *c, struct target *t);

/* capture-dns.c */
void dns_on_udp(struct loop_fd *src, uint32_t events);
void dns_accepted(struct capture *c, int fd);
void dns_close(struct dns_client *d);
void dns_forget(struct question *w);

/* capture-proxy.c */
void head_accepted(struct capture *c, int fd);
void head_close(struct head *h);
