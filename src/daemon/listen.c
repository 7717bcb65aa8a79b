/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets made by hutchd itself. A unix socket is bound through the descriptor of its directory,
 * gets its mode and group, and only then listens: no client can connect before, whatever the umask.
 * An existing socket is checked under a lock that the winner keeps, so two processes that start at
 * once cannot remove each other's socket.
 */
#include "daemon/listen.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/path.h"
#include "base/str.h"

enum {
	BACKLOG = 4096, /* net.core.somaxconn lowers it */
	PATH_TEXT = 512,
};

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

void listeners_close(struct listeners *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct listener *one = &l->list[i];

		/* We hold the lock, so the socket is ours. */
		if (one->lock >= 0)
			(void)unlinkat(one->dir, last_part(one->name), 0);
		one->fd = fd_close(one->fd);
		one->dir = fd_close(one->dir);
		one->lock = fd_close(one->lock);
	}
	l->n = 0;
}

struct listener *listen_add(struct listeners *l, struct err *e)
{
	struct listener *one;

	if (l->n == LISTEN_MAX) {
		(void)err_set(e, -E2BIG, "more than %d sockets to listen on", LISTEN_MAX);
		return NULL;
	}
	one = &l->list[l->n++];
	*one = (struct listener){ .fd = -EBADF, .dir = -EBADF, .lock = -EBADF };
	return one;
}

/* ---- kind of a socket ---- */

static int option(int fd, int name, int *ret)
{
	socklen_t n = sizeof(*ret);

	return getsockopt(fd, SOL_SOCKET, name, ret, &n);
}

static void describe_unix(struct listener *one, const struct sockaddr_un *a, socklen_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT((size_t)LISTEN_NAME_MAX * 4);
	size_t len = n - MIN((size_t)n, offsetof(struct sockaddr_un, sun_path));
	bool abstract = len > 0 && a->sun_path[0] == '\0';

	if (!abstract)
		len = strnlen(a->sun_path, len);
	(void)str_escape(&b, a->sun_path + abstract, len - abstract);
	(void)snprintf(one->name, sizeof(one->name), "%s%s", abstract ? "@" : "", buf_text(&b));
	one->kind = LISTEN_UNIX;
}

static void describe_inet(struct listener *one, const struct sockaddr_storage *s)
{
	char text[INET6_ADDRSTRLEN] = "?";

	one->kind = LISTEN_TCP;
	if (s->ss_family == AF_INET) {
		const struct sockaddr_in *a = (const struct sockaddr_in *)s;

		(void)inet_ntop(AF_INET, &a->sin_addr, text, sizeof(text));
		one->loopback = ntohl(a->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
		(void)snprintf(one->name, sizeof(one->name), "%s:%u", text, ntohs(a->sin_port));
	} else {
		const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)s;

		(void)inet_ntop(AF_INET6, &a->sin6_addr, text, sizeof(text));
		one->loopback = IN6_IS_ADDR_LOOPBACK(&a->sin6_addr);
		(void)snprintf(one->name, sizeof(one->name), "[%s]:%u", text, ntohs(a->sin6_port));
	}
}

int listen_describe(struct listener *one, struct err *e)
{
	int type = 0, listening = 0, family = 0, protocol = 0;
	union {
		struct sockaddr_storage any;
		struct sockaddr_un un;
	} a = { 0 };
	socklen_t n = sizeof(a);

	if (option(one->fd, SO_TYPE, &type) < 0 || option(one->fd, SO_DOMAIN, &family) < 0 ||
	    option(one->fd, SO_PROTOCOL, &protocol) < 0 ||
	    option(one->fd, SO_ACCEPTCONN, &listening) < 0 ||
	    getsockname(one->fd, (struct sockaddr *)&a, &n) < 0)
		return err_set(e, -EINVAL, "not a socket: %s", strerror(errno));
	if (type != SOCK_STREAM || !listening)
		return err_set(e, -EINVAL, "not a stream socket that listens");
	if (family == AF_UNIX)
		describe_unix(one, &a.un, n);
	else if ((family == AF_INET || family == AF_INET6) && protocol == IPPROTO_TCP)
		describe_inet(one, &a.any);
	else
		return err_set(e, -EINVAL, "neither a unix socket nor TCP");
	return 0;
}

