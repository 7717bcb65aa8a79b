/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a keeper may dial at most, as entries of the guard's trie (dial-programs.h): the ports of
 * the allow rules at public addresses, at private ones too where a rule says so, the addresses that
 * rules name, and what the host's own configuration names: its resolvers and its proxy. Which name
 * may be reached at a port, and what is denied or narrowed, is the broker's to know: the guard is
 * an upper bound that does not trust it.
 */
#pragma once

#include "names/rule.h"
#include "state/spec.h"

enum {
	DIAL_ENTRIES_MAX = 256 * 1024, /* more than there are ports and rules; taken as needed */
};

struct dial_rules {
	const struct spec_list *allow; /* none: nothing is dialled */
	const struct spec_list *more;  /* that the operator has added; NULL: none */
	const char *proxy;	       /* HOST:PORT by which all of it goes; "" or NULL: none */
	const struct target *servers;  /* of DNS: addresses */
	size_t n_servers;
};

/* Fills an empty trie. 0, or -errno with a message. */
int dial_rules_put(int map, const struct dial_rules *rules, struct err *e);

/* Adds what one more allow rule wants. Nothing else is lost. 0 or -errno. */
int dial_rules_add(int map, const struct rule *rule);
