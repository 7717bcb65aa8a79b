/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of a container, as the OCI runtime specification writes them: a list of what is
 * allowed, and EPERM for everything else. Tighter than what container engines ship: no namespaces
 * by any call, no io_uring, no sockets but unix and internet ones, no typing into terminals, one
 * ABI.
 */
#pragma once

#include <jansson.h>

/* The object for "linux.seccomp"; NULL without memory. */
json_t *seccomp_profile(void);
