/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by fs.c, watch.c and files.c: calls for file operations, and the conversion of a guest's
 * entry for a client. Names come from the sandbox and are bytes: invalid UTF-8 is replaced by '?'.
 */
#pragma once

#include "api/request.h"

/* EntryInfo of E2B's filesystem service. A relative path is below `root`. NULL: out of memory. */
json_t *envd_entry(const struct fields *f, const char *root);

/* The answer to an upload, for each file: name, path, type, metadata. */
json_t *envd_write_info(const struct fields *f);

/* The value of a field as UTF-8 text; NULL: missing, or out of memory. */
char *envd_text(const struct fields *f, enum wire_tag tag);

/* Opens a call to the guest of r->box. Like peer_call(), and -ESRCH: the sandbox has ended. */
int envd_call(struct request *r, enum wire_op op, const struct buf *fields,
	      const struct call_ops *ops, void *arg, struct call **ret, struct err *e);
