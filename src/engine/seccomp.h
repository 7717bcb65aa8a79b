/* SPDX-License-Identifier: Apache-2.0 */
/* The system calls of a container (src/confine/calls.h) as an OCI seccomp profile. */
#pragma once

#include <jansson.h>

/* The object for "linux.seccomp"; NULL: out of memory. */
json_t *seccomp_profile(void);
