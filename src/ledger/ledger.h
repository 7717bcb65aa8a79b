/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The use of budgets for language models: a small file with a counter for each rule. A sandbox and
 * its forks share one file, whose name is the id of the first of them.
 *
 * The file has two slots. A change locks the file, reads the newer valid slot and writes the other
 * one, to disk, before it returns. So a crash at any point leaves the counters before or after the
 * change. A file without a valid slot is an error: no call is then granted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
	LEDGER_COUNTERS = 16,
	LEDGER_NAME_MAX = 64,
};

struct ledger_counter {
	uint64_t requests, tokens, usd; /* usd: millionths of a dollar */
};

struct ledger {
	int dir;  /* all ledgers; -EBADF: not open */
	int file; /* this one; -EBADF until its first use */
	char name[LEDGER_NAME_MAX + 1];
};

#define LEDGER_INIT                            \
	{                                      \
		.dir = -EBADF, .file = -EBADF, \
	}

/* Opens the directory of ledgers, below the state directory. Makes no file yet. */
int ledger_open(const char *name, struct ledger *ret, struct err *e);
void ledger_close(struct ledger *l);

/*
 * Lets `change` change counter `i`, while no other process does. Its result is returned; if it is
 * negative, nothing is changed. Otherwise 0 or more, or -errno with a message.
 */
int ledger_change(struct ledger *l, size_t i, int (*change)(struct ledger_counter *c, void *arg),
		  void *arg, struct err *e);

/* Removes the file, if it exists: no other sandbox uses it. */
void ledger_remove(struct ledger *l);

/* The directory of all ledgers; a file's name is that of the ledger. -ENOENT: there are none. */
int ledger_open_all(int *ret_fd, struct err *e);

/* Removes one, unless a sandbox has it open. True: removed. */
bool ledger_remove_unused(int all, const char *name);
