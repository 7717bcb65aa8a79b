/* SPDX-License-Identifier: Apache-2.0 */
/* The policy's defaults in what a client asks for. */
#pragma once

#include "state/spec.h"
#include "wire/message.h"

struct keeper;

/* The environment of the spec sorted by name; the caller frees it. NULL without memory. */
const char **merge_index(const struct spec *s);

/* The OPEN for the guest; errors stay in `b`, whose maximum is its size's. */
void merge_open(const struct keeper *k, enum wire_op op, const struct fields *f, struct buf *b);
