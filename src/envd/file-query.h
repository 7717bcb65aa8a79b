/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two directions of /files. */
#pragma once

#include "api/request.h"

struct file_query {
	char *path; /* NULL: there is none */
	char *user; /* NULL: there is none */
};

/* `path` and `username` of the query. False: the request has been failed. */
bool file_query_read(struct request *r, struct file_query *q);
void file_query_done(struct file_query *q);

/* The status that a guest's code, or the errno of a call that could not be made, is answered with;
 * 502: the sandbox has ended. */
int file_status(enum wire_code code);
int file_status_errno(int num);
