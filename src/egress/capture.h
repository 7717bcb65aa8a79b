/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captures the network use of a sandbox's programs: answers their DNS queries, accepts their
 * connections and hands each stream over with its name or address. The callbacks decide what may be
 * reached.
 *
 * Everything is bounded: the work in one round of the loop, the number of clients with an
 * incomplete query or request, and their time.
 */
#pragma once

#include "base/loop.h"
#include "egress/front.h"
#include "egress/pool.h"
#include "egress/sockets.h"

/* How a stream arrived; proxy clients wait for capture_reply(). */
enum capture_how {
	CAPTURE_DIRECT,
	CAPTURE_BY_CONNECT,
	CAPTURE_BY_SOCKS5,
};

enum capture_may {
	CAPTURE_MAY_NOT,
	CAPTURE_MAY,
	CAPTURE_MAY_LATER, /* capture_answered() will decide */
};

/* Called from inside the capture; they must not free it. */
struct capture_ops {
	/*
	 * May any port of that name be dialled? Decides whether the name gets an address. If not,
	 * *ret_reason is a text that outlives the call. Called for every query. A query
	 * answered with CAPTURE_MAY_LATER is not withdrawn; the caller passes its number to
	 * capture_answered() within a few seconds.
	 */
	enum capture_may (*ask)(const struct name *name, uint64_t number, const char **ret_reason,
				void *arg);

	/* A program has connected to `t`. Takes `fd`: non-blocking, CLOEXEC, with all bytes of the
	 * stream still unread. The target is valid during the call. */
	void (*connect)(int fd, const struct target *t, enum capture_how how, void *arg);
};

struct capture;

/*
 * Takes the sockets, also on failure. Holds at most `names` names, up to POOL_MAX; `key` is random.
 * Makes no system call except to add the sockets to the loop. 0, -ENOMEM or -errno.
 */
int capture_new(struct loop *loop, struct capture_sockets *s, size_t names,
		const uint8_t key[static SIPHASH_KEY], const struct capture_ops *ops, void *arg,
		struct capture **ret);
struct capture *capture_free(struct capture *c);

/*
 * The late answer to query `number`; `reason` is for a refusal and need only be valid during the
 * call. Does nothing if the query has timed out. Must not be called from a callback.
 */
void capture_answered(struct capture *c, uint64_t number, bool may, const char *reason);

/*
 * Reports the result to a proxy client, once; does nothing for CAPTURE_DIRECT. If the result is not
 * FRONT_OK, use capture_refuse(). 0, or -errno if the program has gone.
 */
int capture_reply(int fd, enum capture_how how, enum front_result result, const char *reason);

/* Calls capture_reply() and closes `fd`. A direct stream is reset, which is what a program sees of
 * a refusal after accept(2). */
void capture_refuse(int fd, enum capture_how how, enum front_result result, const char *reason);

static inline void cleanup_capture(struct capture **c)
{
	(void)capture_free(*c);
}

#define _cleanup_capture_ _cleanup_(cleanup_capture)