/* ---- unix ---- */

static int open_parent(const char *path, gid_t group, int *ret_fd, struct err *e)
{
	_cleanup_close_ int top = -EBADF, fd = -EBADF;
	char parent[PATH_TEXT];
	struct stat st;
	int r = path[0] == '/' ? path_parent(path, parent, sizeof(parent)) : -EINVAL;

	if (r < 0 || !last_part(path)[0])
		return err_set(e, r < 0 ? r : -EINVAL,
			       "'%.80s' is not an absolute path of a socket", path);
	fd = RETRY_EINTR(openat(AT_FDCWD, parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0 && errno == ENOENT) {
		top = RETRY_EINTR(openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC));
		r = top < 0 ? -errno : path_mkdirs(top, parent + strspn(parent, "/"), 0700);
		if (r == 0)
			r = fd = path_open_nofollow(top, parent + strspn(parent, "/"),
						    O_RDONLY | O_DIRECTORY, 0);
		if (r < 0)
			return err_set(e, r, "cannot make '%s': %s", parent, strerror(-r));
		if (group != (gid_t)-1 &&
		    (fchown(fd, (uid_t)-1, group) < 0 || fchmod(fd, 0750) < 0))
			return err_errno(e, "cannot give '%s' to group %u", parent,
					 (unsigned int)group);
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, "cannot open '%s'", parent);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return err_set(e, -EPERM, "'%s' belongs to uid %u: refused", parent,
			       (unsigned int)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(e, -EPERM, "others can write in '%s': refused", parent);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int take_lock(int dir, const char *path, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	char name[PATH_TEXT];

	if (snprintf(name, sizeof(name), "%s.lock", last_part(path)) >= (int)sizeof(name))
		return err_set(e, -ENAMETOOLONG, "'%.80s...' is too long", path);
	fd = path_open_nofollow(dir, name, O_RDWR | O_CREAT, 0600);
	if (fd < 0)
		return err_set(e, fd, "cannot open '%s.lock': %s", path, strerror(-fd));
	if (RETRY_EINTR(flock(fd, LOCK_EX | LOCK_NB)) < 0)
		return errno == EWOULDBLOCK
			       ? err_set(e, -EADDRINUSE, "another process listens on '%s'", path)
			       : err_errno(e, "cannot lock '%s.lock'", path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int address_of(int dir, const char *path, struct sockaddr_un *ret, struct err *e)
{
	*ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", dir,
		     last_part(path)) >= (int)sizeof(ret->sun_path))
		return err_set(e, -ENAMETOOLONG, "'%.80s...': the name is too long for a socket",
			       path);
	return 0;
}

/* Only tries to connect: success, or having to wait, means that a process listens. */
static bool answers(const struct sockaddr_un *a)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return true;
	return RETRY_EINTR(connect(fd, (const struct sockaddr *)a, sizeof(*a))) == 0 ||
	       (errno != ECONNREFUSED && errno != ENOENT);
}

static int remove_stale(int dir, const char *path, const struct sockaddr_un *a, struct err *e)
{
	struct stat st;

	if (fstatat(dir, last_part(path), &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(e, "cannot stat '%s'", path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, -EEXIST,
			       "'%s' exists and is not a socket; remove it or choose another path",
			       path);
	if (answers(a))
		return err_set(e, -EADDRINUSE, "another process listens on '%s'", path);
	if (unlinkat(dir, last_part(path), 0) < 0)
		return err_errno(e, "cannot remove the old socket '%s'", path);
	return 0;
}

static int open_socket(int dir, const char *path, const struct sockaddr_un *a, gid_t group,
		       int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	const char *name = last_part(path);
	bool open = group != (gid_t)-1;

	if (fd < 0 || bind(fd, (const struct sockaddr *)a, sizeof(*a)) < 0)
		return err_errno(e, "cannot bind '%s'", path);
	if ((open && fchownat(dir, name, (uid_t)-1, group, AT_SYMLINK_NOFOLLOW) < 0) ||
	    fchmodat(dir, name, open ? 0660 : 0600, 0) < 0 || listen(fd, BACKLOG) < 0) {
		(void)err_errno(e, "cannot listen on '%s'", path);
		(void)unlinkat(dir, name, 0);
		return e->num;
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int listen_unix(struct listeners *l, const char *path, gid_t group, struct err *e)
{
	_cleanup_close_ int dir = -EBADF, lock = -EBADF, fd = -EBADF;
	struct listener *one;
	struct sockaddr_un a;
	int r = strlen(path) < LISTEN_NAME_MAX
			? open_parent(path, group, &dir, e)
			: err_set(e, -ENAMETOOLONG, "'%.80s...' is too long", path);

	if (r == 0)
		r = take_lock(dir, path, &lock, e);
	if (r == 0)
		r = address_of(dir, path, &a, e);
	if (r == 0)
		r = remove_stale(dir, path, &a, e);
	if (r < 0)
		return r;
	one = listen_add(l, e);
	if (!one)
		return e->num;
	r = open_socket(dir, path, &a, group, &fd, e);
	if (r < 0) {
		l->n--;
		return r;
	}
	one->kind = LISTEN_UNIX;
	one->fd = TAKE_FD(fd);
	one->dir = TAKE_FD(dir);
	one->lock = TAKE_FD(lock);
	(void)snprintf(one->name, sizeof(one->name), "%s", path);
	return 0;
}

/* ---- TCP ---- */

/* Splits "ADDRESS:PORT": the address without brackets, "127.0.0.1" if missing. */
static int split(const char *where, char host[static INET6_ADDRSTRLEN], uint64_t *ret_port)
{
	const char *colon = strrchr(where, ':'), *port = colon ? colon + 1 : where;
	const char *from = where;
	size_t n = colon ? (size_t)(colon - where) : 0;

	if (str_to_u64(port, strlen(port), UINT16_MAX, ret_port) < 0)
		return -EINVAL;
	if (!colon) {
		(void)snprintf(host, INET6_ADDRSTRLEN, "127.0.0.1");
		return 0;
	}
	if (n > 2 && where[0] == '[' && where[n - 1] == ']') {
		from++;
		n -= 2;
		if (!memchr(from, ':', n))
			return -EINVAL;
	} else if (memchr(where, ':', n)) {
		return -EINVAL;
	}
	if (n == 0 || n >= INET6_ADDRSTRLEN)
		return -EINVAL;
	memcpy(host, from, n);
	host[n] = '\0';
	return 0;
}

static int address_in(const char *where, struct sockaddr_storage *ret, socklen_t *ret_n)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
	char host[INET6_ADDRSTRLEN];
	uint64_t port = 0;

	memset(ret, 0, sizeof(*ret));
	if (split(where, host, &port) < 0)
		return -EINVAL;
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		*ret_n = sizeof(*v4);
	} else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		*ret_n = sizeof(*v6);
	} else {
		return -EINVAL;
	}
	return 0;
}

static int bind_tcp(int fd, const struct sockaddr_storage *a, socklen_t n)
{
	int on = 1;

	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
	    (a->ss_family == AF_INET6 &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) < 0))
		return -1;
	return bind(fd, (const struct sockaddr *)a, n);
}

int listen_tcp(struct listeners *l, const char *where, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	struct listener *one;
	struct sockaddr_storage a;
	socklen_t n = 0;

	if (address_in(where, &a, &n) < 0)
		return err_set(e, -EINVAL,
			       "'%.80s': expected PORT, ADDRESS:PORT or [ADDRESS]:PORT, with an "
			       "IP address",
			       where);
	fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
	if (fd < 0 || bind_tcp(fd, &a, n) < 0 || listen(fd, BACKLOG) < 0)
		return err_errno(e, "cannot listen on '%s'", where);
	one = listen_add(l, e);
	if (!one)
		return e->num;
	one->fd = TAKE_FD(fd);
	return listen_describe(one, e);
}
