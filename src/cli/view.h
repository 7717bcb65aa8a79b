/* SPDX-License-Identifier: Apache-2.0 */
/* Formats numbers, times and reasons for people. */
#pragma once

#include "cli/cli.h"
#include "policy/value.h"
#include "state/end.h"
#include "state/spec.h"

#define VIEW_TOLD ", " AGENT_WORD

/* "312 B", "1.5 KiB", "120 MiB": rounded. Use value_format_size() for limits, which are exact. */
void view_size(uint64_t bytes, char *out, size_t n);

/* "5s", "3m", "2h", "4d": the time since `then` (clock_wall()), rounded down. */
const char *view_age(uint64_t then, char out[static VALUE_HINT_MAX]);

/* "1", "0.5": processors from thousandths. */
const char *view_cpus(uint64_t thousandths, char out[static VALUE_HINT_MAX]);

/* Why a sandbox ended: "ttl of 8h reached". */
void view_end(const struct spec *spec, const struct end *end, char *out, size_t n);

/* Reads --since: a time of day, or how long ago. EXIT_OK or EXIT_USAGE. */
int cli_since(const struct invocation *inv, uint64_t *ret);

/* For a target without a rule: prints the ports on which the host is allowed, and presets that
 * would allow it. */
void view_alternatives(const struct explanation *x);
