/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets in a sandbox that catch what goes out. Made by the warden before any code of a user
 * runs (net-setup.c), and held by its keeper alone.
 */
#pragma once

#include <stdint.h>

#include "util.h"

enum capture_socket {
	CAPTURE_TCP,	 /* whatever is connected to 198.18.0.0/15, or to a network of a rule */
	CAPTURE_TCP6,	 /* the same for networks of IPv6, if there are rules for any */
	CAPTURE_DNS_UDP, /* 127.0.0.1:53 */
	CAPTURE_DNS_TCP,
	CAPTURE_PROXY, /* 127.0.0.1:3128 */
	CAPTURE_SOCKETS,
};

enum {
	CAPTURE_DNS_PORT = 53,
	CAPTURE_PROXY_PORT = 3128,
};

/* What /etc/resolv.conf of a sandbox says that has a way out. */
#define CAPTURE_RESOLVER "nameserver 127.0.0.1\noptions timeout:1 attempts:2\n"

/* Listening, non-blocking, CLOEXEC; -EBADF for one that is not there. */
struct capture_sockets {
	int fds[CAPTURE_SOCKETS];
};

#define CAPTURE_SOCKETS_INIT                                       \
	{                                                          \
		.fds = { -EBADF, -EBADF, -EBADF, -EBADF, -EBADF }, \
	}

static inline void capture_sockets_done(struct capture_sockets *s)
{
	for (size_t i = 0; i < CAPTURE_SOCKETS; i++)
		s->fds[i] = fd_close(s->fds[i]);
}

/* For a packet that takes them to another process: which there are. Descriptors arrive without
 * gaps: place() moves them to where the mask says. -EBADMSG if they do not fit it; then nothing has
 * moved. */
uint8_t capture_sockets_mask(const struct capture_sockets *s);
int capture_sockets_place(struct capture_sockets *s, uint8_t mask);

#define _cleanup_capture_sockets_ _cleanup_(capture_sockets_done)
