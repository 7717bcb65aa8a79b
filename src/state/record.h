/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record: one command of a sandbox and its output, in the file cmd-N of the sandbox's directory
 * (N = 1, 2, ...). The warden creates the file, the keeper writes it, and other processes read it
 * at any time, also during writes and after the sandbox has ended. hutch-state(5) documents the
 * format; change both.
 *
 * The file is a header of one page and blocks of 4,096 bytes. Integers are little-endian, times are
 * nanoseconds. An empty file is an unused spare.
 *
 *   0     struct record_head   the command; written once, before anything else
 *   3072  struct record_slot   the status: two slots, written alternately
 *   3584  struct record_slot
 *   4096  blocks
 *
 * Head and slots end with a checksum. The valid slot with the larger sequence number counts, so a
 * reader that comes in the middle of a write sees the state before it.
 *
 * Blocks are numbered from 0, as if the file had no end. A block is a struct record_block and
 * chunks, in the order of the output: a struct record_chunk and that many bytes of one stream. A
 * chunk does not cross a block; the rest of a block that is too small for another chunk is unused.
 * The *offset* of a byte is the number of bytes of both streams before it. The slot's `end` is the
 * end of the chunks: block * 4096 + bytes in that block. Bytes before `end` do not change unless
 * their block is reused.
 *
 * When a file reaches its limit, at block `head` + `ring`, its first half stays and the second half
 * becomes a ring: block i >= head is stored in place of block head + (i - head) % ring. `first` is
 * the oldest remaining block of the ring. The writer publishes it *before* it overwrites that
 * block. A reader that has read a block and then finds that `first` has not passed it has read the
 * right bytes. Otherwise it skips to `first` and learns the offset from that block.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
	RECORD_VERSION = 1,
	RECORD_BLOCK = 4096,
	RECORD_SLOTS = 3072,
	RECORD_SLOT = 512,
	RECORD_BLOCKS = 4096, /* position of the first block */
	RECORD_BLOCKS_MIN = 2,
	RECORD_NAME_MAX = 63,
	RECORD_TEXT = 256,
	RECORD_ARGV = 2048,
	RECORD_FILE_NAME = 32,
	RECORDS_MAX = 4096, /* per sandbox */
};

#define RECORD_NUMBER_MAX UINT32_MAX
#define RECORD_MAGIC	  UINT64_C(0x01646d6368637475) /* "utchcmd\1" */

enum record_state {
	RECORD_UNUSED,
	RECORD_STARTING, /* the request was sent to the guest */
	RECORD_RUNNING,
	RECORD_ENDED,
	RECORD_LOST, /* never in a file: not ended, and its keeper is gone */
};
extern const char *const record_state_names[];

enum record_how {
	RECORD_NOT_YET,
	RECORD_EXITED,	 /* value: exit status */
	RECORD_SIGNALED, /* value: signal; text: the reason, if the keeper knows it */
	RECORD_CLOSED,	 /* value: enum wire_code, with a text: it never ran, or timed out */
	RECORD_HOWS,
};

enum {
	RECORD_INPUT = 1,    /* has a standard input */
	RECORD_TERMINAL = 2, /* has a terminal */
	RECORD_CUT = 4,	     /* argv or cwd is truncated */
	RECORD_DETACHED = 8, /* started detached, without a client reading its output */
};

struct record_head {
	uint64_t magic;
	uint32_t version, flags;
	uint64_t number;
	uint64_t start; /* wall clock */
	uint64_t limit; /* in blocks */
	uint64_t argv_n, argv_bytes;
	uint64_t argv_hash; /* FNV-1a of all arguments with their NULs; not cryptographic */
	uint64_t shown;	    /* bytes used in `argv` */
	char name[RECORD_NAME_MAX + 1];
	char user[72];
	char cwd[512];
	char argv[RECORD_ARGV]; /* the first bytes; every argument ends with a NUL */
	char zero[RECORD_SLOTS - 9 * 8 - 64 - 72 - 512 - RECORD_ARGV - 8];
	uint64_t checksum;
};

struct record_slot {
	uint64_t sequence;
	uint32_t state, how;
	uint32_t value, pid;
	uint64_t ended;		    /* wall clock */
	uint64_t bytes[2];	    /* length of stdout and stderr, with lost output */
	uint64_t unkept;	    /* lost bytes at the end: writing failed */
	uint64_t end;		    /* end of the chunks */
	uint64_t head, ring, first; /* blocks; ring is 0 until output is dropped */
	uint64_t user_us, system_us, max_rss_kib;
	char text[RECORD_TEXT + 8];
	char zero[RECORD_SLOT - 14 * 8 - (RECORD_TEXT + 8) - 8];
	uint64_t checksum;
};

