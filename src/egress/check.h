/* SPDX-License-Identifier: Apache-2.0 */
/* Which addresses may be dialled at all. */
#pragma once

#include "match.h"

/*
 * An address that a name resolved to: only public ones, and if the rule for the name has `private`
 * also private ones (ADDR_PRIVATE, no other class), that no rule denies. NULL, or what is wrong
 * with it.
 */
const char *check_resolved(const struct ruleset *rules, const struct addr *a, uint16_t port,
			   bool private);

/*
 * An address that a rule allowed by naming it: also one of the own network or host, but never a
 * metadata service, IPv4 in disguise, multicast or "this host". NULL, or what is wrong with it.
 */
const char *check_literal(const struct addr *a);
