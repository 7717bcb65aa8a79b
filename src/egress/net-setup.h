/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets up a sandbox's network: loopback and the sockets that capture outgoing connections. There is
 * no other device and no foreign address. Routes make the captured networks local:
 *
 *   198.18.0.0/15      addresses that stand for names (pool.h)
 *   networks of rules  for programs that connect to an address
 *
 * Everything else is unreachable at once. nf_tables redirects each TCP connection to these networks
 * to one socket, whatever its port (tproxy: no connection tracking, and the accepted socket's own
 * address is the original destination).
 *
 * A child of the warden does this for a container, PID 1 for a VM.
 */
#pragma once

#include "egress/sockets.h"
#include "names/addr.h"

enum {
	NET_NETWORKS_MAX = 4096
};

struct net_plan {
	/* From the policy's address rules; loopback among them is the sandbox's own and is skipped,
	 * as is IPv6 if the kernel has none. */
	const struct addr *networks;
	size_t n;
	/* The sandbox may have networks of its own, for containers in it: connections between them
	 * are not captured, and names are resolved at CAPTURE_ADDR instead of loopback, which is
	 * another one in each container. */
	bool shared;
};

/*
 * Sets up the caller's network namespace, including loopback, and creates the sockets, which the
 * caller owns. Needs CAP_NET_ADMIN and CAP_NET_BIND_SERVICE; call once, before any user code runs.
 * 0 or -errno.
 */
int net_capture(const struct net_plan *plan, struct capture_sockets *ret, struct err *e);
