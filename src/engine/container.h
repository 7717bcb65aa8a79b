/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of the OCI engines' rows in the engine table. */
#pragma once

#include "engine/engine.h"
#include "engine/scratch.h"

/* The sandbox's user namespace, as a descriptor of the runtime. */
#define OCI_USERNS_FD 4
#define OCI_USERNS    "/proc/self/fd/4"

/* engine.own of such a row. */
struct oci_runtime {
	const char *option;	       /* stops the runtime from making control groups */
	const char *userns;	       /* path by which the joining process opens the namespace */
	int (*prepare)(struct err *e); /* in the warden's mount namespace; NULL: none */
	bool limits_inherited;	       /* PID 1 inherits our rlimits; the runtime sets none */
	int (*enter)(void); /* in the process that becomes the runtime, 0 or -errno; NULL: none */
};

struct cgroup_limits container_limits(const struct spec *spec);
int container_start(const struct engine_start *s, struct engine_sandbox *ret, struct err *e);

/* verify.c */
void verify_container(const struct engine_start *s, const struct engine_sandbox *b,
		      struct receipt *r);

/* Members that all rows of OCI runtimes have in common. */
#define OCI_ENGINE                                                                      \
	.level = LEVEL_CONTAINER, .traits = ENGINE_SCRATCH, .limits = container_limits, \
	.start = container_start, .verify = verify_container, .pause = cgroup_freeze,   \
	.resume = cgroup_thaw
