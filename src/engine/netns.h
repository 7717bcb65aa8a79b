/* SPDX-License-Identifier: Apache-2.0 */
/* The network of a container, which is its own: see net-setup.h for what is made there. */
#pragma once

#include "egress/net-setup.h"

/*
 * net_capture() in the network namespace of process `pidfd`. To be called by the warden between the
 * start of the engine and "go", when no code of a user has run: it needs CAP_SYS_ADMIN in the
 * namespace's owner or above it, and the sandbox none. Once for a sandbox. The caller owns the
 * sockets. 0 or -errno.
 */
int netns_capture(int pidfd, const struct addr *networks, size_t n, struct capture_sockets *ret,
		  struct err *e);
