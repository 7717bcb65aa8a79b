/* SPDX-License-Identifier: Apache-2.0 */
/* The last touch to a tree that was built: what every sandbox expects, and the files of its spec.
 */
#pragma once

#include "err.h"
#include "policy.h"

enum {
	FINISH_UID = 1000 /* of the user that commands run as; the same for the group */
};

/* Times of what we write: the same in every build. 2024-01-01. */
#define FINISH_TIME 1704067200

struct image_finish {
	const char *user;	       /* gets an account, a home and /workspace */
	const struct pair_list *files; /* absolute path and text */
};

int finish_tree(int root, const struct image_finish *f, struct err *e);

/* The lines of /etc/passwd or /etc/group with `line` added, unless the name or id is there. */
int finish_add_account(struct buf *text, const char *name, unsigned int id, const char *line);
