/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where agents and presets are found: those compiled into the program, then "agents/NAME.yaml" and
 * "presets/KIND/NAME.yaml" below each directory of a list. One name means one thing: two files of
 * one name and different contents are an error wherever that name is used; neither silently
 * replaces the other.
 */
#pragma once

#include "arena.h"
#include "diag.h"
#include "err.h"

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
	struct arena arena;	 /* sources that were read */
	struct {
		const char *folder;
		const char *const *names;
	} lists[STORE_FOLDERS_MAX]; /* what store_list() has found out */
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

/* A name that can be looked up: 1 to 63 of [a-z0-9-], beginning with a letter or digit. */
bool store_name_valid(const char *name, size_t n);

/*
 * Finds "FOLDER/NAME.yaml". -ENOENT if there is none, -EEXIST if there are two (the message names
 * both), -ENOMEM, or what reading the file gave. `beside` (may be NULL) is a path whose directory
 * is searched too: an agent may extend one that lies next to it.
 */
int store_find(struct policy_store *s, const char *folder, const char *name, const char *beside,
	       const struct source **ret, struct err *e);

/* Reads a file by path, as a user names it. */
int store_read(struct policy_store *s, const char *path, const struct source **ret, struct err *e);

/* All names of a folder (a constant), sorted, NULL-terminated, owned by the store; found out once.
 */
int store_list(struct policy_store *s, const char *folder, const char *const **ret, struct err *e);
