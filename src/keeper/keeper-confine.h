/* SPDX-License-Identifier: Apache-2.0 */
/* Drops every privilege that serving does not need; confine.c lists the stages. Each function
 * returns 0 or -errno; after an error the keeper must exit without having read a byte. */
#pragma once

#include "keeper/keeper.h"

/* First: closes all file descriptors but 2 and those named in `s`. The keeper then creates its
 * loop, which it cannot do after keeper_confine(). */
int keeper_confine_fds(const struct keeper_start *s, struct err *e);
/* Next: checks that the dial guard, if there is one, refuses a forbidden connection. */
int keeper_try_guard(const struct keeper_start *s, struct err *e);
/* Last: runs all other stages. */
int keeper_confine(const struct keeper_start *s, struct err *e);
