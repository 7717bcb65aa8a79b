/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Diagnostics: every error and warning of a compilation, each with its position. The compiler goes
 * on after an error so that a person sees all of them at once.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "arena.h"
#include "buf.h"
#include "err.h"

/* A file that takes part: text given by the caller, shown under `label`. */
struct source {
	const char *label;
	const char *text;
	size_t len;
	bool builtin; /* compiled in; `label` is a path in the source tree */
	bool on_disk; /* read from the file `label` */
};

/* Where something stands; lines and columns count from 1. */
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
	const char *text; /* what is wrong and what was expected */
	const char *hint; /* "did you mean 'github'?", NULL if there is nothing to say */
};

enum {
	DIAG_MAX = 200
};

struct diags {
	struct arena arena;
	struct diag list[DIAG_MAX];
	size_t n;
	size_t dropped; /* past DIAG_MAX */
	size_t errors;	/* of all, also dropped ones */
	bool oom;	/* something could not be noted, or made, for lack of memory */
};

#define _cleanup_diags_ _cleanup_(diags_done)

void diags_done(struct diags *d);

/* Notes an error or a warning. `hint` may be NULL. Text is copied. */
void diag_add(struct diags *d, enum diag_level level, struct pos pos, const char *key,
	      const char *hint, const char *fmt, ...) _printf_(6, 7);

/* Sorts by file, line and column, so that the order is the reader's. */
void diags_sort(struct diags *d);

/* 0 if nothing stands against the result, -ENOMEM, or -EINVAL if there were errors. */
int diags_result(const struct diags *d);

/* The same as an error, "LABEL: 2 errors"; sorts them for whoever shows them. */
int diags_outcome(struct diags *d, const char *label, struct err *e);

/* `num` with the first error in full, where there is one: for whoever has room for one. */
int diags_first(const struct diags *d, int num, struct err *e);

/* "file:line:column: error: key: text; hint", escaped, one line. */
int diag_format(const struct diag *g, struct buf *b);
