/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules and targets. A rule is what a policy writes:
 *
 *	github.com		that name
 *	.sentry.io		that name and every name below it
 *	192.0.2.7, 10.1.0.0/16, [2001:db8::1]	an address or a network, for requests that name an
 *address any of them with :PORT	on that port only
 *	NAME:PORT/PROTOCOL	what must be spoken there: tls, tls+ech, http, or tcp for anything
 *	NAME:PORT/private, NAME:PORT/PROTOCOL/private	the name may have private addresses
 *
 * A target is what a program asks for: one name or one address, and a port.
 */
#pragma once

#include "addr.h"
#include "name.h"

enum rule_kind {
	RULE_NAME,
	RULE_SUBTREE,
	RULE_ADDR,
};

enum {
	RULE_TEXT_MAX = NAME_TEXT_MAX + 24
};

/* What a stream is held to before its first byte goes out. */
enum rule_proto {
	RULE_PROTO_DEFAULT, /* by the port: TLS, HTTP or ANY */
	RULE_PROTO_ANY,	    /* what looks like TLS or HTTP is held to it; the rest passes */
	RULE_PROTO_TLS,
	RULE_PROTO_HTTP,
	RULE_PROTO_TLS_ECH, /* TLS that may encrypt its ClientHello */
	RULE_PROTO_TCP,	    /* nothing is looked at */
	RULE_PROTO_MAX,
};

struct rule {
	enum rule_kind kind;
	uint16_t port;	       /* 0: the rule names none */
	enum rule_proto proto; /* DEFAULT also where the suffix says what the port means anyway */
	bool private; /* a name only: private addresses (ADDR_PRIVATE) may be dialled too */
	struct name name;
	struct addr addr;
};

struct target {
	bool is_addr;
	uint16_t port;
	struct name name; /* exactly one of both */
	struct addr addr;
};

/*
 * Read exactly `n` bytes. -EINVAL with a message that says what was expected, and what was probably
 * meant.
 */
int rule_parse(const char *s, size_t n, struct rule *ret, struct err *e);

/* NAME:PORT; the port is required. The text form that `hutch config explain` and CONNECT use. */
int target_parse(const char *s, size_t n, struct target *ret, struct err *e);

/* A decimal number from 1 to 65535 and nothing else. */
int port_parse(const char *s, size_t n, uint16_t *ret, struct err *e);

/* The canonical text of the rule without its port. */
const char *rule_format_host(const struct rule *r, char out[static RULE_TEXT_MAX]);

/* The same with ":PORT", "/PROTOCOL" and "/private" where the rule has them. */
const char *rule_format(const struct rule *r, char out[static RULE_TEXT_MAX]);

/* Are both about the same host and port, whatever else they say? */
bool rule_same_place(const struct rule *a, const struct rule *b);

/* What a stream that rule `r` allows is held to; never RULE_PROTO_DEFAULT. */
enum rule_proto rule_proto(const struct rule *r);

/* "tls", "http", ... as in a rule; "any" for what has no suffix. */
const char *rule_proto_name(enum rule_proto p);
