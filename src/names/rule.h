/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules and targets. A policy contains rules:
 *
 *	github.com		that name
 *	.sentry.io		that name and every name below it
 *	192.0.2.7, 10.1.0.0/16, [2001:db8::1]	an address or network, for requests by address
 *	any of them with :PORT	on that port only
 *	NAME:PORT/PROTOCOL	the required protocol: tls, tls+ech, http, or tcp for anything
 *	NAME:PORT/private, NAME:PORT/PROTOCOL/private	the name may have private addresses
 *
 * A program requests a target: one name or one address, and a port.
 */
#pragma once

#include "names/addr.h"
#include "names/name.h"

enum rule_kind {
	RULE_NAME,
	RULE_SUBTREE,
	RULE_ADDR,
};

enum {
	RULE_TEXT_MAX = NAME_TEXT_MAX + 24
};

/* The protocol that a stream is checked against before its first byte leaves. */
enum rule_proto {
	RULE_PROTO_DEFAULT, /* by the port: TLS, HTTP or ANY */
	RULE_PROTO_ANY,	    /* checks TLS and HTTP if recognized; other protocols pass */
	RULE_PROTO_TLS,
	RULE_PROTO_HTTP,
	RULE_PROTO_TLS_ECH, /* TLS that may encrypt its ClientHello */
	RULE_PROTO_TCP,	    /* no checks */
	RULE_PROTO_MAX,
};

struct rule {
	enum rule_kind kind;
	uint16_t port;	       /* 0: the rule names none */
	enum rule_proto proto; /* DEFAULT also if the suffix names the port's own protocol */
	bool private;	       /* names only: private addresses (ADDR_PRIVATE) may be dialled too */
	struct name name;
	struct addr addr;
};

struct target {
	bool is_addr;
	uint16_t port;
	struct name name; /* set unless is_addr; then addr is */
	struct addr addr;
};

/* Parses exactly `n` bytes. -EINVAL with the expected form and, if possible, a suggestion. */
int rule_parse(const char *s, size_t n, struct rule *ret, struct err *e);

/* Parses NAME:PORT, as `hutch config explain` and CONNECT use it; the port is required. */
int target_parse(const char *s, size_t n, struct target *ret, struct err *e);

/* Parses a decimal number from 1 to 65535 and nothing else. */
int port_parse(const char *s, size_t n, uint16_t *ret, struct err *e);

/* Writes the canonical text of the rule without its port. */
const char *rule_format_host(const struct rule *r, char out[static RULE_TEXT_MAX]);

/* The same with the rule's ":PORT", "/PROTOCOL" and "/private". */
const char *rule_format(const struct rule *r, char out[static RULE_TEXT_MAX]);

/* Do both rules have the same host and port? */
bool rule_same_place(const struct rule *a, const struct rule *b);

/* The protocol that `r` requires, with the port's default resolved; never RULE_PROTO_DEFAULT. */
enum rule_proto rule_proto(const struct rule *r);

/* "tls", "http", ... as in a rule; "any" and "default" have no suffix in rules. */
const char *rule_proto_name(enum rule_proto p);
