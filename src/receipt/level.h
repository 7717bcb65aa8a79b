/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Isolation levels, weakest first: how strong the boundary around a sandbox is. A policy, an API
 * key and the command line ask for a minimum; an engine (engine/engine.h) provides one level.
 */
#pragma once

enum level {
	LEVEL_UNSET,
	LEVEL_CONTAINER, /* the sandbox shares the host's kernel */
	LEVEL_GVISOR,	 /* a kernel in user space between the two */
	LEVEL_MICROVM,	 /* a VM with a kernel of its own */
	LEVEL_MAX,
	LEVEL_FIRST = LEVEL_CONTAINER,
	LEVEL_DEFAULT = LEVEL_CONTAINER,  /* every usable host provides this level */
	LEVEL_OWN_KERNEL = LEVEL_MICROVM, /* from here on, sandboxes have their own kernel */
};

#define LEVEL_DEFAULT_NAME "container"

extern const char *const level_names[LEVEL_MAX + 1]; /* [LEVEL_UNSET] is "", NULL at the end */

/* Returns 0, or -EINVAL for an unknown name. */
int level_parse(const char *name, enum level *ret);
