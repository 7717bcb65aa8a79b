/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of a container (src/confine/calls.h), as the OCI runtime specification writes
 * them.
 */
#pragma once

#include <jansson.h>

/* The object for "linux.seccomp"; NULL without memory. */
json_t *seccomp_profile(void);
