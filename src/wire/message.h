/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: payloads made of fields. One table says which fields each message has; a payload is
 * checked against it as a whole before anything looks into it, so whoever handles a message finds
 * what the table promises and nothing else.
 */
#pragma once

#include <stdbool.h>

#include "buf.h"
#include "err.h"
#include "wire.h"

enum wire_tag {
	TAG_VERSION = 1,
	TAG_AGENT,
	TAG_HOSTNAME,
	TAG_READ,
	TAG_WRITE,
	TAG_EXECUTE,
	TAG_ARGV,
	TAG_ENV,
	TAG_CWD,
	TAG_PATH,
	TAG_TARGET, /* of a move; of a symbolic link */
	TAG_USER,
	TAG_STDIN,
	TAG_COLUMNS,
	TAG_ROWS,
	TAG_RLIMIT, /* 1 byte resource (that of setrlimit(2)), 8 bytes soft, 8 bytes hard */
	TAG_OFFSET,
	TAG_LENGTH,
	TAG_MODE,
	TAG_PARENTS,
	TAG_DEPTH,
	TAG_RECURSIVE,
	TAG_PID,
	TAG_NUMBER,
	TAG_EVENT,
	TAG_KIND,
	TAG_SIZE,
	TAG_UID,
	TAG_GID,
	TAG_MTIME,
	TAG_CODE,
	TAG_SIGNAL,
	TAG_USER_US,
	TAG_SYSTEM_US,
	TAG_MAX_RSS,
	TAG_TEXT,
	TAG_LANDLOCK, /* the version that is in force; 0: none */
	TAG_TIMEOUT,  /* milliseconds; only on the keeper's socket, as all to TAG_DENY */
	TAG_NAME,     /* of a command */
	TAG_DETACH,
	TAG_RECORD, /* a command's number */
	TAG_RULE,   /* of what may go out, as a policy writes it */
	TAG_DENY,
	TAG_PORT,
	TAG_OWNER,	/* what the uid of an entry is called in the sandbox */
	TAG_GROUP,	/* and the gid */
	TAG_META,	/* "key=value" that is kept with a file */
	TAG_REPLACE,	/* of rules: what was narrowed before */
	TAG_ON_TIMEOUT, /* enum wire_on_timeout */
	TAG_WANT,	/* enum wire_want */
	TAG_FOLLOW,	/* symbolic links are described by what they lead to */
	TAG_OWNERS,	/* pack the whole root, for an image; of a port: the sandbox's owner asks */
	TAG_DEADLINE,	/* wall clock, milliseconds; 0: none */
	TAG_SEED,	/* for the guest's random numbers */
	TAG_TIME,	/* wall clock, ns */
	TAG_MACHINE,	/* the machine-id, 32 hex digits */
	TAG_NETWORK,	/* that a rule names by address: "10.0.0.0/8" */
	TAG_PIDS,	/* processes of users, at most */
	TAG_HOST,	/* a name or an address to connect to */
	TAG_EGRESS,	/* there is a way out */
	TAG_LIMIT,	/* enum wire_limit */
	TAG_REQUEST,	/* the id of a request; only on the keeper's socket */
	TAG_MAX,	/* numbers between that nobody uses belong to no message */
};

