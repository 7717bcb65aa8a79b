/* SPDX-License-Identifier: Apache-2.0 */
/* A command and its record. */
#pragma once

#include "state/record.h"
#include "wire/message.h"

struct keeper;

struct command {
	struct keeper *keeper;
	struct record record;
	struct record_head head; /* the record's header */
	uint64_t room;		 /* bytes of the records' budget reserved for it */
	bool begun, over;
};

/* The command of an exec request, still without a record file. NULL: no memory. */
struct command *command_new(struct keeper *k, const struct fields *f);
struct command *command_adopted(struct keeper *k, const struct record_head *was);
void command_free(struct command *c);

void command_asked(struct command *c); /* the guest was asked; needs a record file */
void command_runs(struct command *c, uint32_t pid);
void command_exited(struct command *c, const struct fields *f); /* MSG exit came */

/* The command is over. Only the first call counts. */
void command_over(struct command *c, enum record_how how, unsigned int value, const char *text);
