/* SPDX-License-Identifier: Apache-2.0 */
/* The record files of commands: records.c. */
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
	uint64_t limit;		/* maximum blocks of one record */
	uint64_t budget, bytes; /* bytes of all records: maximum and used */
	struct spare spare[2 * NOTE_FILES_MAX];
	size_t n_spare;
	bool asked; /* more files were asked for */
	uint64_t invented;
	struct ended ended[RECORDS_MAX];
	size_t n_ended;
};

void records_init(struct records *s, uint64_t output);
void records_done(struct records *s);

/* Gives `c` a record file. False: none is left, and more have been asked for. */
bool records_take(struct keeper *k, struct command *c);

/* Closes the file; the budget may drop the record from now on. */
void records_ended(struct keeper *k, struct command *c);

/* The warden's answers. records_came() takes the files if it returns true. */
bool records_came(struct keeper *k, uint64_t first, const int *files, size_t n);
void records_refused(struct keeper *k, uint64_t error);
