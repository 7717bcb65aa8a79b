/* SPDX-License-Identifier: Apache-2.0 */
#include "envd/file-query.h"

bool file_query_read(struct request *r, struct file_query *q)
{
	int path = http_query(r->x, "path", &q->path);
	int user = http_query(r->x, "username", &q->user);

	if ((path == 0 || path == -ENOENT) && (user == 0 || user == -ENOENT)) {
		if (!q->user || q->user[0])
			return true;
		free(q->user); /* "username=" counts as absent */
		q->user = NULL;
		return true;
	}
	request_fail(r, path == -ENOMEM || user == -ENOMEM ? 503 : 400, "the query cannot be read");
	return false;
}

void file_query_done(struct file_query *q)
{
	free(q->path);
	free(q->user);
}

int file_status(enum wire_code code)
{
	switch (code) {
	case WIRE_NOT_FOUND:
		return 404;
	case WIRE_NO_USER:
		return 401;
	case WIRE_PERMISSION:
		return 403;
	case WIRE_TOO_MANY:
		return 429;
	case WIRE_NO_SPACE:
		return 507;
	case WIRE_GONE:
		return 502;
	case WIRE_INVALID:
	case WIRE_EXISTS:
	case WIRE_NOT_DIRECTORY:
	case WIRE_IS_DIRECTORY:
	case WIRE_UNSUPPORTED:
		return 400;
	default:
		return 500;
	}
}

int file_status_errno(int num)
{
	switch (num) {
	case -ESRCH:
	case -EPIPE:
		return 502;
	case -EINVAL:
		return 400;
	case -EAGAIN:
		return 429;
	case -ENOMEM:
		return 503;
	default:
		return 500;
	}
}
