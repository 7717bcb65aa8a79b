/* SPDX-License-Identifier: Apache-2.0 */
/* What fs.c and watch.c share: the fields of a request of the filesystem service. */
#pragma once

#include "envd/entry.h"
#include "envd/rpc.h"

/* Reads the message of a method that is no stream, as rpc_read() does. */
void fs_read(struct request *r, void (*have)(struct request *r));

/* A member of the message, by its name in JSON, or as it stands in the protobuf file; null and a
 * missing one are NULL. */
json_t *fs_member(const struct request *r, const char *name, const char *other);

/* A text, "" if it is not there; or NULL: it is something else, and the request has been failed. */
const char *fs_text(struct request *r, const char *name);

/* A flag; wrong types are false. */
bool fs_flag(const struct request *r, const char *name, const char *other);

/*
 * The fields that each operation begins with: path, target (may be NULL), user. False: the field
 * Authorization cannot be read, and the request has been failed.
 */
bool fs_put(struct request *r, struct buf *b, const char *path, const char *target);

/* How a call that could not be made, or was closed, ends a request. */
void fs_fail(struct request *r, const struct err *e);
void fs_fail_code(struct request *r, enum wire_code code, const char *text);

extern const struct route envd_fs_routes[];

/* A row of the service. */
#define FS_ROUTE(name, handler)                                             \
	{                                                                   \
		"POST", "/filesystem.Filesystem/" name, ROLE_TOKEN, handler \
	}
