/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics: the errors and warnings of a compilation, each with its position. The compiler
 * continues after an error, so that users see all errors at once.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

/* The text of an input file; messages show `label`. */
struct source {
	const char *label;
	const char *text;
	size_t len;
	bool builtin; /* compiled in; `label` is a path in the source tree */
	bool on_disk; /* read from the file `label` */
};

/* A position; lines and columns count from 1. */
struct pos {
	const struct source *src;
	uint32_t line;
	uint32_t column;
};

enum diag_level {
	DIAG_ERROR,
	DIAG_WARNING,
};

struct diag {
	enum diag_level level;
	struct pos pos;
	const char *key;  /* "egress.domains[2]", "" for the file as a whole */
	const char *text; /* the error, and the expected value */
	const char *hint; /* "did you mean 'github'?", or NULL */
};

enum {
	DIAG_MAX = 200
};

struct diags {
	struct arena arena;
	struct diag list[DIAG_MAX];
	size_t n;
	size_t dropped; /* diagnostics past DIAG_MAX */
	size_t errors;	/* includes dropped errors */
	bool oom;	/* memory ran out: diagnostics or results are incomplete */
};

#define _cleanup_diags_ _cleanup_(diags_done)

void diags_done(struct diags *d);

/* Adds an error or a warning. `hint` may be NULL. All text is copied. */
void diag_add(struct diags *d, enum diag_level level, struct pos pos, const char *key,
	      const char *hint, const char *fmt, ...) _printf_(6, 7);

/* Sorts by file, line and column. */
void diags_sort(struct diags *d);

/* Returns 0 without errors, -ENOMEM, or -EINVAL with errors. */
int diags_result(const struct diags *d);

/* Sorts the diagnostics, and returns diags_result() with a message: "LABEL: 2 errors". */
int diags_outcome(struct diags *d, const char *label, struct err *e);

/* Returns `num` with the first error, if any, as the message: for callers that show only one. */
int diags_first(const struct diags *d, int num, struct err *e);

/* Appends "file:line:column: error: key: text; hint", escaped, in one line. */
int diag_format(const struct diag *g, struct buf *b);
