/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses may be dialled at all. */
#pragma once

#include "names/match.h"

/*
 * Checks an address that a name resolved to. It must be public, or private (ADDR_PRIVATE only) if
 * the name's rule has `private`, and no rule may deny it. NULL, or the reason for the refusal.
 */
const char *check_resolved(const struct ruleset *rules, const struct addr *a, uint16_t port,
			   bool private);

/*
 * Checks an address that a rule names. It may be in the host's network or the host itself, but
 * never a metadata service, embedded IPv4, multicast or 0.0.0.0/8. NULL, or the reason for the
 * refusal.
 */
const char *check_literal(const struct addr *a);
