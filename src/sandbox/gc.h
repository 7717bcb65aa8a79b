/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to sandbox/: what `hutch gc` reclaims besides sandboxes. */
#pragma once

#include "sandbox/sandbox.h"

int gc_groups(const struct state_root *root, const struct sandbox_gc *gc, struct err *e);
int gc_ids(const struct state_root *root, const struct sandbox_gc *gc, struct err *e);
int gc_images(const struct sandbox_gc *gc, struct err *e);
int gc_snapshots(const struct sandbox_gc *gc, struct err *e);
int gc_ledgers(const struct state_root *root, const struct sandbox_gc *gc, struct err *e);
