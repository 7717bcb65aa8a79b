/* SPDX-License-Identifier: Apache-2.0 */
/* Reads YAML trees into a policy, key by key as the schema says. */
#pragma once

#include "policy/policy.h"
#include "policy/schema.h"
#include "policy/yaml-tree.h"

/*
 * Checks every key of `root` against `keys` and stores its value in `p` or `f`: single values
 * replace existing ones, lists are joined. Reports all errors in `d`. Rules without a port get
 * f->ports.
 */
void policy_read(struct policy *p, struct policy_file *f, const struct key *keys,
		 const struct yaml_node *root, struct diags *d);

/*
 * Adds the packages, scripts and environment of the capability presets that `p` names, their
 * scripts before the existing ones. For files that are not agents.
 */
void policy_add_capabilities(struct policy_store *store, struct policy *p, struct diags *d);

/* Fills in the form and format of each secret that no file has set. */
void policy_finish_secrets(struct policy *p);

/* Binds the secrets that rules of `llm` name and `secrets` does not. Before
 * policy_finish_secrets().
 */
void policy_finish_llm(struct policy *p, struct diags *d);

/* Gives fields that no file has set the schema's fallbacks. */
void policy_read_fallbacks(struct policy *p, const struct key *keys, struct diags *d);
