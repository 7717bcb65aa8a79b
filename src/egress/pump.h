/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves bytes between two sockets in both directions. The pump owns the sockets, which are
 * non-blocking. It closes a stream that ended normally, and resets both sides of any other.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/loop.h"

enum {
	PUMP_POOL_MAX = 32,	 /* idle pipes kept for reuse */
	PUMP_CHUNK = 16 * 1024,	 /* size of a small read and write */
	PUMP_PIPE = 256 * 1024,	 /* requested pipe size; 64 KiB work, too */
	PUMP_TURN = 1024 * 1024, /* bytes of one direction before other events are handled */
};

/* Pipes and buffer shared by all pumps of a process. */
struct pump_pool {
	int pipes[PUMP_POOL_MAX][2];
	size_t n;
	size_t lent;   /* pipes in use */
	bool no_pipes; /* only read and write, for benchmarks */
	char scratch[PUMP_CHUNK];
};

enum pump_side {
	PUMP_CLIENT,
	PUMP_SERVER,
};

enum pump_end {
	PUMP_ENDED,	   /* both sides closed */
	PUMP_RESET_CLIENT, /* that side reset the stream, or failed */
	PUMP_RESET_SERVER,
	PUMP_IDLE,
	PUMP_LIFE,
	PUMP_SPENT_OUT, /* budget for client to server spent */
	PUMP_SPENT_IN,
	PUMP_REFUSED, /* by the filter */
	PUMP_FAULT,   /* out of memory, or an error of the loop */
};

/* One direction, indexed in struct pump by the side it reads from. */
struct pump_dir {
	uint64_t bytes;	  /* written to the other side's socket */
	uint64_t *budget; /* bytes that may still be read, shared with other pumps; never NULL */
	/* private */
	struct buf wait; /* read, not yet written */
	size_t piped;
	int pipe[2];
	bool eof, shut, bulk;
};

struct pump {
	/*
	 * Called with the client's first bytes until it returns 1 (pass); 0: more bytes needed, -1:
	 * refuse. No byte is sent before it passes. NULL: everything passes.
	 */
	int (*filter)(struct pump *p, const struct buf *b, bool eof);
	size_t filter_max;				/* maximum bytes collected for the filter */
	void (*end)(struct pump *p, enum pump_end why); /* called last: may free p */
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
 * Takes the client's socket and starts reading for the filter; the caller has set filter, end, arg
 * and the budgets. Ends after `idle` nanoseconds without a byte in either direction or `life` in
 * total, even before a server is connected. 0, or -errno: the caller still owns the socket.
 */
int pump_start(struct pump *p, struct loop *l, struct pump_pool *pool, int client, uint64_t idle,
	       uint64_t life);

/* Takes the server's socket and starts moving bytes. 0, or -errno as above. */
int pump_connect(struct pump *p, int server);

/*
 * Ends the pump without calling end(): resets both sides or, with `gently`, lets data already
 * written reach them. Returns bytes read and not written to the budget.
 */
void pump_stop(struct pump *p, bool gently);

/* Has the filter passed the stream? */
bool pump_passed(const struct pump *p);
