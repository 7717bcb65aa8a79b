/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replaces secrets in a stream by as many '*'. A secret is searched in plain, percent-encoded and
 * base64, the latter at each of its three alignments within a longer text.
 *
 * The search (Wu and Manber) looks at three bytes that end a window as long as the shortest
 * pattern, and mostly skips the whole window. A stream holds back only bytes that are a true prefix
 * of a pattern. At most MASK_RELEASE_MAX of them are passed on by mask_release(), for a reader who
 * waits for the end of a message; the rest of a pattern is then still masked.
 *
 * The reader of a stream sees where it pauses. If he also chooses what a server sends, such as the
 * contents of a file, a pause tells him that his guess is the beginning of a secret. So after
 * MASK_PROBES_MAX long prefixes that no secret followed, a stream holds back as many bytes as the
 * longest pattern has, whatever they are.
 */
#pragma once

#include "base/buf.h"

enum {
	MASK_VALUE_MIN = 4, /* bytes; shorter values would hit ordinary text */
	MASK_PATTERNS_MAX = 512,
	MASK_PROBE_MIN = 8, /* bytes of a long prefix, at most half of the shortest pattern */
	MASK_PROBES_MAX = 8,
	MASK_RELEASE_MAX = 3, /* fewer than the shortest value */
};

struct mask;

/* A function below that takes a mask accepts NULL: nothing is masked. */
/* `probes` counts long prefixes for all masks that share it; NULL: for this one. NULL without
 * memory.
 */
struct mask *mask_new(unsigned int *probes);
struct mask *mask_free(struct mask *m); /* wipes the patterns, if no other mask has them */

/* A mask for another stream, with the same patterns: those added to either one are in both. NULL
 * without memory. */
struct mask *mask_branch(struct mask *m);
bool mask_is_empty(const struct mask *m); /* has no pattern */

/*
 * Adds a value; one that is known or too short changes nothing. `user` (or NULL): also in the
 * base64 form of USER:VALUE. A stream masks it from its next byte on. 0, -ENOMEM, or -ENOSPC: too
 * many patterns.
 */
int mask_add(struct mask *m, const char *value, size_t n, const char *user);

/* Has a secret been found since the last call? */
bool mask_take_hit(struct mask *m);

/* Masks a complete text in place. Without memory, it masks all of it. */
void mask_text(struct mask *m, char *text, size_t n);

/*
 * Feeds a stream; *ret, *ret_n are the bytes to pass on, valid until the next call, or as long as
 * `data`. 0 or -ENOMEM. mask_release() gives a few bytes held back, mask_holds() says whether
 * it would. mask_end() gives the bytes held back, and ends the stream.
 */
int mask_feed(struct mask *m, const char *data, size_t n, const char **ret, size_t *ret_n);
int mask_release(struct mask *m, const char **ret, size_t *ret_n);
bool mask_holds(const struct mask *m);
int mask_end(struct mask *m, const char **ret, size_t *ret_n);
