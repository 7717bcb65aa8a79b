/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes away everything that serving does not need; stages at the top of isolate.c. First
 * isolate_fds(): the descriptors named in `s`, and 2, are all that stay open. Then the keeper makes
 * its loop, for isolate() takes the right to. 0, or -errno: then the keeper must end without having
 * read anything. isolate_try_guard(), before that too: where there is a guard, it refuses.
 */
#pragma once

#include "keeper.h"

int isolate_fds(const struct keeper_start *s, struct err *e);
int isolate_try_guard(const struct keeper_start *s, struct err *e);
int isolate(const struct keeper_start *s, struct err *e);
