/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes every privilege from the keeper that serving does not need; confine.c begins with the
 * stages. 0 or -errno: after an error the keeper must exit without having read a byte.
 */
#pragma once

#include "keeper/keeper.h"

/* First: closes all file descriptors but 2 and those named in `s`. Afterwards the keeper makes its
 * loop, which keeper_confine() forbids. */
int keeper_confine_fds(const struct keeper_start *s, struct err *e);
/* Next: checks that the dial guard refuses, if there is one. */
int keeper_try_guard(const struct keeper_start *s, struct err *e);
/* Last. */
int keeper_confine(const struct keeper_start *s, struct err *e);
