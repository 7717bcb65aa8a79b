/* SPDX-License-Identifier: Apache-2.0 */
/* Reference of all keys and presets, generated from the compiler's tables and the store. */
#pragma once

#include "base/json-util.h"
#include "policy/policy.h"

/* Writes the reference as Markdown. */
int policy_docs(struct policy_store *store, struct buf *out, struct err *e);

/*
 * {"agent": [{key, type, default, doc, ...}], "presets": {"egress": {"keys": [...], "list":
 * [...]}}, ...}
 */
int policy_docs_json(struct policy_store *store, json_t **ret, struct err *e);

/* The presets of one kind: [{name, summary, file, risk}]. */
int policy_presets_json(struct policy_store *store, enum preset_kind kind, json_t **ret,
			struct err *e);
