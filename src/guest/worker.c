/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/worker.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

int worker_fail(struct worker *w, const char *what)
{
	return fail_errno(&w->fail, errno, what, w->path);
}

/* ---- packets to PID 1 ---- */

/* Blocks until PID 1 takes the packet. Fails if PID 1 has closed the socket. */
static int send_packet(struct worker *w)
{
	if (!w->packet.err &&
	    RETRY_EINTR(send(w->control, w->packet.data, w->packet.len, MSG_NOSIGNAL)) >= 0)
		return 0;
	return fail_with(&w->fail, WIRE_IO, "cannot answer");
}

int worker_send(struct worker *w, enum packet kind, int dirfd, const char *name, const char *path,
		const struct stat *st)
{
	buf_reset(&w->packet);
	(void)buf_putc(&w->packet, (char)kind);
	if (st)
		entry_put(w, 0, dirfd, name, path, st);
	return send_packet(w);
}

int worker_send_event(struct worker *w, enum wire_event event, const char *full, const char *path)
{
	struct stat st;
	bool there = event != WIRE_REMOVED && event != WIRE_RENAMED && event != WIRE_LOST &&
		     lstat(full, &st) == 0;

	buf_reset(&w->packet);
	(void)buf_putc(&w->packet, PACKET_EVENT);
	entry_put(w, event, AT_FDCWD, full, path, there ? &st : NULL);
	return send_packet(w);
}

int worker_send_end(struct worker *w)
{
	buf_reset(&w->packet);
	(void)buf_putc(&w->packet, PACKET_END);
	(void)buf_put(&w->packet, &w->fail, sizeof(w->fail));
	return send_packet(w);
}

int worker_make_parents(const char *path)
{
	char part[WORKER_PATH_MAX];

	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		size_t n = (size_t)(slash - path);

		memcpy(part, path, n);
		part[n] = '\0';
		/* A read-only file system fails with EROFS even if the directory exists. */
		if (mkdir(part, 0755) < 0 && errno != EEXIST && access(part, F_OK) < 0)
			return -1;
	}
	return 0;
}
