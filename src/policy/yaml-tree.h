/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small, strict YAML: block and flow mappings, sequences, scalars, comments; one document.
 * Refused, with position: anchors, aliases, tags, directives, merge keys, keys that are not plain
 * text, duplicate keys, control characters, a second document. Every node knows where it stands.
 * Nothing is guessed: a scalar is text, and what it means is decided by the schema that reads it.
 */
#pragma once

#include "diag.h"

enum {
	YAML_TEXT_MAX = 2 * 1024 * 1024,
	YAML_SCALAR_MAX = 64 * 1024,
	YAML_DEPTH_MAX = 12,
	YAML_NODES_MAX = 250000,
	YAML_KEYS_MAX = 1024, /* in one mapping */
};

enum yaml_kind {
	YAML_SCALAR,
	YAML_LIST,
	YAML_MAP,
};

struct yaml_node {
	enum yaml_kind kind;
	struct pos pos;
	const char *text; /* scalar; NUL-terminated, no NUL inside */
	size_t len;
	bool quoted;		 /* scalar was written in quotes or as a block: "" is meant */
	struct yaml_node *child; /* first item, or first value; its `key` says which */
	struct yaml_node *next;	 /* sibling */
	const char *key;	 /* value in a mapping: its key and where that stands */
	struct pos key_pos;
};

/* Walks over the items of a list or the values of a mapping. */
#define yaml_foreach(n, parent) for (const struct yaml_node *n = (parent)->child; n; n = n->next)

/*
 * Reads `src` into a tree in `arena`. What is wrong goes to `d`; NULL if no tree could be made. An
 * empty file is an error. A tree may come back together with errors (duplicate keys): the rest is
 * still worth checking.
 */
struct yaml_node *yaml_read(struct arena *arena, const struct source *src, struct diags *d);

/* The value of `key`, or NULL. */
const struct yaml_node *yaml_get(const struct yaml_node *map, const char *key);

/* "a mapping", "a list", "text", "empty text", "nothing" */
const char *yaml_describe(const struct yaml_node *n);
