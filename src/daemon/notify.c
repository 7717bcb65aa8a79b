/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/notify.h"

#include <string.h>
#include <sys/time.h>

#include "base/str.h"

enum {
	WAIT_SECONDS = 5,
	MESSAGE_MAX = 2048,
};

static int address(const char *text, struct notify *n, struct err *e)
{
	size_t len = strlen(text);

	if ((text[0] != '/' && text[0] != '@') || len < 2)
		return err_set(e, -EINVAL,
			       "NOTIFY_SOCKET: '%.80s' is neither a path nor an abstract name",
			       text);
	if (len >= sizeof(n->to.sun_path))
		return err_set(e, -ENAMETOOLONG, "NOTIFY_SOCKET is too long");
	n->to.sun_family = AF_UNIX;
	memcpy(n->to.sun_path, text, len);
	n->n_to = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	if (text[0] == '@')
		n->to.sun_path[0] = '\0';
	else
		n->n_to++; /* a path includes its NUL */
	return 0;
}

/* WATCHDOG_PID names the process that the variable is for; without it, this one. */
static int watchdog(struct notify *n, struct err *e)
{
	const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
	uint64_t us = 0, who = (uint64_t)getpid();

	if (!usec)
		return 0;
	if (str_to_u64(usec, strlen(usec), UINT64_MAX / 1000, &us) < 0 || us == 0 ||
	    (pid && str_to_u64(pid, strlen(pid), INT32_MAX, &who) < 0))
		return err_set(e, -EINVAL, "WATCHDOG_USEC or WATCHDOG_PID is not a number");
	if (who == (uint64_t)getpid())
		n->watchdog = us * 1000 / 2;
	return 0;
}

int notify_open(struct notify *n, struct err *e)
{
	static const struct timeval wait = { .tv_sec = WAIT_SECONDS };
	const char *text = getenv("NOTIFY_SOCKET");
	int r = 0;

	*n = (struct notify)NOTIFY_INIT;
	if (text && text[0]) {
		r = address(text, n, e);
		if (r == 0)
			r = watchdog(n, e);
		if (r == 0) {
			n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
			if (n->fd < 0 ||
			    setsockopt(n->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0)
				r = err_errno(e, "cannot make a socket for the service manager");
		}
	}
	(void)unsetenv("NOTIFY_SOCKET");
	(void)unsetenv("WATCHDOG_USEC");
	(void)unsetenv("WATCHDOG_PID");
	if (r < 0)
		notify_close(n);
	return r;
}

void notify_close(struct notify *n)
{
	*n = (struct notify){ .fd = fd_close(n->fd) };
}

static int say(const struct notify *n, int flags, const char *lines, const char *status)
{
	_cleanup_buf_ struct buf b = BUF_INIT(MESSAGE_MAX);

	if (n->fd < 0)
		return 0;
	(void)buf_puts(&b, lines);
	if (status) {
		(void)buf_puts(&b, "STATUS=");
		(void)str_escape(&b, status, strlen(status));
		(void)buf_putc(&b, '\n');
	}
	if (b.err)
		return b.err;
	if (RETRY_EINTR(sendto(n->fd, b.data, b.len, flags | MSG_NOSIGNAL,
			       (const struct sockaddr *)&n->to, n->n_to)) < 0)
		return -errno;
	return 0;
}

int notify_ready(const struct notify *n, const char *status)
{
	char lines[64];

	(void)snprintf(lines, sizeof(lines), "READY=1\nMAINPID=%d\n", (int)getpid());
	return say(n, 0, lines, status);
}

int notify_stopping(const struct notify *n, const char *status)
{
	return say(n, 0, "STOPPING=1\n", status);
}

int notify_watchdog(const struct notify *n)
{
	return n->watchdog ? say(n, MSG_DONTWAIT, "WATCHDOG=1\n", NULL) : 0;
}
