/* SPDX-License-Identifier: Apache-2.0 */
/* Tells who reads a record that something was written to it. One inotify(7) for all of them. */
#pragma once

#include "base/err.h"
#include "base/loop.h"

struct records_watch;
struct record_file;

/* One that reads a record. Starts zeroed but for wake and arg. */
struct record_reader {
	void (*wake)(struct record_reader *s); /* may end any reader, its own too */
	void *arg;
	/* private */
	struct record_file *file;
	struct record_reader *prev, *next;
};

int records_watch_new(struct loop *loop, struct records_watch **ret, struct err *e);
/* There are no readers any more. */
struct records_watch *records_watch_free(struct records_watch *w);

/* `fd` is the record, opened for reading; it is not needed afterwards. What was written before may
 * have been missed: look at it after this. */
int records_watch_add(struct records_watch *w, struct record_reader *s, int fd, struct err *e);
void records_watch_del(struct record_reader *s); /* nothing, if it was not added */
