/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files of process.Process. A command is known by its record, from which its output
 * is read. Requests to a command go over a line, a call to the keeper. Each such request is an
 * errand; the errands of a line run in order of arrival.
 */
#pragma once

#include "envd/records-watch.h"
#include "envd/rpc.h"
#include "state/record.h"

enum {
	PROCESS_REPLAY_S = 30, /* how long the end of a command is repeated */
};

/* ---- find ---- */

/* "Selector": a pid, or a tag, which is the name of a command. */
struct selector {
	uint32_t pid;
	const char *tag; /* NULL: by pid */
};

/* Reads the member `process` of a message. -EINVAL. The tag belongs to the message. */
int selector_read(const json_t *message, struct selector *ret, struct err *e);
bool selector_matches(const struct selector *s, uint32_t pid, const char *name);

/* An open record. */
struct found {
	int fd;
	struct record_info info;
};

#define FOUND_INIT           \
	{                    \
		.fd = -EBADF \
	}
#define _cleanup_found_ _cleanup_(found_close)
static inline void found_close(struct found *f)
{
	f->fd = fd_close(f->fd);
}

int record_open(struct box *b, uint64_t number, struct found *ret, struct err *e);

/* Finds the newest command that runs or has just ended; with `all`, any kept one. -ENOENT. */
int command_find(struct box *b, const struct selector *s, bool all, struct found *ret,
		 struct err *e);

/* Lists running commands, each {pid, config, tag}; NULL with `e`. */
json_t *command_list(struct box *b, struct err *e);

/* A box's data about its commands, allocated on first use. NULL: out of memory. */
struct line;
struct commands {
	struct line *lines;
	uint64_t *numbers; /* records that run, will run, or have just ended; ascending */
	size_t n;
	uint64_t high; /* all numbers up to it are known */
};
struct commands *commands_of(struct box *b);
void commands_drop(struct box *b);

/* ---- lines ---- */

struct errand {
	struct request *r;
	/* Signal and size are sent as a message, all else as input. */
	enum wire_msg msg;	 /* 0: input */
	unsigned int number;	 /* the signal */
	unsigned int cols, rows; /* terminal size */
	char *data;		 /* owned */
	size_t n, sent;
	bool eof;
	void (*done)(struct errand *e);
	/* private */
	struct line *line;
	struct errand *next;
};

/* Called once the keeper has answered an exec. */
struct start_ops {
	void (*started)(struct request *r, const struct line *l);
	void (*refused)(struct request *r, enum wire_code code, const char *text);
};

struct line {
	struct commands *of;
	struct call *call;
	uint64_t record; /* 0: unknown */
	uint32_t pid;
	char name[RECORD_NAME_MAX + 1];
	bool accepted, input, terminal;
	bool eof;	/* no input may follow */
	bool transient; /* closes after its last errand */
	struct errand *errands;
	struct request *starter; /* waits for the result of the start */
	const struct start_ops *start;
	struct line *prev, *next;
};

/* Starts a command with the fields of an exec. `r` is answered by like->start. */
int line_exec(struct request *r, const struct buf *fields, const struct line *like,
	      struct line **ret, struct err *e);

/* Sends `e` to the command of `s`, over an existing or new line. Afterwards the errand is on its
 * way, or `e->r` has been answered. */
void errand_send(struct errand *e, const struct selector *s);
void errand_cancel(struct errand *e);

/* Ends a request whose sandbox cannot be reached. */
void process_unreachable(struct request *r, const struct err *e);

/* ---- output ---- */

/*
 * Makes `r` a stream of the record in `f` (taken): start, data from `offset` on, end. With
 * `offsets` each piece of data includes its offset.
 */
void output_begin(struct request *r, struct found *f, uint32_t pid, uint64_t offset, bool offsets);

/* ---- reading messages ---- */

/* Returns a member, or NULL if it is missing or null. */
const json_t *member(const json_t *object, const char *key);

/* Read texts and whole numbers (also as text); 0 with *ret unchanged if missing. -EINVAL. */
int member_text(const json_t *object, const char *key, const char **ret, struct err *e);
int member_number(const json_t *object, const char *key, uint64_t max, uint64_t *ret,
		  struct err *e);
int member_flag(const json_t *object, const char *key, bool *ret, struct err *e);
int member_object(const json_t *object, const char *key, const json_t **ret, struct err *e);

/* Reads {"pty":{"size":{"cols":80,"rows":24}}}; these are also the defaults for 0. */
int size_read(const json_t *message, unsigned int *ret_cols, unsigned int *ret_rows, struct err *e);

/* "Input", in the member of that name. */
int input_read(const json_t *message, struct errand *e, struct err *err);

/* ---- the methods ---- */
void process_send_input(struct request *r);
void process_stream_input(struct request *r);
void process_close_stdin(struct request *r);
void process_send_signal(struct request *r);
void process_update(struct request *r);

extern const struct route envd_process_routes[];
