/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one YAML tree into a policy, key by key as the schema says. */
#pragma once

#include "policy.h"
#include "schema.h"
#include "yaml-tree.h"

/*
 * Checks every key of `root` against `keys` and writes what it says into `p` and `f`: single values
 * replace what is there, lists are joined. Goes on after errors; what is wrong goes to `d`. Rules
 * without a port get f->ports.
 */
void policy_read(struct policy *p, struct policy_file *f, const struct key *keys,
		 const struct yaml_node *root, struct diags *d);

/* Fills in what no file has written, from the schema's fallbacks. */
void policy_read_fallbacks(struct policy *p, const struct key *keys, struct diags *d);
