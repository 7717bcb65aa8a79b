/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets passed by a service manager. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/str.h"
#include "daemon/listen.h"

enum {
	FIRST = 3 /* SD_LISTEN_FDS_START */
};

static int number(const char *name, uint64_t max, uint64_t *ret, struct err *e)
{
	const char *text = getenv(name);

	if (!text || str_to_u64(text, strlen(text), max, ret) < 0)
		return err_set(e, -EINVAL, "%s: '%.40s' is not a number from 0 to %llu", name,
			       text ? text : "", (unsigned long long)max);
	return 0;
}

static int make_ours(int fd, struct err *e)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ||
	    fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return err_errno(e, "socket %d of LISTEN_FDS", fd);
	return 0;
}

/* `called` has `n` bytes; names other than these two do not restrict the kind. */
static int take_one(struct listeners *l, int fd, const char *called, size_t n, struct err *e)
{
	struct listener *one = listen_add(l, e);
	bool as_unix = n == 4 && memcmp(called, "unix", 4) == 0;
	bool as_tcp = n == 3 && memcmp(called, "tcp", 3) == 0;
	int r;

	if (!one)
		return e->num;
	one->fd = fd;
	r = listen_describe(one, e);
	if (r < 0)
		return err_wrap(e, "socket %d of LISTEN_FDS", fd);
	if ((as_unix && one->kind != LISTEN_UNIX) || (as_tcp && one->kind != LISTEN_TCP))
		return err_set(e, -EINVAL, "socket %d of LISTEN_FDS is called '%.*s' and is '%s'",
			       fd, (int)n, called, one->name);
	return 0;
}

/* Sets up all of them first: on an error none may leak into a child. */
static int take_all(struct listeners *l, int n, struct err *e)
{
	const char *names = getenv("LISTEN_FDNAMES");
	int r = 0;

	for (int i = 0; i < n; i++)
		if (make_ours(FIRST + i, e) < 0)
			r = e->num;
	for (int i = 0; r == 0 && i < n; i++) {
		size_t len = names ? strcspn(names, ":") : 0;

		r = take_one(l, FIRST + i, names ? names : "", len, e);
		if (names && names[len] == '\0' && i + 1 < n && r == 0)
			r = err_set(e, -EINVAL, "LISTEN_FDNAMES has %d names for %d sockets", i + 1,
				    n);
		else if (names && names[len] == ':')
			names += len + 1;
		else if (names)
			names += len;
	}
	if (r == 0 && names && names[0])
		r = err_set(e, -EINVAL, "LISTEN_FDNAMES has more names than LISTEN_FDS sockets");
	return r;
}

static void close_from(struct listeners *l, int n)
{
	l->n = 0;
	for (int i = 0; i < n; i++)
		(void)fd_close(FIRST + i);
}

int listen_take(struct listeners *l, struct err *e)
{
	uint64_t pid = 0, n = 0;
	int r = 0;

	assert(l->n == 0);
	if (getenv("LISTEN_PID")) {
		r = number("LISTEN_PID", INT32_MAX, &pid, e);
		if (r == 0 && pid == (uint64_t)getpid()) {
			r = number("LISTEN_FDS", LISTEN_MAX, &n, e);
			if (r == 0)
				r = take_all(l, (int)n, e);
			if (r < 0)
				close_from(l, (int)n);
		}
	}
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	return r;
}
