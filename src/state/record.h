/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A record: one command of a sandbox and what it printed, in the file cmd-N of its state directory
 * (N = 1, 2, ...). The warden makes the file, the keeper writes it, everybody else reads it at any
 * moment, also while it is written and after the sandbox has ended. Described for others in
 * hutch-state(5); change both.
 *
 * The file is a page of header and blocks of 4,096 bytes. Integers are little-endian, times are
 * nanoseconds. An empty file is a spare that nobody has used yet.
 *
 *   0     struct record_head   what was asked for; written once, before anything else
 *   3072  struct record_slot   what has become of it: two of them, written in turns
 *   3584  struct record_slot
 *   4096  blocks
 *
 * Head and slots end in a checksum. A slot counts if its checksum is right; of two the one with the
 * larger sequence number. So a reader that comes in the middle of a write sees what was before it.
 *
 * Blocks are numbered from 0, as if the file had no end. A block is struct record_block and chunks:
 * struct record_chunk and that many bytes of one stream. A chunk does not cross a block; what is
 * left of a block behind its last chunk, too small for one more, is not used. Chunks are in the
 * order in which the bytes came. The *offset* of a byte counts the output of both streams before
 * it. `end` of the slot says how far chunks go: block * 4096 + bytes of that block. What is before
 * it never changes, as long as its block is not used again.
 *
 * Where a file has reached its limit, at block `head` + `ring`, block i >= head lies where block
 * head + (i - head) % ring was: the first half stays, the second becomes a ring. `first` is the
 * oldest block of the ring that is there. It is written down *before* that block is overwritten: a
 * reader that has read a block and finds afterwards that `first` has not passed it has read the
 * right bytes, and else knows exactly which offset its next byte has: blocks say theirs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

enum {
	RECORD_VERSION = 1,
	RECORD_BLOCK = 4096,
	RECORD_SLOTS = 3072,
	RECORD_SLOT = 512,
	RECORD_BLOCKS = 4096, /* where they begin */
	RECORD_BLOCKS_MIN = 2,
	RECORD_NAME_MAX = 63,
	RECORD_TEXT = 256,
	RECORD_ARGV = 2048,
	RECORD_FILE_NAME = 32,
	RECORDS_MAX = 4096, /* of a sandbox */
};

#define RECORD_NUMBER_MAX UINT32_MAX
#define RECORD_MAGIC	  UINT64_C(0x01646d6368637475) /* "utchcmd\1" */

enum record_state {
	RECORD_UNUSED,
	RECORD_STARTING, /* the guest was asked */
	RECORD_RUNNING,
	RECORD_ENDED,
	RECORD_LOST, /* never in a file: neither ended nor anybody there who would say so */
};
extern const char *const record_state_names[];

enum record_how {
	RECORD_NOT_YET,
	RECORD_EXITED,	 /* value: exit status */
	RECORD_SIGNALED, /* value: signal; a text where the keeper knows why */
	RECORD_CLOSED,	 /* value: an enum wire_code, and a text: it never ran, or the time limit */
	RECORD_HOWS,
};

enum {
	RECORD_INPUT = 1,    /* it has a standard input */
	RECORD_TERMINAL = 2, /* it has a terminal */
	RECORD_CUT = 4,	     /* argv or cwd are shown shortened */
	RECORD_DETACHED = 8, /* nobody waited for its output from the beginning */
};

struct record_head {
	uint64_t magic;
	uint32_t version, flags;
	uint64_t number;
	uint64_t start; /* wall clock */
	uint64_t limit; /* blocks at most */
	uint64_t argv_n, argv_bytes;
	uint64_t argv_hash; /* FNV-1a of all of it with the NULs; tells apart, proves nothing */
	uint64_t shown;	    /* bytes of `argv` that are used */
	char name[RECORD_NAME_MAX + 1];
	char user[72];
	char cwd[512];
	char argv[RECORD_ARGV]; /* the beginning; every argument ends with a NUL */
	char zero[RECORD_SLOTS - 9 * 8 - 64 - 72 - 512 - RECORD_ARGV - 8];
	uint64_t checksum;
};

