/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by hostile agents. They write frames of the guest channel byte by byte, so that any field
 * can be wrong.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
	HEADER = 12,
	PAYLOAD_MAX = 65536,
};

enum {
	HELLO = 1,
	PING,
	PONG,
	OPEN,
	ACCEPT,
	DATA,
	END, /* not EOF: stdio.h defines it */
	CREDIT,
	MSG,
	CLOSE,
	SLEEP,
	ASLEEP,
};

enum {
	TAG_VERSION = 1,
	TAG_AGENT = 2,
	TAG_ARGV = 7,
	TAG_PID = 23,
	TAG_CODE = 31,
	TAG_SIGNAL = 32,
	TAG_USER_US = 33,
	TAG_SYSTEM_US = 34,
	TAG_RSS = 35,
	TAG_TEXT = 36,
	TAG_LANDLOCK = 37,
	EXIT = 3,
	STDOUT = 1,
};

struct payload {
	unsigned char data[1024];
	size_t n;
};

extern int channel;
extern unsigned char bytes[PAYLOAD_MAX]; /* payload to send */

/* Returns the text after the last NUL byte of the running program's own file. */
const char *mode_of(const char *path);

void forever(void);

/* Blocks for ever once the channel is closed: the tests check that the host kills the agent. */
void put(const void *data, size_t n);
void put_head(uint32_t length, uint32_t ch, int type, int sub, int zero);
void frame(uint32_t ch, int type, int sub, const void *data, size_t n);
void frame_of(uint32_t ch, int type, int sub, const struct payload *p);

void add_bytes(struct payload *p, int tag, const void *value, size_t n);
void add_number(struct payload *p, int tag, uint64_t value);

/* Messages of a well-behaved agent. */
void say_hello(const char *name, uint64_t version);
void say_accepted(uint32_t ch);
void say_exit(uint32_t ch, int with_code, int with_signal);
void say_closed(uint32_t ch, uint64_t code, const char *text);

/* Sends random bytes for ever. */
void say_garbage(void);
