/* SPDX-License-Identifier: Apache-2.0 */
/* Deadlines on the command line. Functions return EXIT_OK or EXIT_USAGE. */
#pragma once

#include "cli/cli.h"
#include "state/spec.h"

/* Parses a time of at most 49 days into ms; `what` names it in messages. */
int cli_take_time(const struct invocation *inv, const char *what, const char *text, uint64_t *ret);

/* Reads --on-timeout; *ret is unchanged without it. */
int cli_take_on_timeout(const struct invocation *inv, enum on_timeout *ret);
