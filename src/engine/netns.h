/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of a sandbox: loopback, and sockets in it that catch what goes out. No device, no
 * address of anybody else. What is to be caught is local there, by routes:
 *
 *	198.18.0.0/15		stands for names (src/egress/pool.h)
 *	networks of rules	for programs that connect to an address
 *
 * and everything else is unreachable at once. nf_tables hands each TCP connection to them to one
 * socket, whatever its port (tproxy: no connection tracking, and the accepted socket's own address
 * is the one that was connected to).
 */
#pragma once

#include "addr.h"
#include "sockets.h"

enum {
	NETNS_NETWORKS_MAX = 4096
};

/*
 * Prepares the network namespace of process `pidfd` and makes the sockets in it. To be called by
 * the warden between the start of the engine and "go", when no code of a user has run: it needs
 * CAP_SYS_ADMIN in the namespace's owner or above it, and the sandbox none. Once for a sandbox.
 * `networks` are those of the policy's address rules; loopback among them is the sandbox's own and
 * is left out, and so is IPv6 where the host has none. The caller owns the sockets. 0 or -errno.
 */
int netns_capture(int pidfd, const struct addr *networks, size_t n, struct capture_sockets *ret,
		  struct err *e);
