/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trace lines show each step of a sandbox's processes, for debugging. HUTCH_LOG=debug and `hutch
 * debug` enable them.
 *
 * TRACE() costs one branch on `trace_on` while tracing is off; the arguments are not evaluated. A
 * build with -Dtrace=false has no trace points.
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
	TRACE_NOTE,    /* a note between warden and keeper was sent or received */
	TRACE_STATE,   /* a new or current state */
	TRACE_VERDICT, /* the policy has decided */
	TRACE_SYSCALL, /* a system call was rejected */
	TRACE_TIME,    /* a step is done, with its duration */
	TRACE_LOG,     /* a line of the process's log */
	TRACE_LOST,    /* lines were dropped here */
	TRACE_KINDS,
};
extern const char *const trace_kind_names[TRACE_KINDS + 1];

enum {
	TRACE_TEXT_MAX = 400,
	TRACE_LINE_MAX = 512, /* with its newline; one write(2) to a pipe is atomic */
	TRACE_ID_MAX = 32,    /* id of a sandbox or request */
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

/* Receives a line. Lines that the sink itself causes are not traced. */
typedef void trace_sink(void *arg, const struct trace_line *line);

#ifdef HUTCH_TRACE
extern bool trace_on;
#else
#define trace_on false
#endif

/* Sets the columns of every line of this process. The texts are copied. */
void trace_set_process(const char *name);
void trace_set_sandbox(const char *id);
void trace_set_request(const char *id);
const char *trace_request(void); /* "": none */

/* Sets where lines go: to a printer (log_trace()) and to `sink`; NULL for none. */
typedef void trace_printer(const struct trace_line *line);
void trace_print_by(trace_printer *print);
void trace_to(trace_sink *sink, void *arg);
bool trace_has_sink(void);

/* `request` NULL means the one of trace_set_request(). Keeps errno. */
void trace_write(enum trace_kind kind, const char *request, const char *fmt, ...) _printf_(3, 4);

/* Traces a log line that is already on stderr. */
void trace_log(const char *text);

/* Forwards a line of another process. */
void trace_pass(const struct trace_line *line);

/* Traces "NAME, 123 us" since the last step of this process. Returns 0, for FAULT(). */
int trace_step(const char *name);

#define TRACE(kind, ...) TRACE_OF(NULL, kind, __VA_ARGS__)
#define TRACE_OF(request, kind, ...)                             \
	do {                                                     \
		if (__builtin_expect(trace_on, false))           \
			trace_write(kind, request, __VA_ARGS__); \
	} while (0)

/* Writes the text of a line, with its newline; returns its length. */
size_t trace_format(const struct trace_line *line, char out[static TRACE_LINE_MAX]);

/* Parses a line of trace_format(), without the newline. 0 or -EINVAL. */
int trace_parse(const char *text, size_t n, struct trace_line *ret);

/* Sets kind and text, from `n` untrusted bytes, escaped and cut. */
void trace_fill(struct trace_line *line, enum trace_kind kind, const char *text, size_t n);

/* A new request id: TRACE_REQUEST hexadecimal digits. */
void trace_new_request(char out[static TRACE_REQUEST + 1]);

/* Assembles lines from pieces of a stream. Cuts lines that are too long. */
struct trace_lines {
	size_t n;
	char text[TRACE_LINE_MAX];
};
void trace_feed(struct trace_lines *l, const char *data, size_t n,
		void (*each)(void *arg, const char *line, size_t n), void *arg);