/* Every payload of fields there is. */
enum wire_message {
	MESSAGE_NONE, /* no fields at all */
	MESSAGE_HELLO_KEEPER,
	MESSAGE_HELLO_GUEST,
	MESSAGE_EXEC,
	MESSAGE_READ,
	MESSAGE_WRITE,
	MESSAGE_STAT,
	MESSAGE_LIST,
	MESSAGE_MKDIR,
	MESSAGE_MOVE,
	MESSAGE_REMOVE,
	MESSAGE_WATCH,
	MESSAGE_PACK,
	MESSAGE_UNPACK,
	MESSAGE_STARTED, /* ACCEPT of exec */
	MESSAGE_ENTRY,
	MESSAGE_SIGNAL,
	MESSAGE_RESIZE,
	MESSAGE_EXIT,
	MESSAGE_EVENT,
	MESSAGE_CLOSE,
	MESSAGE_EXEC_CLIENT, /* exec as a client asks the keeper for it */
	MESSAGE_ATTACH,
	MESSAGE_EGRESS,		/* a rule that is added */
	MESSAGE_LIFE,		/* deadline, pause, resume */
	MESSAGE_LIFE_NOW,	/* its ACCEPT */
	MESSAGE_STARTED_CLIENT, /* ACCEPT of exec and attach by the keeper */
	MESSAGE_PORT,
	MESSAGE_PORT_CLIENT,
	MESSAGE_CONNECT, /* of the guest: a program has connected to it */
	MESSAGE_ASK,	 /* of the guest: may the name be resolved? */
	MESSAGE_ADOPT,	 /* a command that was started before the snapshot */
	MESSAGE_SAVE,	 /* a snapshot is wanted */
	MESSAGE_SAVED,	 /* its ACCEPT */
	MESSAGE_WAKE,
	MESSAGE_LIMIT,
	MESSAGE_TRACE, /* lines are wanted */
	MESSAGE_MAX,
};

/* A payload that has been checked; points into the caller's bytes. */
struct fields {
	const uint8_t *data;
	size_t len;
	uint64_t present; /* a bit for each tag */
};

/* Checks `n` bytes against the table. 0, or -EBADMSG with what is wrong. */
int fields_parse(enum wire_message m, const void *data, size_t n, struct fields *ret,
		 struct err *e);

/* The same for an OPEN: that of a client may have the id of its request, whatever it asks for. */
int fields_parse_open(enum wire_message m, bool client, const void *data, size_t n,
		      struct fields *ret, struct err *e);

/*
 * Checks an OPEN that was written here, before it is sent: to the other side it would be a broken
 * protocol. -EINVAL (or -ENOMEM), and `e` says what is wrong in words of whoever chose the values.
 */
int fields_check_open(enum wire_op op, bool client, const struct buf *b, struct err *e);

bool fields_has(const struct fields *f, enum wire_tag tag);

/* The value of a number, or `otherwise` if the field is not there. */
uint64_t fields_number(const struct fields *f, enum wire_tag tag, uint64_t otherwise);

/*
 * The next value of a tag: start with *pos = 0. False when there is no more. Values are not
 * terminated by a NUL; text and bytes hold none.
 */
bool fields_next(const struct fields *f, enum wire_tag tag, size_t *pos, const char **ret,
		 size_t *ret_n);

/* A NUL-terminated copy of the first value (the caller frees it), or NULL: not there, or no memory
 * (-> *oom). */
char *fields_copy(const struct fields *f, enum wire_tag tag, bool *oom);

/*
 * The bytes of all fields with tags from `first` to `last`, as they came: fields are in the order
 * of their tags, so these are one piece. Empty if there is none.
 */
const void *fields_slice(const struct fields *f, enum wire_tag first, enum wire_tag last,
			 size_t *ret_n);

/* Writing, in the order of the tags; errors stay in the buffer. */
void fields_put_number(struct buf *b, enum wire_tag tag, uint64_t value);
void fields_put_flag(struct buf *b, enum wire_tag tag);
void fields_put_bytes(struct buf *b, enum wire_tag tag, const void *data, size_t n);
void fields_put_text(struct buf *b, enum wire_tag tag, const char *text);

/* Which message an OPEN (of the keeper; of a client to the keeper), its ACCEPT, or a MSG carries;
 * -EBADMSG for a number that is none. */
int message_of_open(uint8_t op, bool client, enum wire_message *ret);
/* The same for what a guest may ask of its keeper. */
int message_of_guest_open(uint8_t op, enum wire_message *ret);
int message_of_accept(uint8_t op, bool client, enum wire_message *ret);
int message_of_msg(uint8_t kind, bool from_keeper, enum wire_message *ret);

/* Is this "key=value", as TAG_META has it? A key is [a-z0-9-]{1,64}. */
bool wire_meta_valid(const char *s, size_t n);

/* For messages to people: "exec". */
const char *wire_op_name(unsigned int op);

/* For messages to people: "not found". */
const char *wire_code_name(uint64_t code);
