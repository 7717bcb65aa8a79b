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

/*
 * Reads the capability presets that `p` names, for files that are not agents: their packages,
 * scripts and environment join what is there, the scripts in front.
 */
void policy_add_capabilities(struct policy_store *store, struct policy *p, struct diags *d);

/* Fills in what no file has written, from the schema's fallbacks. */
void policy_read_fallbacks(struct policy *p, const struct key *keys, struct diags *d);
