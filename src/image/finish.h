/* SPDX-License-Identifier: Apache-2.0 */
/* Final changes to a built tree: files that every sandbox expects, and those of the spec. */
#pragma once

#include "base/err.h"
#include "policy/policy.h"

enum {
	FINISH_UID = 1000 /* uid and gid of the user that commands run as */
};

/* Timestamp of files that we write: the same in every build. 2024-01-01. */
#define FINISH_TIME 1704067200

struct image_finish {
	const char *user;	       /* gets an account, a home and /workspace */
	const struct pair_list *files; /* absolute path and text */
};

int finish_tree(int root, const struct image_finish *f, struct err *e);

/* Appends `line` to the text of /etc/passwd or /etc/group, unless the name or id exists. */
int finish_add_account(struct buf *text, const char *name, unsigned int id, const char *line);
