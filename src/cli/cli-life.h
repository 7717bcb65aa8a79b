/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines on the command line. EXIT_OK or EXIT_USAGE. */
#pragma once

#include "cli/cli.h"
#include "state/spec.h"

/* A time of at most 49 days, in ms; `what` is how messages call it. */
int cli_take_time(const struct invocation *inv, const char *what, const char *text, uint64_t *ret);

/* --on-timeout; *ret stays as it is where that was not given. */
int cli_take_on_timeout(const struct invocation *inv, enum on_timeout *ret);
