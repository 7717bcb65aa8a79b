/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the policy's defaults to a client's request. */
#pragma once

#include "state/spec.h"
#include "wire/message.h"

struct keeper;

/* Returns the spec's environment sorted by name; the caller frees it. NULL: no memory. */
const char **merge_index(const struct spec *s);

/* Builds the OPEN for the guest. Errors stay in `b`, whose maximum limits the size. */
void merge_open(const struct keeper *k, enum wire_op op, const struct fields *f, struct buf *b);
