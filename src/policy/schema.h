/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of agent and preset files. The reader checks files against this table, `hutch config
 * docs` prints it, and "did you mean" searches it. Add new keys here and nowhere else.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Types of values; the table `readers` in read.c has a reader for each. */
enum key_type {
	KEY_SECTION,
	KEY_NAME,	 /* [a-z0-9-], 1 to 63 */
	KEY_LINE,	 /* one line of text */
	KEY_TEXT,	 /* text */
	KEY_WORD,	 /* one of `words` */
	KEY_WORD_SET,	 /* list of `words`, stored as bits */
	KEY_SIZE,	 /* bytes: 512MiB */
	KEY_DURATION,	 /* milliseconds: 10m */
	KEY_COUNT,	 /* whole number */
	KEY_THOUSANDTHS, /* 0.5 */
	KEY_PATH,	 /* absolute path */
	KEY_PATH_LIST,
	KEY_PORT_LIST,
	KEY_ALLOW_LIST, /* rules */
	KEY_DENY_LIST,
	KEY_PRESET_LIST,  /* names of presets of kind `kind` */
	KEY_PACKAGE_LIST, /* Debian package names */
	KEY_TEXT_LIST,
	KEY_ENV,       /* NAME: text */
	KEY_HOST_LIST, /* names of hosts */
	KEY_SECRETS,   /* NAME: a mapping with `keys` */
	KEY_HTTP_LIST, /* list of mappings with `keys` */
	KEY_HTTP_HOST, /* a name, or a name and all below it */
	KEY_METHOD_LIST,
	KEY_PATTERN_LIST, /* paths of requests */
	KEY_LLM_LIST,	  /* list of mappings with `keys` */
	KEY_MODEL_LIST,	  /* patterns for names of models */
	KEY_PRICE_LIST,	  /* list of mappings with `keys` */
	KEY_MEMBERS,	  /* a mapping inside an item of a list */
	KEY_FILTER_LIST,  /* rules of the output filter, and groups */
	KEY_FILES,	  /* absolute path: text */
	KEY_TYPE_MAX,
};

struct key {
	const char *name;
	enum key_type type;
	bool required;
	bool in_file; /* `field` is in struct policy_file, not in struct policy */
	size_t field;
	uint64_t min, max;	  /* range of a number; for text, max is its longest length */
	const char *const *words; /* KEY_WORD: NULL-terminated, by value; "" is not accepted */
	int kind;		  /* KEY_PRESET_LIST: enum preset_kind */
	const struct key *keys;	  /* keys of a mapping; .name NULL ends the array */
	const char *fallback; /* default, as a file would contain it; lists: separated by spaces */
	const char *doc;
};

/* Top-level keys. */
extern const struct key agent_keys[];
extern const struct key *const preset_keys[]; /* by enum preset_kind */

/* The file of prices. */
extern const struct key price_file_keys[];

/* Keys of one secret, and of one rule of egress.http and llm: fields of struct secret, struct
 * http_rule and struct llm_rule. */
extern const struct key secret_keys[], http_keys[], llm_keys[];

/* Describes valid values of a type for messages and documentation: "a size such as 512MiB". */
const char *key_type_expects(enum key_type type);
