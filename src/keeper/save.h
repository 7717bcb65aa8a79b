/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of a machine. */
#pragma once

#include "base/loop.h"
#include "keeper/note.h"
#include "wire/message.h"

struct client;
struct keeper;

struct save {
	bool active; /* somebody wants one */
	bool begun;  /* the guest was told */
	bool failed;
	enum wire_save what_for;
	struct client *client; /* NULL: it has gone */
	uint32_t ch;
	uint64_t number, orders; /* in the journal */
	int file;		 /* for the VM's state */
	int list;		 /* for what runs */
	int rules; /* for what may go out; -EBADF: it is kept, and nobody continues it */
	char name[SAVE_NAME];
	struct loop_timer timer;
};

void save_opened(struct client *c, uint32_t ch, const struct fields *f);
void save_at_deadline(struct keeper *k);
void save_drop(const struct client *c, uint32_t ch); /* it has closed that channel; 0: all */
void save_asleep(struct keeper *k);		     /* the guest has fallen asleep */
void save_guest_gone(struct keeper *k);		     /* whoever waits for one is told */
void save_done(struct keeper *k);

/* The warden's answers: two or three files, which are taken, or none (one: false); the snapshot's
 * number, or 0. */
bool save_begin(struct keeper *k, const int *files, size_t n);
void save_finished(struct keeper *k, uint64_t number);
