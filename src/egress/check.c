/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/check.h"

const char *check_resolved(const struct ruleset *rules, const struct addr *a, uint16_t port,
			   bool private)
{
	struct target t = { .is_addr = true, .port = port, .addr = *a };
	enum addr_class class = addr_classify(a);

	if (class != ADDR_PUBLIC && !(class == ADDR_PRIVATE && private))
		return addr_class_name(class);
	return ruleset_check(rules, &t).deny ? "denied by a rule for its address" : NULL;
}

const char *check_literal(const struct addr *a)
{
	enum addr_class class = addr_classify(a);

	if (class == ADDR_METADATA || class == ADDR_EMBEDDED || class == ADDR_MULTICAST)
		return addr_class_name(class);
	/* 0.0.0.0 is this host; nothing else in 0.0.0.0/8 answers. */
	return a->family == 4 && a->bytes[0] == 0 ? addr_class_name(class) : NULL;
}
