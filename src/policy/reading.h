/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the readers in read-value.c, read-list.c and read-files.c: the position in a file and
 * error reporting. A reader converts a node into a field, or reports an error and leaves the field
 * unchanged. Reading continues after an error, so that all errors are reported at once.
 */
#pragma once

#include "policy/policy.h"
#include "policy/schema.h"
#include "policy/yaml-tree.h"

enum {
	READING_PATH_MAX = 256,
	READING_EXPECTS_MAX = 400, /* "one of: a, b, c" */
	READING_FOUND_MAX = 40,	   /* bytes of a wrong value shown in a message */
};

struct reading;
typedef void reader_fn(struct reading *rd, const struct key *k, const struct yaml_node *n,
		       void *field);

struct reading {
	struct policy *p;
	struct policy_file *f;
	struct diags *d;
	reader_fn *const *readers;   /* for each type of key */
	char path[READING_PATH_MAX]; /* path of the current node: egress.domains[2] */
	uint32_t index;		     /* index of the current list item */
};

/*
 * Appends ".name", or "[index]" if name is NULL, to the path. Pass the returned length to
 * reading_leave(), which removes it again.
 */
size_t reading_enter(struct reading *rd, const char *name, size_t index);
void reading_leave(struct reading *rd, size_t was);

/* Reports an error at `pos` under the current path. */
void reading_wrong(struct reading *rd, struct pos pos, const char *hint, const char *fmt, ...)
	_printf_(4, 5);

/* Reports "expected X, found Y" for a node. */
void reading_wrong_kind(struct reading *rd, const struct yaml_node *n, const char *expected);

/* The key of that name, or NULL. */
const struct key *reading_key(const struct key *keys, const char *name);

/* Reports that `keys` does not contain the key of `n`, with the closest one as a hint. */
void reading_unknown_key(struct reading *rd, const struct key *keys, const struct yaml_node *n);

/* Reads one value of a mapping into the field of its key, relative to `base`; an unknown key is an
 * error. */
void reading_member(struct reading *rd, const struct key *keys, const struct yaml_node *n,
		    void *base);

/* Reports required keys that the mapping lacks. */
void reading_check_required(struct reading *rd, const struct key *keys,
			    const struct yaml_node *map);

/* Describes valid values of `k`, with its words if any: "one of: container, gvisor, microvm". */
const char *reading_expects(const struct key *k, char *out, size_t n);

/* Reports an error if the text looks like a credential. */
void reading_check_credential(struct reading *rd, const struct yaml_node *n);

/* Writes "did you mean 'x'?" to the caller's buffer; returns NULL if `word` is NULL. */
const char *reading_hint(const char *word, char *out, size_t n);

/* Writes a NULL-terminated list as "a, b, c", without empty words. */
void reading_join(const char *const *words, char *out, size_t n);

/* Returns the text of a non-empty scalar; reports an error and returns NULL for other nodes. */
const char *reading_scalar(struct reading *rd, const struct yaml_node *n, const char *expected);

/* Returns true if the node is of this kind; otherwise reports an error. */
bool reading_is_kind(struct reading *rd, const struct yaml_node *n, enum yaml_kind kind,
		     const char *expected);

/* Copies a string to the policy's arena. Without memory returns NULL and sets diags.oom. */
char *reading_keep(struct reading *rd, const char *s);

/* Makes room for one more item of `size` bytes in an arena list; NULL and diags.oom on failure. */
void *reading_grow(struct reading *rd, void *v, size_t n, size_t *cap, size_t size);

/*
 * Returns a free slot at the end of a list with members v, n and cap; NULL without memory. The
 * caller increments n.
 */
#define list_slot(rd, list)                                                                     \
	({                                                                                      \
		__typeof__((list)->v) _v = reading_grow(rd, (list)->v, (list)->n, &(list)->cap, \
							sizeof((list)->v[0]));                  \
		if (_v)                                                                         \
			(list)->v = _v;                                                         \
		_v ? &_v[(list)->n] : NULL;                                                     \
	})

/* Readers for the key types of schema.h; some serve several types. */
reader_fn read_name, read_text, read_word, read_word_set, read_number, read_path;
reader_fn read_path_list, read_package_list, read_text_list, read_port_list, read_preset_list,
	read_rules;
reader_fn read_filter_list, read_host_list, read_env, read_secrets, read_files;
reader_fn read_llm_list, read_model_list, read_members, read_price_list;
reader_fn read_http_list, read_http_host, read_method_list, read_pattern_list;

/* Calls `item` for every item of a list, with rd->path and rd->index set. */
void reading_each_item(struct reading *rd, const struct key *k, const struct yaml_node *n,
		       void *field, reader_fn *item);

/* Appends a copy of the text. */
void reading_add_text(struct reading *rd, struct text_list *list, const char *s);
bool reading_has_text(const struct text_list *list, const char *s);

/* Reports an error unless the key of `n` is the name of a variable. */
bool reading_check_name(struct reading *rd, const struct yaml_node *n);

/* Writes an absolute path to `out` in canonical form; reports an error and returns NULL otherwise.
 */
const char *reading_path(struct reading *rd, const struct yaml_node *n, char *out, size_t size);

enum {
	READING_PATH_TEXT_MAX = 1024
};
