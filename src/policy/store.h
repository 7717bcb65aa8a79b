/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds agents, presets and images: the files compiled into the program, and "agents/NAME.yaml",
 * "presets/KIND/NAME.yaml" and "images/NAME.yaml" below each directory of a list. Names are unique:
 * using a name that has two files with different contents is an error, so that no file silently
 * replaces another.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "policy/diag.h"

struct builtin_file {
	const char *path; /* "presets/egress/github.yaml" */
	const char *text;
	size_t len;
};

enum {
	STORE_FOLDERS_MAX = 8
};

struct policy_store {
	const struct builtin_file *builtins; /* sorted by path */
	size_t n_builtins;
	const char *const *dirs; /* NULL-terminated; may be NULL */
	struct arena arena;	 /* owns all sources */
	struct {
		const char *folder;
		const char *const *names;
	} lists[STORE_FOLDERS_MAX]; /* cache of store_list() */
};

#define POLICY_STORE_INIT(files, n, directories)                              \
	{                                                                     \
		.builtins = (files), .n_builtins = (n), .dirs = (directories) \
	}

void policy_store_done(struct policy_store *s);

#define _cleanup_store_ _cleanup_(policy_store_done)

/* Folders of the store. */
#define STORE_AGENTS "agents"
#define STORE_IMAGES "images"

/* Valid names have 1 to 63 of [a-z0-9-] and begin with a letter or digit. */
bool store_name_valid(const char *name, size_t n);

/*
 * Finds "FOLDER/NAME.yaml". Returns -ENOENT if there is none, -EEXIST for two different files (the
 * message names both), -ENOMEM, or the error of reading the file. The directory of the path
 * `beside` (may be NULL) is searched too: an agent may extend one in the same directory.
 */
int store_find(struct policy_store *s, const char *folder, const char *name, const char *beside,
	       const struct source **ret, struct err *e);

/* Reads a file by its path. */
int store_read(struct policy_store *s, const char *path, const struct source **ret, struct err *e);

/*
 * Lists all names of a folder, sorted and NULL-terminated. The store owns the list and caches it by
 * `folder`, which must stay valid.
 */
int store_list(struct policy_store *s, const char *folder, const char *const **ret, struct err *e);
