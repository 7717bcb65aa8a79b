/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a strict subset of YAML: block and flow mappings, sequences, scalars, comments; one
 * document. Rejected, with position: anchors, aliases, tags, directives, merge keys, keys that are
 * not plain text, duplicate keys, control characters, a second document. Scalars have no implicit
 * type: each is text, which the schema interprets.
 */
#pragma once

#include "policy/diag.h"

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
	bool quoted;		 /* scalar in quotes or a block: an empty one is intended */
	struct yaml_node *child; /* first item of a list or first value of a mapping */
	struct yaml_node *next;	 /* sibling */
	const char *key;	 /* values of a mapping: the key and its position */
	struct pos key_pos;
};

/* Iterates over the items of a list or the values of a mapping. */
#define yaml_foreach(n, parent) for (const struct yaml_node *n = (parent)->child; n; n = n->next)

/*
 * Reads `src` into a tree in `arena`. Errors go to `d`; an empty file is one. Returns NULL if no
 * tree could be built. A file with duplicate keys gives errors and a tree, so that the caller can
 * check the rest.
 */
struct yaml_node *yaml_read(struct arena *arena, const struct source *src, struct diags *d);

/* The value of `key`, or NULL. */
const struct yaml_node *yaml_get(const struct yaml_node *map, const char *key);

/* "a mapping", "a list", "text", "empty text", "nothing" */
const char *yaml_describe(const struct yaml_node *n);
