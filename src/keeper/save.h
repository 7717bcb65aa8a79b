/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots of a VM: save.c. */
#pragma once

#include "base/loop.h"
#include "keeper/note.h"
#include "wire/message.h"

struct client;
struct keeper;

struct save {
	bool active;  /* a snapshot was asked for */
	bool begun;   /* SLEEP was sent to the guest */
	bool stopped; /* the VM was stopped to write its state */
	bool failed;
	bool leaving; /* suspend: the warden knows that the VM's state is complete */
	enum wire_save what_for;
	struct client *client; /* NULL: the deadline asked, or the client disconnected */
	uint32_t ch;
	uint64_t number, orders; /* in the journal */
	int file;		 /* receives the VM's state */
	int list;		 /* receives the list of running commands */
	int rules; /* receives the egress rules; -EBADF for a kept snapshot, which has none */
	char name[SAVE_NAME];
	struct loop_timer timer;
	unsigned int waits; /* for a guest that cannot fall asleep because its VM has stopped */
};

void save_opened(struct client *c, uint32_t ch, const struct fields *f);
void save_at_deadline(struct keeper *k);
void save_drop(const struct client *c, uint32_t ch); /* it closed `ch`; 0: it disconnected */
void save_asleep(struct keeper *k);		     /* the guest is asleep */
void save_guest_gone(struct keeper *k);		     /* reports the failure to the waiting client */
void save_done(struct keeper *k);

/* The warden's answers. save_begin() takes two or three files; no files: no snapshot; one file
 * is an error (false). save_finished() gets the snapshot's number, or 0. */
bool save_begin(struct keeper *k, const int *files, size_t n);
void save_finished(struct keeper *k, uint64_t number);
