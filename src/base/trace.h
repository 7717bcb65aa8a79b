/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace lines: what each process of a sandbox does, step by step, for a person who looks for a
 * fault. HUTCH_LOG=debug and `hutch debug` turn them on.
 *
 * TRACE() costs one branch on `trace_on` while nobody looks; the arguments are not evaluated. A
 * build with -Dtrace=false has no trace points at all.
 *
 * A line never holds the contents of DATA, values of variables, secrets or arguments of commands.
 * Its text is escaped and cut to TRACE_TEXT_MAX bytes, so bytes from a guest cannot forge a line.
 *
 * A line as text has six columns: monotonic time in seconds, process, sandbox, request, kind, text.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/util.h"

enum trace_kind {
	TRACE_FRAME,   /* a frame of the wire protocol was sent or received */
	TRACE_NOTE,    /* the same for a note between warden and keeper */
	TRACE_STATE,   /* something has changed its state, or is in this state now */
	TRACE_VERDICT, /* the policy has decided */
	TRACE_SYSCALL, /* a system call was refused */
	TRACE_TIME,    /* a step is done, and how long it took */
	TRACE_LOG,     /* a line of the process's log */
	TRACE_LOST,    /* lines were dropped here */
	TRACE_KINDS,
};
extern const char *const trace_kind_names[TRACE_KINDS + 1];

enum {
	TRACE_TEXT_MAX = 400,
	TRACE_LINE_MAX = 512, /* with its newline: one write(2) to a pipe is whole */
	TRACE_ID_MAX = 32,    /* of a sandbox, of a request */
	TRACE_REQUEST = 16,   /* digits of a request id that we make */
};

struct trace_line {
	uint64_t us; /* CLOCK_MONOTONIC */
	enum trace_kind kind;
	char process[16];
	char sandbox[TRACE_ID_MAX + 1]; /* "": none */
	char request[TRACE_ID_MAX + 1]; /* "": none */
	char text[TRACE_TEXT_MAX + 1];	/* escaped */
};

/* Takes a line. Lines that it causes itself are not traced. */
typedef void trace_sink(void *arg, const struct trace_line *line);

#ifdef HUTCH_TRACE
extern bool trace_on;
#else
#define trace_on false
#endif

/* What every line of this process says. The texts are copied. */
void trace_set_process(const char *name);
void trace_set_sandbox(const char *id);
void trace_set_request(const char *id);
const char *trace_request(void); /* "": none */

/* Where lines go: to what prints them (log_trace()), and to `sink`; NULL for none. */
typedef void trace_printer(const struct trace_line *line);
void trace_print_by(trace_printer *print);
void trace_to(trace_sink *sink, void *arg);
bool trace_has_sink(void);

/* `request` NULL: that of trace_set_request(). errno stays. */
void trace_write(enum trace_kind kind, const char *request, const char *fmt, ...) _printf_(3, 4);

/* A line of the log, which stands on stderr already. */
void trace_log(const char *text);

/* A line of another process. */
void trace_pass(const struct trace_line *line);

/* "NAME, 123 us" since the last step of this process. Returns 0, for FAULT(). */
int trace_step(const char *name);

#define TRACE(kind, ...) TRACE_OF(NULL, kind, __VA_ARGS__)
#define TRACE_OF(request, kind, ...)                             \
	do {                                                     \
		if (__builtin_expect(trace_on, false))           \
			trace_write(kind, request, __VA_ARGS__); \
	} while (0)

/* The text of a line, with its newline; its length. */
size_t trace_format(const struct trace_line *line, char out[static TRACE_LINE_MAX]);

/* Reads what trace_format() writes, without the newline. 0, or -EINVAL: it is something else. */
int trace_parse(const char *text, size_t n, struct trace_line *ret);

/* Fills in kind and text, with `n` bytes from anybody, escaped and cut. */
void trace_fill(struct trace_line *line, enum trace_kind kind, const char *text, size_t n);

/* A new request id: TRACE_REQUEST hexadecimal digits. */
void trace_new_request(char out[static TRACE_REQUEST + 1]);

/* Puts lines together from pieces of a stream. One that is too long is cut. */
struct trace_lines {
	size_t n;
	char text[TRACE_LINE_MAX];
};
void trace_feed(struct trace_lines *l, const char *data, size_t n,
		void (*each)(void *arg, const char *line, size_t n), void *arg);
