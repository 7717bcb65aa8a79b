/* SPDX-License-Identifier: Apache-2.0 */
/* Notifies readers of records of new data, by one inotify(7) for all of them. */
#pragma once

#include "base/err.h"
#include "base/loop.h"

struct records_watch;
struct record_file;

/* A reader of a record. Starts zeroed except for wake and arg. */
struct record_reader {
	void (*wake)(struct record_reader *s); /* may remove any reader, also itself */
	void *arg;
	/* private */
	struct record_file *file;
	struct record_reader *prev, *next;
};

int records_watch_new(struct loop *loop, struct records_watch **ret, struct err *e);
/* All readers must be gone. */
struct records_watch *records_watch_free(struct records_watch *w);

/* `fd` is the record, opened for reading; it is not needed afterwards. Earlier writes are not
 * reported: read the record after this. */
int records_watch_add(struct records_watch *w, struct record_reader *s, int fd, struct err *e);
void records_watch_del(struct record_reader *s); /* does nothing if it was not added */
