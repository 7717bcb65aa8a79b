/* SPDX-License-Identifier: Apache-2.0 */
/* What a command's record is told. */
#pragma once

#include "state/record.h"
#include "wire/message.h"

struct keeper;

struct command {
	struct keeper *keeper;
	struct record record;
	struct record_head head; /* until it is written */
	uint64_t room;		 /* bytes of the budget that it has */
	bool begun, over;
};

/* The command that an exec asks for, without a file. NULL: no memory. */
struct command *command_new(struct keeper *k, const struct fields *f);
struct command *command_adopted(struct keeper *k, const struct record_head *was);
void command_free(struct command *c);

void command_asked(struct command *c); /* of the guest; it has a file now */
void command_runs(struct command *c, uint32_t pid);
void command_exited(struct command *c, const struct fields *f); /* MSG exit: it is over */

/* It is over. The first word on that counts. */
void command_over(struct command *c, enum record_how how, unsigned int value, const char *text);
