/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network of a sandbox: loopback, and sockets in it that catch what goes out. No device, no
 * address of anybody else. What is to be caught is local there, by routes:
 *
 *	198.18.0.0/15		stands for names (pool.h)
 *	networks of rules	for programs that connect to an address
 *
 * and everything else is unreachable at once. nf_tables hands each TCP connection to them to one
 * socket, whatever its port (tproxy: no connection tracking, and the accepted socket's own address
 * is the one that was connected to).
 *
 * A child of the warden does this for a container, PID 1 does it in a machine of its own.
 */
#pragma once

#include "addr.h"
#include "sockets.h"

enum {
	NET_NETWORKS_MAX = 4096
};

/*
 * Prepares the caller's network namespace, loopback included, and makes the sockets in it, which
 * the caller owns. Needs CAP_NET_ADMIN and CAP_NET_BIND_SERVICE there, and is done once, before any
 * code of a user runs. `networks` are those of the policy's address rules; loopback among them is
 * the sandbox's own and is left out, and so is IPv6 where the kernel has none. 0 or -errno.
 */
int net_capture(const struct addr *networks, size_t n, struct capture_sockets *ret, struct err *e);
