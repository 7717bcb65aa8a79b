/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of process.Process have in common. A command is known by its record; what it
 * prints is read from there (output). What is said to it goes by a line, which is a call to the
 * keeper; each request that has something to say is an errand, and errands of a line are done in
 * the order in which they came.
 */
#pragma once

#include "envd/records-watch.h"
#include "envd/rpc.h"
#include "state/record.h"

enum {
	PROCESS_REPLAY_S = 30, /* the end of a command is told again for so long */
};

/* ---- find ---- */

/* "Selector": a pid, or a tag, which is the name of a command. */
struct selector {
	uint32_t pid;
	const char *tag; /* NULL: by pid */
};

/* The member `process` of a message. -EINVAL. The tag belongs to the message. */
int selector_read(const json_t *message, struct selector *ret, struct err *e);
bool selector_matches(const struct selector *s, uint32_t pid, const char *name);

/* A record that was found. */
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

/* The newest of those that run or have ended in the last seconds; all that are kept if `all`.
 * -ENOENT. */
int command_find(struct box *b, const struct selector *s, bool all, struct found *ret,
		 struct err *e);

/* Those that run, each {pid, config, tag}; NULL with `e`. */
json_t *command_list(struct box *b, struct err *e);

/* What a box knows of its commands, made when it is needed. NULL: no memory. */
struct line;
struct commands {
	struct line *lines;
	uint64_t *numbers; /* of records that run, will run, or have ended just now; ascending */
	size_t n;
	uint64_t high; /* there is no other below it */
};
struct commands *commands_of(struct box *b);
void commands_drop(struct box *b);

/* ---- lines ---- */

struct errand {
	struct request *r;
	/* Signal and size go as a message, all else is input. */
	enum wire_msg msg;	 /* 0: input */
	unsigned int number;	 /* of a signal */
	unsigned int cols, rows; /* of a terminal */
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
	uint64_t record; /* 0: not known yet */
	uint32_t pid;
	char name[RECORD_NAME_MAX + 1];
	bool accepted, input, terminal;
	bool eof;	/* nothing may follow */
	bool transient; /* goes with its last errand */
	struct errand *errands;
	struct request *starter; /* waits for what becomes of it */
	const struct start_ops *start;
	struct line *prev, *next;
};

/* Starts a command: `fields` are those of an exec. `r` is answered by like->start. */
int line_exec(struct request *r, const struct buf *fields, const struct line *like,
	      struct line **ret, struct err *e);

/* What `e` has to say, to the command of `s`: by the line there is, or one that is made. From here
 * on the errand is on its way, or `e->r` has been answered. */
void errand_send(struct errand *e, const struct selector *s);
void errand_cancel(struct errand *e);

/* Ends a request whose box cannot be asked. */
void process_unreachable(struct request *r, const struct err *e);

/* ---- output ---- */

/*
 * Makes `r` a stream of what the record in `f` (taken) says: start, data from `offset` on, end.
 * With `offsets` each piece of data says its own.
 */
void output_begin(struct request *r, struct found *f, uint32_t pid, uint64_t offset, bool offsets);

/* ---- reading messages ---- */

/* A member, or NULL if it is not there or null. */
const json_t *member(const json_t *object, const char *key);

/* Texts and whole numbers (also as text); 0 with *ret unchanged where there is none. -EINVAL. */
int member_text(const json_t *object, const char *key, const char **ret, struct err *e);
int member_number(const json_t *object, const char *key, uint64_t max, uint64_t *ret,
		  struct err *e);
int member_flag(const json_t *object, const char *key, bool *ret, struct err *e);
int member_object(const json_t *object, const char *key, const json_t **ret, struct err *e);

/* {"pty":{"size":{"cols":80,"rows":24}}}, which is what a size of 0 stands for. */
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
