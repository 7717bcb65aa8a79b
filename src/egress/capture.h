/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Catches what the programs of a sandbox send out: answers their DNS questions, accepts what they
 * connect to, and hands each stream over with the name or address that it is for. What may be
 * reached is not decided here.
 *
 * Everything is bounded: how much is read, accepted and answered in one round of the loop, how many
 * programs may be in the middle of a question, and for how long.
 */
#pragma once

#include "front.h"
#include "loop.h"
#include "pool.h"
#include "sockets.h"

/* How a stream came; of the proxy's, the program waits for capture_reply(). */
enum capture_how {
	CAPTURE_DIRECT,
	CAPTURE_BY_CONNECT,
	CAPTURE_BY_SOCKS5,
};

enum capture_may {
	CAPTURE_MAY_NOT,
	CAPTURE_MAY,
	CAPTURE_MAY_LATER, /* capture_answered() will say */
};

/* Called from inside of the capture, which they must not free. */
struct capture_ops {
	/*
	 * May anything be dialled by that name, on any port? Decides whether it gets an address.
	 * If not, *ret_reason is a text that outlives the call. Asked for every question. With
	 * CAPTURE_MAY_LATER, which is never taken back, the answer has that number; it is not
	 * waited for longer than a few seconds.
	 */
	enum capture_may (*ask)(const struct name *name, uint64_t number, const char **ret_reason,
				void *arg);

	/* A program has connected to `t`. Takes `fd`: non-blocking, CLOEXEC, and nothing of the
	 * program's own bytes read. The target is valid during the call. */
	void (*connect)(int fd, const struct target *t, enum capture_how how, void *arg);
};

struct capture;

/*
 * Takes the sockets, also when it fails. Room for `names` names, at most POOL_MAX; `key` is of
 * getrandom(2). Makes no further system call but to add the sockets to the loop. 0, -ENOMEM or
 * -errno.
 */
int capture_new(struct loop *loop, struct capture_sockets *s, size_t names,
		const uint8_t key[static SIPHASH_KEY], const struct capture_ops *ops, void *arg,
		struct capture **ret);
struct capture *capture_free(struct capture *c);

/*
 * The answer to a question that was to be answered later; `reason` (if not) as above, during the
 * call. Nothing if nobody waits for it any more. Not to be called from a callback.
 */
void capture_answered(struct capture *c, uint64_t number, bool may, const char *reason);

/*
 * Tells the program how its connect went, once; nothing for CAPTURE_DIRECT. After anything but
 * FRONT_OK the caller closes the descriptor, by capture_refuse(). 0, or -errno: the program has
 * gone.
 */
int capture_reply(int fd, enum capture_how how, enum front_result result, const char *reason);

/* Says so (capture_reply()) and closes `fd`; one that came directly is reset, which is how a
 * refused connection looks to a program once it was accepted. */
void capture_refuse(int fd, enum capture_how how, enum front_result result, const char *reason);

static inline void cleanup_capture(struct capture **c)
{
	(void)capture_free(*c);
}

#define _cleanup_capture_ _cleanup_(cleanup_capture)
