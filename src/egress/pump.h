/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes between two sockets, both ways. The sockets are ours alone, non-blocking, and are closed by
 * the pump: a stream that ended well is closed well, any other with a reset on both sides.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "loop.h"

enum {
	PUMP_POOL_MAX = 32,	 /* idle pipes that are kept */
	PUMP_CHUNK = 16 * 1024,	 /* read and written at once, while there is no more */
	PUMP_PIPE = 256 * 1024,	 /* asked of the kernel for a pipe; 64 KiB do, too */
	PUMP_TURN = 1024 * 1024, /* bytes of one direction before others have their turn */
};

/* Pipes and room that all pumps of a process share. */
struct pump_pool {
	int pipes[PUMP_POOL_MAX][2];
	size_t n;
	size_t lent;   /* pipes in use */
	bool no_pipes; /* read and write only, for those who measure */
	char scratch[PUMP_CHUNK];
};

enum pump_side {
	PUMP_CLIENT,
	PUMP_SERVER,
};

enum pump_end {
	PUMP_ENDED,	   /* both sides had their say */
	PUMP_RESET_CLIENT, /* that side reset the stream, or broke */
	PUMP_RESET_SERVER,
	PUMP_IDLE,
	PUMP_LIFE,
	PUMP_SPENT_OUT, /* the budget for client to server */
	PUMP_SPENT_IN,
	PUMP_REFUSED, /* by the filter */
	PUMP_FAULT,   /* no memory, or an error of the loop */
};

/* One direction; the side it comes from is its index in struct pump. */
struct pump_dir {
	uint64_t bytes;	  /* handed to the other side's socket */
	uint64_t *budget; /* bytes that may still be taken, shared with others; never NULL */
	/* private */
	struct buf wait; /* taken, not yet handed on */
	size_t piped;
	int pipe[2];
	bool eof, shut, bulk;
};

struct pump {
	/*
	 * Asked about the first bytes of the client until it says that they pass (1); 0: more, -1:
	 * they do not. None of them has gone out by then. NULL: everything passes.
	 */
	int (*filter)(struct pump *p, const struct buf *b, bool eof);
	size_t filter_max;				/* bytes that are gathered for it at most */
	void (*end)(struct pump *p, enum pump_end why); /* the last call: p may be freed in it */
	void *arg;
	struct pump_dir dir[2];
	/* private */
	struct pump_pool *pool;
	struct loop *loop;
	struct loop_fd side[2];
	struct loop_timer timer;
	uint64_t last, idle, until;
};

void pump_pool_done(struct pump_pool *pool);

/*
 * Takes the client's socket and begins to look at its bytes; filter, end, arg and the budgets are
 * set. `idle` nanoseconds without a byte in either direction or `life` in all end it, with no
 * server too. 0, or -errno and the socket is still the caller's.
 */
int pump_start(struct pump *p, struct loop *l, struct pump_pool *pool, int client, uint64_t idle,
	       uint64_t life);

/* Takes the server's socket: from now on bytes move. 0, or -errno as above. */
int pump_connect(struct pump *p, int server);

/*
 * Ends the pump without a call of end(): both sides are reset, or, with `gently`, the client is
 * sent what was written to it before. What was taken and not handed on goes back to the budget.
 */
void pump_stop(struct pump *p, bool gently);

/* Has the filter said yes? */
bool pump_passed(const struct pump *p);
