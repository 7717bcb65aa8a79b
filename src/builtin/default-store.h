/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of hutch and hutchd: the built-in files, then the directories of `include`, then those
 * of HUTCH_CONFIG_PATH or, if it is not set, the user's directory and /etc/hutch.
 */
#pragma once

#include "policy/store.h"

struct default_store {
	struct policy_store store;
	const char *dirs[32];
	char user_dir[512];
	char *path_copy;
};

/* `include` may be NULL; it and the environment must outlive the store. */
int default_store_open(struct default_store *s, const char *const *include, size_t n,
		       struct err *e);
void default_store_close(struct default_store *s);

#define _cleanup_default_store_ _cleanup_(default_store_close)
