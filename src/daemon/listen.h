/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets that hutchd listens on: handed over by a service manager, or made here. All are
 * non-blocking and CLOEXEC.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

enum {
	LISTEN_MAX = 16,
	LISTEN_NAME_MAX = 128,
};

enum listen_kind {
	LISTEN_UNIX, /* the kernel says who connects: SO_PEERCRED */
	LISTEN_TCP,
};

struct listener {
	int fd;
	enum listen_kind kind;
	bool loopback;		    /* of TCP: only this machine can reach it */
	char name[LISTEN_NAME_MAX]; /* "/run/hutch/hutchd.sock", "127.0.0.1:8080", "[::1]:80" */
	/* private, of a unix socket made here: its directory and the lock beside it */
	int dir, lock;
};

struct listeners {
	struct listener list[LISTEN_MAX];
	size_t n;
};

#define _cleanup_listeners_ _cleanup_(listeners_close)

/* Closes them; a unix socket that was made here is removed. */
void listeners_close(struct listeners *l);

/*
 * Takes what LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES say, as sd_listen_fds(3) does, and takes
 * these out of the environment. 0 also if nothing was handed over, or to another process. Each must
 * be a listening stream socket, AF_UNIX or TCP, and one that is called "unix" or "tcp" must be
 * that; else all are closed, -EINVAL.
 */
int listen_take(struct listeners *l, struct err *e);

/*
 * Listens on a path, which is absolute. Its directory is made if it is missing; it must be ours or
 * root's, and others must not write there. With a `group` (else (gid_t)-1) the socket is 0660 and
 * that group's, and a new directory 0750; else 0600 and 0700. A socket that is there is removed if
 * nobody answers on it; -EADDRINUSE if somebody does. "PATH.lock" is held meanwhile and after.
 */
int listen_unix(struct listeners *l, const char *path, gid_t group, struct err *e);

/*
 * Listens on "8080" (of 127.0.0.1), "192.0.2.1:8080" or "[2001:db8::1]:8080"; port 0 is any that is
 * free. No names: what they lead to is not for us to choose. IPv6 is IPv6 only.
 */
int listen_tcp(struct listeners *l, const char *where, struct err *e);

/* Room for one more, or NULL with -E2BIG in `e`. For the functions above. */
struct listener *listen_add(struct listeners *l, struct err *e);

/* Fills in kind, loopback and name from what the socket is; -EINVAL: it is none of ours. */
int listen_describe(struct listener *one, struct err *e);
