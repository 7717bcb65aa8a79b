/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rule files of the output filter. A file has paragraphs; each is one rule, with a line per field:
 *
 *	rule NAME	lower case letters, digits and '-'; first line of the rule
 *	about TEXT	what the rule finds, for people
 *	group WORD	"secrets" (the default) or "pii"
 *	find TEXT	a literal that every match contains; several lines: one of them
 *	match PATTERN	a regular expression, of the part that is described below
 *	caseless	letters of `find` and `match` stand for both cases
 *	part WORD	redact only this part of the match: "word" (the last word), "password"
 *(between the last ':' and the last '@') or "space" (after the last space) tail WORD	also redact
 *the bytes after the match: "token" (letters, digits and ._+/=-) or "pem" (the body of a private
 *key) edge WORD	a letter, digit or '_' beside the match rejects it: on "both" sides (the
 *			default), on the "left", on the "right", or "none"
 *	check WORD	the match must also pass this check: enum filter_check
 *	yes TEXT	a test vector: the rule finds something here
 *	no TEXT		a test vector: the rule finds nothing here
 *
 * Text after '#' at the start of a line is ignored. Vectors know \n, \t, \e, \\ and \`; any other
 * back-tick in them is dropped, so that other scanners do not report the file.
 *
 * A pattern has characters, [classes], (?:groups), '|', '?', {n} and {n,m}. So every match has a
 * maximum length, and no match contains a control character other than a tab, or a byte above 0x7e:
 * the scanner may release everything before such a byte.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum {
	FILTER_RULES_MAX = 1024,
	FILTER_FILE_MAX = 1024 * 1024,
	FILTER_NAME_MAX = 48,
	FILTER_FINDS_MAX = 32, /* in one rule */
	FILTER_FIND_MIN = 1,   /* bytes */
	FILTER_FIND_MAX = 32,
	FILTER_PATTERN_MAX = 512,
	FILTER_WIDTH_MIN = 6, /* bytes in a match */
	FILTER_WIDTH_MAX = 256,
	FILTER_VECTOR_MAX = 1024,
};

enum filter_group {
	FILTER_SECRETS,
	FILTER_PII,
	FILTER_GROUPS,
};
const char *filter_group_name(enum filter_group i);

enum filter_part {
	FILTER_PART_ALL,
	FILTER_PART_WORD,
	FILTER_PART_PASSWORD,
	FILTER_PART_SPACE,
	FILTER_PARTS,
};

enum filter_tail {
	FILTER_TAIL_NONE,
	FILTER_TAIL_TOKEN,
	FILTER_TAIL_PEM,
	FILTER_TAIL_VALUE, /* the rest of a long known value; not in files */
	FILTER_TAILS,
};

enum filter_edge {
	FILTER_EDGE_NONE = 0,
	FILTER_EDGE_LEFT = 1,
	FILTER_EDGE_RIGHT = 2,
	FILTER_EDGE_BOTH = FILTER_EDGE_LEFT | FILTER_EDGE_RIGHT,
};

enum filter_check {
	FILTER_CHECK_NONE,
	FILTER_CHECK_RANDOM,   /* at least one letter, one digit and six different characters */
	FILTER_CHECK_LUHN,     /* check digit of payment cards */
	FILTER_CHECK_IBAN,     /* check digits of ISO 7064, modulo 97 */
	FILTER_CHECK_SSN,      /* no part that is never issued */
	FILTER_CHECK_CPF,      /* the two check digits of Brazil's CPF */
	FILTER_CHECK_EAN,      /* check digit of EAN-13 */
	FILTER_CHECK_VERHOEFF, /* check digit of Verhoeff */
	FILTER_CHECK_DNI,      /* check letter of Spain's DNI */
	FILTER_CHECKS,
};

struct filter_rule {
	const char *name, *about, *match;
	const char *find[FILTER_FINDS_MAX];
	size_t n_find;
	enum filter_group group;
	enum filter_part part;
	enum filter_tail tail;
	enum filter_edge edge;
	enum filter_check check;
	bool caseless;
	bool starts;	 /* each match starts with its literal */
	size_t min, max; /* bytes of a match */
	size_t line;
};

struct filter_vector {
	size_t rule;
	bool yes;
	const char *text; /* as in the file: filter_vector_text() */
	size_t line;
};

struct filter_rules {
	char *text;
	struct filter_rule *rule;
	size_t n;
	struct filter_vector *vector;
	size_t n_vector;
};

/* Reads a rule file; errors name the line. The caller frees *ret. */
int filter_rules_read(const char *text, size_t n, struct filter_rules **ret, struct err *e);
struct filter_rules *filter_rules_free(struct filter_rules *r);
DEFINE_CLEANUP(struct filter_rules *, cleanup_filter_rules, filter_rules_free);
#define _cleanup_filter_rules_ _cleanup_(cleanup_filter_rules)

/* Returns the index of a rule, or r->n. */
size_t filter_rules_find(const struct filter_rules *r, const char *name);

/* Sets on[i] for the rule `name`, or each rule of the group. False: there is neither. */
bool filter_rules_select(const struct filter_rules *r, const char *name, bool *on);

/* Writes the bytes of a vector, at most FILTER_VECTOR_MAX. Returns their number. */
size_t filter_vector_text(const char *text, char ret[static FILTER_VECTOR_MAX]);

/* ---- pattern.c, check.c ---- */

/* Checks a pattern and computes the shortest and the longest match. */
int filter_pattern_width(const char *pattern, size_t *ret_min, size_t *ret_max, struct err *e);

/* Applies a rule's check to the bytes that it would redact. */
bool filter_check_passes(enum filter_check check, const char *s, size_t n);
