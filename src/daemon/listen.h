/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets that hutchd listens on: passed by a service manager, or made here. All are
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
	LISTEN_UNIX, /* the kernel identifies clients: SO_PEERCRED */
	LISTEN_TCP,
};

struct listener {
	int fd;
	enum listen_kind kind;
	bool loopback;		    /* TCP, reachable only from this host */
	char name[LISTEN_NAME_MAX]; /* "/run/hutch/hutchd.sock", "127.0.0.1:8080", "[::1]:80" */
	/* private, for a unix socket made here: its directory and its lock file */
	int dir, lock;
};

struct listeners {
	struct listener list[LISTEN_MAX];
	size_t n;
};

#define _cleanup_listeners_ _cleanup_(listeners_close)

/* Closes all; removes a unix socket that was made here. */
void listeners_close(struct listeners *l);

/*
 * Takes the sockets of LISTEN_FDS, LISTEN_PID and LISTEN_FDNAMES, like sd_listen_fds(3), and
 * removes these variables. 0 also if there are none, or they are for another process. Each must be
 * a listening stream socket, AF_UNIX or TCP, and a name "unix" or "tcp" must match its kind; else
 * all are closed, -EINVAL.
 */
int listen_take(struct listeners *l, struct err *e);

/*
 * Listens on an absolute path. A missing directory is made; it must belong to us or root, and
 * others must not write there. With a `group` (else (gid_t)-1) the socket is 0660 with that group,
 * and a new directory 0750; else 0600 and 0700. A stale socket is removed; -EADDRINUSE if a process
 * listens on it. "PATH.lock" stays locked until listeners_close().
 */
int listen_unix(struct listeners *l, const char *path, gid_t group, struct err *e);

/*
 * Listens on "8080" (on 127.0.0.1), "192.0.2.1:8080" or "[2001:db8::1]:8080"; port 0 is any free
 * port. Host names are rejected: they may resolve to an unintended address. IPv6 is IPv6 only.
 */
int listen_tcp(struct listeners *l, const char *where, struct err *e);

/* Returns a new entry, or NULL with -E2BIG in `e`. For the functions above. */
struct listener *listen_add(struct listeners *l, struct err *e);

/* Sets kind, loopback and name from the socket; -EINVAL if it is not a listening stream socket. */
int listen_describe(struct listener *one, struct err *e);
