/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sockets in a sandbox that capture outgoing connections. The warden creates them before any
 * user code runs (net-setup.c); only the keeper holds them.
 */
#pragma once

#include <stdint.h>

#include "base/util.h"

enum capture_socket {
	CAPTURE_TCP,	 /* connections to 198.18.0.0/15 or to a rule's network */
	CAPTURE_TCP6,	 /* the same for IPv6, if a rule names an IPv6 network */
	CAPTURE_DNS_UDP, /* 127.0.0.1:53 */
	CAPTURE_DNS_TCP,
	CAPTURE_PROXY, /* 127.0.0.1:3128 */
	CAPTURE_SOCKETS,
};

enum {
	CAPTURE_DNS_PORT = 53,
	CAPTURE_PROXY_PORT = 3128,
};

#define CAPTURE_ADDR UINT32_C(0xc6120001) /* 198.18.0.1: the listener of all captured streams */

/* /etc/resolv.conf of a sandbox with egress, and of one with containers in it. */
#define CAPTURE_RESOLVER_SHARED "nameserver 198.18.0.1\noptions timeout:1 attempts:2\n"
#define CAPTURE_RESOLVER	"nameserver 127.0.0.1\noptions timeout:1 attempts:2\n"

/* Listening, non-blocking, CLOEXEC; -EBADF for a missing one. */
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

/* To send the sockets to another process: mask() says which exist. Descriptors arrive without gaps;
 * place() moves them to their places by the mask. -EBADMSG if they do not match the mask; then
 * nothing has moved. */
uint8_t capture_sockets_mask(const struct capture_sockets *s);
int capture_sockets_place(struct capture_sockets *s, uint8_t mask);

#define _cleanup_capture_sockets_ _cleanup_(capture_sockets_done)
