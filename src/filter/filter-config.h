/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration of hutch-filter: JSON
 *	{"action": "redact", "rules": ["secrets", ...], "values": {"NAME": "value", ...}}
 * Rules are names of rules or of groups.
 */
#pragma once

#include "filter/filter.h"

struct filter_setup {
	enum filter_action action;
	struct filter *filter;
};

/* Reads `n` bytes and compiles the filter; the caller frees ret->filter. */
int filter_config_read(const struct filter_rules *rules, const char *text, size_t n,
		       struct filter_setup *ret, struct err *e);
