/* SPDX-License-Identifier: Apache-2.0 */
/* The network namespace of a container; net-setup.h describes its contents. */
#pragma once

#include "egress/net-setup.h"

/* Runs net_capture() in the network namespace of process `pidfd`. The warden calls it once per
 * sandbox, between the start of the engine and "go", before user code runs. Needs CAP_SYS_ADMIN in
 * the user namespace that owns it or above; the sandbox has none. The caller owns the sockets. 0 or
 * -errno. */
int netns_capture(int pidfd, const struct addr *networks, size_t n, struct capture_sockets *ret,
		  struct err *e);
