/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of src/filter only. */
#pragma once

#include <hs/hs.h>

#include "filter/filter.h"

/* One spelling of a known value. */
struct filter_form {
	char *text;
	size_t n;
	bool caseless;
	char name[FILTER_HIT_NAME_MAX];
};

struct filter_forms {
	struct filter_form *form;
	size_t n;
};

/* Adds the spellings of a value: itself, base64 at three alignments, hexadecimal, URL and JSON.
 * 0 or -ENOMEM. */
int filter_forms_add(struct filter_forms *all, const struct filter_value *value);
void filter_forms_done(struct filter_forms *all);

/* A literal of the database. */
struct filter_literal {
	uint32_t index; /* the index of the rule or the form */
	uint32_t n;	/* bytes */
	bool is_form;
};

struct filter {
	const struct filter_rules *rules;
	const bool *on; /* our copy */
	bool *on_copy;
	struct filter_forms forms;
	struct filter_literal *literal;
	size_t n_literal;
	hs_database_t *literals; /* NULL: none */
	hs_database_t *bare;	 /* patterns of rules without literals; NULL: none */
	hs_database_t **pattern; /* by rule; NULL: not needed yet */
	hs_scratch_t *scratch;
	size_t window;	/* bytes of the longest match */
	bool ends[256]; /* bytes that no match contains */
};

/* Compiles the pattern of a rule, unless that is done. 0 or -errno. */
int filter_need_pattern(struct filter *f, size_t rule);

/* A match in the buffer of a stream: [from, to). */
struct span {
	size_t from, to;
	uint32_t index; /* the index of the rule or the form */
	bool is_form;
};

enum {
	SPANS_MAX = 8192,
	REGIONS_MAX = 2048,
};

/* A part of the buffer that the pattern of a rule must search. */
struct region {
	uint32_t rule;
	size_t from, to;
};

struct spans {
	struct span *v;
	size_t n;
	struct region *region;
	size_t n_region;
	uint32_t *last;	     /* by rule: index + 1 of its last region; 0: none */
	uint32_t *last_span; /* by rule: index + 1 of its last span; 0: none */
};

int spans_init(struct spans *s, const struct filter *f);
void spans_done(struct spans *s);

/* Finds all matches in `n` bytes, sorted by their start. 0 or -errno. */
int spans_find(struct filter *f, struct spans *s, const char *data, size_t n);
