/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers and limits of the guest channel; PROTOCOL.md explains them. */
#pragma once

#include <stdint.h>

enum {
	WIRE_VERSION = 1,
	WIRE_HEADER = 12,
	WIRE_PAYLOAD_MAX = 64 * 1024,
	WIRE_OPEN_MAX = 1024 * 1024, /* payload of an OPEN from the keeper */
	WIRE_CHANNELS_MAX = 1024,    /* open at the same time, for each opener */
	WIRE_STREAMS = 3,
	WIRE_CREDIT_START = 256 * 1024,
	WIRE_CREDIT_MAX = 1024 * 1024, /* maximum at any time */
	WIRE_TEXT_MAX = 256,	       /* text in a CLOSE */
	WIRE_SEED = 32,
	WIRE_REQUEST_MAX = 32, /* request id */
	WIRE_CA_MAX = 4096,    /* PEM certificate in a HELLO */
	WIRE_META_MAX = 32,    /* entries per file */
	WIRE_META_KEY_MAX = 64,
	WIRE_META_VALUE_MAX = 1024,
	WIRE_META_BYTES = WIRE_META_KEY_MAX + 1 + WIRE_META_VALUE_MAX,
};

enum wire_type {
	WIRE_HELLO = 1,
	WIRE_PING,
	WIRE_PONG,
	WIRE_OPEN,
	WIRE_ACCEPT,
	WIRE_DATA,
	WIRE_EOF,
	WIRE_CREDIT,
	WIRE_MSG,
	WIRE_CLOSE,
	WIRE_SLEEP,  /* keeper: a snapshot is about to be taken */
	WIRE_ASLEEP, /* guest: all its frames have been sent */
	WIRE_WAKE,   /* keeper: continue as the same sandbox */
	WIRE_TYPE_MAX,
};

enum wire_op {
	WIRE_OP_EXEC = 1,
	WIRE_OP_READ,
	WIRE_OP_WRITE,
	WIRE_OP_STAT,
	WIRE_OP_LIST,
	WIRE_OP_MKDIR,
	WIRE_OP_MOVE,
	WIRE_OP_REMOVE,
	WIRE_OP_WATCH,
	WIRE_OP_PACK,
	WIRE_OP_UNPACK,
	WIRE_OP_ATTACH, /* from a client to the keeper; see message_of_open() */
	WIRE_OP_EGRESS, /* likewise */
	WIRE_OP_LIFE,	/* likewise */
	WIRE_OP_PORT,
	WIRE_OP_CONNECT, /* from a guest with its own kernel: see message_of_guest_open() */
	WIRE_OP_ASK,	 /* likewise */
	WIRE_OP_ADOPT,
	WIRE_OP_SAVE,  /* from a client to the keeper */
	WIRE_OP_TRACE, /* from a client to the keeper, and from the keeper to the guest */
	WIRE_OP_MAX,
};

enum wire_msg {
	WIRE_MSG_SIGNAL = 1,
	WIRE_MSG_RESIZE,
	WIRE_MSG_EXIT,
	WIRE_MSG_ENTRY,
	WIRE_MSG_EVENT,
	WIRE_MSG_LIMIT,
	WIRE_MSG_MAX,
};

enum wire_code {
	WIRE_DONE,
	WIRE_INVALID,
	WIRE_NOT_FOUND,
	WIRE_EXISTS,
	WIRE_PERMISSION,
	WIRE_NOT_DIRECTORY,
	WIRE_IS_DIRECTORY,
	WIRE_NOT_EMPTY,
	WIRE_NO_SPACE,
	WIRE_TOO_MANY,
	WIRE_NO_USER,
	WIRE_CANNOT_EXECUTE,
	WIRE_IO,
	WIRE_UNSUPPORTED,
	WIRE_GONE,
	WIRE_TIMEOUT, /* sent by the keeper to its clients, never by a guest */
	WIRE_CODE_MAX,
};

enum wire_entry_kind {
	WIRE_FILE = 1,
	WIRE_DIRECTORY,
	WIRE_SYMLINK,
	WIRE_OTHER,
};

/* The wanted or actual state of a sandbox: `want`. */
enum wire_want {
	WIRE_PAUSED = 1,
	WIRE_RUNNING,
};

/* The purpose of a snapshot: `want` of save. */
enum wire_save {
	WIRE_SAVE_KEEP,
	WIRE_SAVE_SUSPEND = WIRE_PAUSED, /* the sandbox ends, to be resumed from it */
	WIRE_SAVE_FORK = WIRE_RUNNING,	 /* copies start at once; deleted afterwards */
};

/* The effect of the deadline: `on_timeout`. */
enum wire_on_timeout {
	WIRE_TIMEOUT_ENDS = 1,
	WIRE_TIMEOUT_PAUSES,
};

/* A limit that users of a guest with its own kernel have reached: `limit`. */
enum wire_limit {
	WIRE_LIMIT_MEMORY = 1, /* processes were killed */
	WIRE_LIMIT_PIDS,       /* forks were refused */
	WIRE_LIMIT_DISK,       /* it is full */
	WIRE_LIMIT_INODES,
};

enum wire_event {
	WIRE_CREATED = 1,
	WIRE_WRITTEN,
	WIRE_REMOVED,
	WIRE_RENAMED,
	WIRE_ATTRIBUTES,
	WIRE_LOST,
};
