/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands that look at sandboxes share. */
#pragma once

#include "cli.h"
#include "sandbox.h"

/* The state of all sandboxes, with what dead ones left taken back. */
int cli_state_open(struct state_root *ret, struct err *e);

/* receipt.json; the caller owns *ret. -ENOENT if it never ran. */
int cli_receipt_read(const struct sandbox *b, json_t **ret, struct err *e);
