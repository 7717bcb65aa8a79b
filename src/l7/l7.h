/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules on HTTP requests: `egress.http` of a policy and the `paths` of a secret. Pure functions,
 * used by the policy compiler, by `hutch config explain` and by hutch-tap.
 *
 * A path is compared in one canonical form. l7_path() makes it, and rejects a path that two servers
 * could read differently, so that no spelling of a path escapes a rule.
 *
 *	pattern = "/" segment *("/" segment)
 *	*	any bytes within one segment, may be a part of it: /v1/model-*
 *	**	only as a whole segment: any number of segments, also none
 *
 * A pattern applies to the path without the query. A slash at the end of either is ignored. A
 * percent-encoding equals the byte it stands for.
 *
 * Some APIs have encoded slashes in paths: /@scope%2Fpackage. Servers read them as a byte of a
 * segment or as a separator, so a request must be allowed in both readings, and a deny rule applies
 * in either. A pattern may have %2F, too, and then has the same two readings.
 */
#pragma once

#include <stdint.h>

#include "names/rule.h"

enum {
	L7_PATH_MAX = 4096,
	L7_PATTERN_MAX = 1024,
	L7_METHOD_MAX = 24,
	L7_METHODS_MAX = 16, /* in a rule */
	L7_PATTERNS_MAX = 256,
	L7_RULES_MAX = 1024,
	L7_RATE_MAX = 1000000, /* requests per minute */
};

/* A list of strings that the caller owns. */
struct l7_list {
	const char *const *v;
	size_t n;
};

struct l7_rule {
	struct rule host;	/* RULE_NAME or RULE_SUBTREE, no port */
	struct l7_list methods; /* empty: every method */
	struct l7_list paths;	/* patterns; empty: every path */
	uint64_t max_body;	/* bytes of a request's body; 0: no limit */
	uint32_t rate;		/* requests per minute that this rule allows; 0: no limit */
	bool deny;
	const char *at; /* FILE:LINE of the policy, for messages; may be "" */
};

struct l7_request {
	const struct name *host;
	const char *method;
	const char *path; /* canonical: l7_path() */
};

struct l7_verdict {
	bool allowed;
	int rule; /* index of the deciding rule, -1: no rule names the host, or none matches */
	int near; /* if denied by no match: the rule of this host to show in a message; else -1 */
};

/* A token in upper case, at most L7_METHOD_MAX bytes. 0 or -EINVAL with a message. */
int l7_method_check(const char *s, size_t n, struct err *e);

/* 0 or -EINVAL with a message. */
int l7_pattern_check(const char *s, size_t n, struct err *e);

/*
 * Writes the canonical form of the path of a request target (origin-form, without query or
 * fragment), at most L7_PATH_MAX bytes and NUL: percent-encoded unreserved characters are decoded,
 * other encodings are in upper case. Rejects, with *ret_why: no leading "/", an empty segment
 * except a last one, "." and ".." in any encoding (segments end at encoded slashes too), a raw ";",
 * non-ASCII bytes, "\" and control bytes, raw or encoded, "%" encoded before an encoding of such
 * bytes (%252F), encoded bytes that are not UTF-8, and a malformed percent-encoding. 0 or -EINVAL.
 */
int l7_path(const char *s, size_t n, char ret[static L7_PATH_MAX + 1], const char **ret_why);

/* Does the pattern match the canonical path? Takes time linear in both, times the stars. */
bool l7_pattern_match(const char *pattern, const char *path);

/* Does some pattern match, in each reading of the path? An empty list does. */
bool l7_patterns_match(const struct l7_list *patterns, const char *path);

/* True if a rule names the host: then its requests are checked. */
bool l7_names(const struct l7_rule *rules, size_t n, const struct name *host);

/*
 * Deny wins. A host that only deny rules name allows everything else; a host that an allow rule
 * names allows only what an allow rule matches; a host that no rule names allows everything.
 */
struct l7_verdict l7_check(const struct l7_rule *rules, size_t n, const struct l7_request *r);

/* "GET, HEAD /repos/acme": the rule without its host, for messages. Cut at `size`. */
const char *l7_rule_format(const struct l7_rule *r, char *out, size_t size);
