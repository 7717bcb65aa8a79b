/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the readers of read-value.c and read-list.c share: where they are in a file, and how they
 * complain. A reader turns a node into a field, or notes what is wrong with it and leaves the field
 * alone; nobody stops at an error, so that all of them are reported.
 */
#pragma once

#include "policy.h"
#include "schema.h"
#include "yaml-tree.h"

enum {
	READING_PATH_MAX = 256,
	READING_EXPECTS_MAX = 400, /* "one of: a, b, c" */
	READING_FOUND_MAX = 40,	   /* of a wrong value, in a message */
};

struct reading {
	struct policy *p;
	struct policy_file *f;
	struct diags *d;
	char path[READING_PATH_MAX]; /* of the node at hand: egress.domains[2] */
	uint32_t index;		     /* of the list item at hand */
};

/*
 * Appends ".name", or "[index]" where name is NULL, to the path; the returned length takes it away
 * again.
 */
size_t reading_enter(struct reading *rd, const char *name, size_t index);
void reading_leave(struct reading *rd, size_t was);

/* Notes an error at `pos` under the current path. */
void reading_wrong(struct reading *rd, struct pos pos, const char *hint, const char *fmt, ...)
	_printf_(4, 5);

/* "expected X, found Y" for a node. */
void reading_wrong_kind(struct reading *rd, const struct yaml_node *n, const char *expected);

/* Notes that the key of `n` is none of `keys`, and which was perhaps meant. */
void reading_unknown_key(struct reading *rd, const struct key *keys, const struct yaml_node *n);

/* What key `k` expects, with its words if it has some: "one of: container, gvisor, microvm". */
const char *reading_expects(const struct key *k, char *out, size_t n);

/* An error if the text looks like a credential. */
void reading_check_credential(struct reading *rd, const struct yaml_node *n);

/* "did you mean 'x'?" in a buffer of the caller's; NULL where there is no word. */
const char *reading_hint(const char *word, char *out, size_t n);

/* "a, b, c" of a NULL-terminated list, without empty words. */
void reading_join(const char *const *words, char *out, size_t n);

/* The text of a scalar that says something; NULL, and an error, for anything else. */
const char *reading_scalar(struct reading *rd, const struct yaml_node *n, const char *expected);

/* True, or an error. */
bool reading_is_kind(struct reading *rd, const struct yaml_node *n, enum yaml_kind kind,
		     const char *expected);

/* A copy in the policy's arena; NULL, noted, without memory. */
char *reading_keep(struct reading *rd, const char *s);

/* Makes room for one more item of `size` bytes in an arena list; NULL, noted, when there is none.
 */
void *reading_grow(struct reading *rd, void *v, size_t n, size_t *cap, size_t size);

/*
 * A free place at the end of a list with members v, n and cap; NULL without memory. The caller
 * counts n up.
 */
#define list_slot(rd, list)                                                                     \
	({                                                                                      \
		__typeof__((list)->v) _v = reading_grow(rd, (list)->v, (list)->n, &(list)->cap, \
							sizeof((list)->v[0]));                  \
		if (_v)                                                                         \
			(list)->v = _v;                                                         \
		_v ? &_v[(list)->n] : NULL;                                                     \
	})

/* One reader a type of key, as schema.h describes them; several types share one. */
typedef void reader_fn(struct reading *rd, const struct key *k, const struct yaml_node *n,
		       void *field);

reader_fn read_name, read_text, read_word, read_word_set, read_number, read_path;
reader_fn read_path_list, read_package_list, read_text_list, read_port_list, read_preset_list,
	read_rules;
reader_fn read_host_list, read_env, read_secrets, read_files;
reader_fn read_section; /* read.c */

/* What reads a value of this type. */
reader_fn *key_type_reader(enum key_type type);

/* The canonical text of an absolute path in `out`; NULL, and an error, for anything else. */
const char *reading_path(struct reading *rd, const struct yaml_node *n, char *out, size_t size);

enum {
	READING_PATH_TEXT_MAX = 1024
};
