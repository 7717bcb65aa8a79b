/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fs.c, watch.c and files.c share: how an operation on files is asked for, and
 * how an entry that a guest describes is written for a client. Names come from the sandbox and are
 * bytes: what is not UTF-8 in them is replaced by '?'.
 */
#pragma once

#include "api/request.h"

/* EntryInfo of E2B's filesystem service. A path that is relative is below `root`. NULL without
 * memory. */
json_t *envd_entry(const struct fields *f, const char *root);

/* What an upload is answered with for each file: name, path, type, metadata. */
json_t *envd_write_info(const struct fields *f);

/* The value of a field as text of UTF-8; NULL: not there, or no memory. */
char *envd_text(const struct fields *f, enum wire_tag tag);

/* Opens a call to the guest of r->box. As peer_call(), and -ESRCH: the sandbox has ended. */
int envd_call(struct request *r, enum wire_op op, const struct buf *fields,
	      const struct call_ops *ops, void *arg, struct call **ret, struct err *e);