struct record_slot {
	uint64_t sequence;
	uint32_t state, how;
	uint32_t value, pid;
	uint64_t ended;		    /* wall clock */
	uint64_t bytes[2];	    /* of stdout and stderr, kept or not */
	uint64_t unkept;	    /* of them at the end: could not be written */
	uint64_t end;		    /* of the chunks */
	uint64_t head, ring, first; /* blocks; ring is 0 while nothing was dropped */
	uint64_t user_us, system_us, max_rss_kib;
	char text[RECORD_TEXT + 8];
	char zero[RECORD_SLOT - 14 * 8 - (RECORD_TEXT + 8) - 8];
	uint64_t checksum;
};

struct record_block {
	uint64_t number;
	uint64_t offset; /* of its first byte of output */
	uint64_t magic;
};

struct record_chunk {
	uint8_t stream; /* 1 or 2 */
	uint8_t zero;
	uint16_t length; /* not 0 */
	uint32_t ms;	 /* after the start; the largest number stands for all above it too */
};

static_assert(sizeof(struct record_head) == RECORD_SLOTS, "no holes");
static_assert(sizeof(struct record_slot) == RECORD_SLOT, "no holes");
static_assert(sizeof(struct record_block) == 24 && sizeof(struct record_chunk) == 8, "no holes");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are written as they are");

/* "[a-z0-9][a-z0-9._-]{0,62}" and not a number alone. */
bool record_name_valid(const char *name, size_t n);

/* "cmd-N" */
void record_file_name(uint64_t number, char out[static RECORD_FILE_NAME]);

/* ---- writing: for the keeper, which may open nothing ---- */

struct record {
	int fd; /* owned; -EBADF after its end */
	uint64_t number;
	uint64_t limit; /* blocks */
	uint64_t start; /* clock_mono() */
	bool dirty;	/* the slot is to be written */
	int error;	/* of a write: nothing more is kept */
	char name[RECORD_NAME_MAX + 1];
	struct record_slot slot;
	/* Asked for room for one more block. False: the file is as large as it gets. */
	bool (*grow)(struct record *r, void *arg);
	void *arg;
};

/* Completes `head` (checksum and what is constant) and writes it with the first slot. */
void record_begin(struct record *r, struct record_head *head);

/* Appends output. What cannot be written is counted. record_publish() shows it to readers. */
void record_put(struct record *r, unsigned int stream, const void *data, size_t n, uint64_t now);

/* Writes the slot if something has changed. 0 or -errno: then readers see what was before. */
int record_publish(struct record *r);

/* How large the file is: header and blocks. */
uint64_t record_size(const struct record *r);

/* ---- reading ---- */

struct record_info {
	struct record_head head;
	struct record_slot slot;
};

/*
 * ---- lists ----
 *
 * The pages of headers, one behind the other, of commands that run in a machine while it is saved:
 * the keeper that continues it takes them over. Written and read from where the descriptor is.
 */
int record_list_put(int fd, const struct record_info *i);

/* The next one: 1; 0 at the end; -EBADMSG and so on, as record_read(). */
int record_list_next(int fd, struct record_info *ret, struct err *e);

/*
 * What the header says; texts are terminated. -ENODATA: a spare that was not used yet. -EBADMSG:
 * not a record, or damaged; whoever wrote it may have been anybody.
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
	uint64_t start; /* of the command, wall clock */
	/* private */
	uint64_t block; /* the block that was read, UINT64_MAX: none */
	size_t at, len; /* in it */
	uint64_t pos;	/* the offset of the chunk at `at` */
	char data[RECORD_BLOCK];
};

struct record_piece {
	unsigned int stream; /* 0: a gap of `n` bytes that are not there any more, or never were */
	uint64_t offset;
	uint64_t time; /* wall clock, of the chunk */
	size_t n_data;
	uint64_t n;
	const char *data; /* valid until the next call */
};

/* `offset` may lie behind what there is: it is waited for. */
void record_cursor_init(struct record_cursor *c, int fd, uint64_t offset);

/* The next piece: 1; 0 if there is none yet; -EBADMSG and so on. `info` is read anew. */
int record_next(struct record_cursor *c, struct record_info *info, struct record_piece *ret,
		struct err *e);

/* Bytes of output that are kept no more. */
int record_dropped(int fd, const struct record_info *info, uint64_t *ret, struct err *e);
