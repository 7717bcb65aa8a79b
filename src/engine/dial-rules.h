/* SPDX-License-Identifier: Apache-2.0 */
/* The upper bound of what a keeper may dial, as entries of the guard's trie (dial-programs.h): the
 * ports of the allow rules at public addresses, and at private ones where a rule says so; the
 * addresses that rules name; and the host's own resolvers and proxy. The broker decides which name
 * may be reached at a port and applies deny and narrow rules; the guard does not trust it. */
#pragma once

#include "names/rule.h"
#include "state/spec.h"

enum {
	DIAL_ENTRIES_MAX = 256 * 1024, /* more than ports and rules; allocated as needed */
};

struct dial_rules {
	const struct spec_list *allow; /* empty: the keeper may dial nothing */
	const struct spec_list *more;  /* added by the operator; NULL: none */
	const char *proxy;	       /* HOST:PORT for all connections; "" or NULL: none */
	const struct target *servers;  /* addresses of DNS servers */
	size_t n_servers;
};

/* Fills an empty trie. 0, or -errno with a message. */
int dial_rules_put(int map, const struct dial_rules *rules, struct err *e);

/* Adds one allow rule and keeps all entries. 0 or -errno. */
int dial_rules_add(int map, const struct rule *rule);
