/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by fs.c and watch.c: the fields of a request to the filesystem service. */
#pragma once

#include "envd/entry.h"
#include "envd/rpc.h"

/* Reads the message of a unary method, as rpc_read() does. */
void fs_read(struct request *r, void (*have)(struct request *r));

/* Returns a member by its JSON or its protobuf name; NULL if it is missing or null. */
json_t *fs_member(const struct request *r, const char *name, const char *other);

/* Returns a text, "" if it is missing; NULL if it has another type: the request was answered. */
const char *fs_text(struct request *r, const char *name);

/* Returns a flag; other types are false. */
bool fs_flag(const struct request *r, const char *name, const char *other);

/*
 * Adds the first fields of each operation: path, target (may be NULL), user. False: the field
 * Authorization is invalid, and the request was answered.
 */
bool fs_put(struct request *r, struct buf *b, const char *path, const char *target);

/* End a request whose call failed or was closed. */
void fs_fail(struct request *r, const struct err *e);
void fs_fail_code(struct request *r, enum wire_code code, const char *text);

extern const struct route envd_fs_routes[];

/* A row of the service. */
#define FS_ROUTE(name, handler)                                             \
	{                                                                   \
		"POST", "/filesystem.Filesystem/" name, ROLE_TOKEN, handler \
	}
