/* SPDX-License-Identifier: Apache-2.0 */
/* Deadline, pause and resume, as clients ask for them: life.c. */
#pragma once

#include "keeper/note.h"
#include "wire/message.h"

struct client;
struct keeper;

enum {
	LIFE_QUEUE = 32,
};

struct asked {
	struct client *client; /* NULL: nobody waits for the answer any more */
	uint32_t ch;
	uint64_t number; /* in the journal */
	struct life_order order;
};

struct life_queue {
	bool paused;
	const char *no_freezer;
	struct asked queue[LIFE_QUEUE]; /* of the warden; the oldest first */
	size_t n;
	uint64_t orders;
};

void life_opened(struct client *c, uint32_t ch, const struct fields *f);
void life_drop(const struct client *c, uint32_t ch); /* it has closed that channel; 0: all */
void life_refuse(struct client *c, uint32_t ch);     /* what nobody can do while it is paused */

/* The warden's answer; false if nobody has asked, or it is none. */
bool life_answered(struct keeper *k, uint64_t value);
void life_paused(struct keeper *k);
