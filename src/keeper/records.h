/* SPDX-License-Identifier: Apache-2.0 */
/* The files that commands are recorded in. */
#pragma once

#include "keeper/note.h"
#include "state/record.h"

struct command;
struct keeper;

struct spare {
	uint64_t number;
	int fd;
};

struct ended {
	uint64_t number, size;
};

struct records {
	uint64_t limit;		/* blocks of a record */
	uint64_t budget, bytes; /* of all of them */
	struct spare spare[2 * NOTE_FILES_MAX];
	size_t n_spare;
	bool asked; /* for more */
	uint64_t invented;
	struct ended ended[RECORDS_MAX];
	size_t n_ended;
};

void records_init(struct records *s, uint64_t output);
void records_done(struct records *s);

/* Makes `c` a record with a file. False: there is none yet, and more have been asked for. */
bool records_take(struct keeper *k, struct command *c);

/* Closes the file; it may be dropped from now on. */
void records_ended(struct keeper *k, struct command *c);

/* The warden's answer. Takes the files if it returns true. */
bool records_came(struct keeper *k, uint64_t first, const int *files, size_t n);
void records_refused(struct keeper *k, uint64_t error);
