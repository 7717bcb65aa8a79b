/* SPDX-License-Identifier: Apache-2.0 */
/* Clients' requests to change the deadline, pause or resume: life.c. */
#pragma once

#include "keeper/note.h"
#include "wire/message.h"

struct client;
struct keeper;

enum {
	LIFE_QUEUE = 32,
};

struct asked {
	struct client *client; /* NULL: the client has closed the channel */
	uint32_t ch;
	uint64_t number; /* in the journal */
	struct life_order order;
};

struct life_queue {
	bool paused;
	const char *no_freezer;
	struct asked queue[LIFE_QUEUE]; /* waiting for the warden's answer, oldest first */
	size_t n;
	uint64_t orders;
};

void life_opened(struct client *c, uint32_t ch, const struct fields *f);
void life_drop(const struct client *c, uint32_t ch); /* it closed `ch`; 0: it disconnected */
void life_refuse(struct client *c, uint32_t ch);     /* refuses an operation of a paused sandbox */

/* The warden's answer; false if no request waits or the answer is invalid. */
bool life_answered(struct keeper *k, uint64_t value);
void life_paused(struct keeper *k);
