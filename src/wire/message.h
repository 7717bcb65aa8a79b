/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages: payloads made of fields. One table lists the fields of each message; a payload is
 * checked against it as a whole before any field is used, so handlers get exactly the fields that
 * the table allows.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "wire/wire.h"

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
	TAG_TARGET, /* target of a move or of a symbolic link */
	TAG_USER,
	TAG_STDIN,
	TAG_COLUMNS,
	TAG_ROWS,
	TAG_RLIMIT, /* 1 byte resource (as in setrlimit(2)), 8 bytes soft, 8 bytes hard */
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
	TAG_LANDLOCK, /* the version in force; 0: none */
	TAG_TIMEOUT,  /* milliseconds; only on the keeper's socket, as are all up to TAG_DENY */
	TAG_NAME,     /* name of a command */
	TAG_DETACH,
	TAG_RECORD, /* a command's number */
	TAG_RULE,   /* egress rule, in policy syntax */
	TAG_DENY,
	TAG_PORT,
	TAG_OWNER,	/* name of the uid of an entry in the sandbox */
	TAG_GROUP,	/* name of the gid */
	TAG_META,	/* "key=value" stored with a file */
	TAG_REPLACE,	/* replace earlier narrowing rules */
	TAG_ON_TIMEOUT, /* enum wire_on_timeout */
	TAG_WANT,	/* enum wire_want */
	TAG_FOLLOW,	/* describe symbolic links by their target */
	TAG_OWNERS, /* pack the whole root, for an image; port: requested by the sandbox's owner */
	TAG_DEADLINE, /* wall clock, milliseconds; 0: none */
	TAG_SEED,     /* for the guest's random number generator */
	TAG_TIME,     /* wall clock, ns */
	TAG_MACHINE,  /* the machine-id, 32 hex digits */
	TAG_NETWORK,  /* network of an address rule: "10.0.0.0/8" */
	TAG_PIDS,     /* maximum number of user processes */
	TAG_HOST,     /* a name or an address to connect to */
	TAG_EGRESS,   /* the sandbox may connect out */
	TAG_LIMIT,    /* enum wire_limit */
	TAG_REQUEST,  /* request id; only on the keeper's socket */
	TAG_CA,	      /* PEM certificate that the sandbox shall trust */
	TAG_MAX,      /* unused numbers in between belong to no message */
};

/* All payloads made of fields. */
enum wire_message {
	MESSAGE_NONE, /* no fields */
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
	MESSAGE_EXEC_CLIENT, /* exec from a client to the keeper */
	MESSAGE_ATTACH,
	MESSAGE_EGRESS,		/* adds a rule */
	MESSAGE_LIFE,		/* deadline, pause, resume */
	MESSAGE_LIFE_NOW,	/* its ACCEPT */
	MESSAGE_STARTED_CLIENT, /* ACCEPT of exec and attach by the keeper */
	MESSAGE_PORT,
	MESSAGE_PORT_CLIENT,
	MESSAGE_CONNECT, /* from the guest: a program has connected to it */
	MESSAGE_ASK,	 /* from the guest: may the name be resolved? */
	MESSAGE_ADOPT,	 /* takes over a command started before the snapshot */
	MESSAGE_SAVE,	 /* requests a snapshot */
	MESSAGE_SAVED,	 /* its ACCEPT */
	MESSAGE_WAKE,
	MESSAGE_LIMIT,
	MESSAGE_TRACE, /* requests trace lines */
	MESSAGE_MAX,
};

/* A bit for each tag. */
typedef unsigned __int128 tag_set;

/* A checked payload; points into the caller's bytes. */
struct fields {
	const uint8_t *data;
	size_t len;
	tag_set present;
};

/* Checks `n` bytes against the table. 0, or -EBADMSG with the fault in `e`. */
int fields_parse(enum wire_message m, const void *data, size_t n, struct fields *ret,
		 struct err *e);

/* The same for an OPEN: one from a client may carry a request id, for any operation. */
int fields_parse_open(enum wire_message m, bool client, const void *data, size_t n,
		      struct fields *ret, struct err *e);

/*
 * Checks our own OPEN before it is sent: to the other side, an invalid one is a protocol error.
 * -EINVAL (or -ENOMEM), and `e` describes the fault to the user who chose the values.
 */
int fields_check_open(enum wire_op op, bool client, const struct buf *b, struct err *e);

bool fields_has(const struct fields *f, enum wire_tag tag);

/* The value of a number, or `otherwise` if the field is missing. */
uint64_t fields_number(const struct fields *f, enum wire_tag tag, uint64_t otherwise);

/*
 * The next value of a tag: start with *pos = 0. False at the end. Values are not NUL-terminated;
 * text and bytes contain no NUL.
 */
bool fields_next(const struct fields *f, enum wire_tag tag, size_t *pos, const char **ret,
		 size_t *ret_n);

/* A NUL-terminated copy of the first value (the caller frees it), or NULL: field missing, or out of
 * memory (sets *oom). */
char *fields_copy(const struct fields *f, enum wire_tag tag, bool *oom);

/*
 * The bytes of all fields with tags from `first` to `last`, as received: fields are in the order of
 * their tags, so these are contiguous. Empty if there is none.
 */
const void *fields_slice(const struct fields *f, enum wire_tag first, enum wire_tag last,
			 size_t *ret_n);

/* Write fields, in the order of the tags; errors stay in the buffer. */
void fields_put_number(struct buf *b, enum wire_tag tag, uint64_t value);
void fields_put_flag(struct buf *b, enum wire_tag tag);
void fields_put_bytes(struct buf *b, enum wire_tag tag, const void *data, size_t n);
void fields_put_text(struct buf *b, enum wire_tag tag, const char *text);

/* Return the message in an OPEN (from the keeper; from a client to the keeper), its ACCEPT, or a
 * MSG; -EBADMSG for an unknown number. */
int message_of_open(uint8_t op, bool client, enum wire_message *ret);
/* The same for requests from a guest to its keeper. */
int message_of_guest_open(uint8_t op, enum wire_message *ret);
int message_of_accept(uint8_t op, bool client, enum wire_message *ret);
int message_of_msg(uint8_t kind, bool from_keeper, enum wire_message *ret);

/* Is this a valid "key=value" for TAG_META? A key is [a-z0-9-]{1,64}. */
bool wire_meta_valid(const char *s, size_t n);

/* Name for messages: "exec". */
const char *wire_op_name(unsigned int op);

/* Name for messages: "not found". */
const char *wire_code_name(uint64_t i);
