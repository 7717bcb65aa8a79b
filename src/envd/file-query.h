/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by upload and download of /files. */
#pragma once

#include "api/request.h"

struct file_query {
	char *path; /* NULL: absent */
	char *user; /* NULL: absent */
};

/* Reads `path` and `username` of the query. False: the request was answered with an error. */
bool file_query_read(struct request *r, struct file_query *q);
void file_query_done(struct file_query *q);

/* HTTP status for a guest's code, or for a failed call's errno; 502: the sandbox has ended. */
int file_status(enum wire_code code);
int file_status_errno(int num);