struct record_block {
	uint64_t number;
	uint64_t offset; /* offset of the block's first byte of output */
	uint64_t magic;
};

struct record_chunk {
	uint8_t stream; /* 1 or 2 */
	uint8_t zero;
	uint16_t length; /* not 0 */
	uint32_t ms;	 /* time since the start; saturates */
};

static_assert(sizeof(struct record_head) == RECORD_SLOTS, "no holes");
static_assert(sizeof(struct record_slot) == RECORD_SLOT, "no holes");
static_assert(sizeof(struct record_block) == 24 && sizeof(struct record_chunk) == 8, "no holes");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are written as they are");

/* Valid: "[a-z0-9][a-z0-9._-]{0,62}", but not digits only. */
bool record_name_valid(const char *name, size_t n);

/* "cmd-N" */
void record_file_name(uint64_t number, char out[static RECORD_FILE_NAME]);

/* ---- writing: for the keeper, which cannot open files ---- */

struct record {
	int fd; /* owned; -EBADF after the command's end */
	uint64_t number;
	uint64_t limit; /* blocks */
	uint64_t start; /* clock_mono() */
	bool dirty;	/* the slot must be written */
	int error;	/* a write failed: output is no longer kept */
	char name[RECORD_NAME_MAX + 1];
	struct record_slot slot;
	/* May the file grow by one block? May be NULL: yes, up to `limit`. */
	bool (*grow)(struct record *r, void *arg);
	void *arg;
};

/* Completes `head` (constants and checksum) and writes it with the first slot. */
void record_begin(struct record *r, struct record_head *head);

/* Appends output, and counts lost bytes. Readers see it after record_publish(). */
void record_put(struct record *r, unsigned int stream, const void *data, size_t n, uint64_t now);

/* Writes the slot if it has changed. Returns 0 or -errno; then readers see the old state. */
int record_publish(struct record *r);

/* Size of the file: header and blocks. */
uint64_t record_size(const struct record *r);

/* ---- reading ---- */

struct record_info {
	struct record_head head;
	struct record_slot slot;
};

/*
 * ---- lists ----
 *
 * The header pages of the commands that run in a VM while it is saved; the keeper that resumes the
 * VM takes them over. Written and read at the descriptor's current position.
 */
int record_list_put(int fd, const struct record_info *i);

/* Reads the next page: 1, 0 at the end, or errors as record_read(). */
int record_list_next(int fd, struct record_info *ret, struct err *e);

/*
 * Reads and checks the header; its strings are terminated. -ENODATA: an unused spare. -EBADMSG: not
 * a record, or damaged. The contents are untrusted: a compromised keeper may have written them.
 */
int record_read(int fd, struct record_info *ret, struct err *e);

static inline uint64_t record_bytes(const struct record_info *i)
{
	return i->slot.bytes[0] + i->slot.bytes[1];
}

/* A position in the output. */
struct record_cursor {
	int fd; /* not owned */
	uint64_t offset;
	uint64_t start; /* start of the command, wall clock */
	/* private */
	uint64_t block; /* number of the loaded block; UINT64_MAX: none */
	size_t at, len; /* position in it, and its loaded length */
	uint64_t pos;	/* offset of the chunk at `at` */
	char data[RECORD_BLOCK];
};

struct record_piece {
	unsigned int stream; /* 0: a gap of `n` dropped or lost bytes */
	uint64_t offset;
	uint64_t time; /* wall clock time of the chunk */
	size_t n_data;
	uint64_t n;
	const char *data; /* valid until the next call */
};

/* `offset` may be beyond the current end: record_next() then returns 0 until it is reached. */
void record_cursor_init(struct record_cursor *c, int fd, uint64_t offset);

/* Reads the next piece and updates `info`: 1, 0 if there is none yet, or errors as record_read().
 */
int record_next(struct record_cursor *c, struct record_info *info, struct record_piece *ret,
		struct err *e);

/* Number of output bytes that were dropped or lost. */
int record_dropped(int fd, const struct record_info *info, uint64_t *ret, struct err *e);
