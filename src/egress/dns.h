/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of DNS (RFC 1035, EDNS of RFC 6891, errors of RFC 8914) that a stub in a sandbox needs:
 * one question in, one answer out. Answers hold one address or name, or nothing; what is not there
 * comes with an SOA, so that programs know it at once and for how long. None is longer than 512
 * bytes, so nothing is ever truncated.
 */
#pragma once

#include "buf.h"
#include "name.h"

enum {
	DNS_QUERY_MAX = 1232, /* also what we say that we take */
	DNS_ANSWER_MAX = 512,
	DNS_REASON_MAX = 128,
	DNS_TTL = 300,	      /* an address stays for the life of the sandbox */
	DNS_TTL_NEGATIVE = 5, /* a policy may change */
};

enum dns_rcode {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_BADVERS = 16,
};

enum dns_type {
	DNS_A = 1,
	DNS_SOA = 6,
	DNS_PTR = 12,
	DNS_AAAA = 28,
	DNS_OPT = 41,
	DNS_ANY = 255,
};

/* What was asked. Points into the query, which must outlive it. */
struct dns_query {
	uint16_t id, flags, type;
	const uint8_t *question; /* name, type and class, as they came; NULL: not understood */
	size_t question_len;
	bool edns, dnssec;
	char text[NAME_TEXT_MAX +
		  1]; /* the name, lower case; "" for the root or where not `plain` */
	uint8_t len;
	bool plain; /* has only what a host's name may have in it, or an underscore */
};

/*
 * Reads one query. DNS_NOERROR, or what is to be answered without looking at the question; or
 * -EBADMSG for what deserves no answer: no header, or not a query. *ret is written but for
 * -EBADMSG.
 */
int dns_parse(const void *data, size_t n, struct dns_query *ret);

/* What to answer. All zero: no such record, but the name exists. */
struct dns_answer {
	enum dns_rcode rcode;
	uint32_t addr;		 /* A, in the host's byte order; 0: none */
	const uint8_t *addr6;	 /* AAAA: 16 bytes; NULL: none */
	const struct name *name; /* PTR; NULL: none */
	const char *reason; /* why it is blocked: up to DNS_REASON_MAX bytes; NULL: it is not */
};

/* Appends the answer, at most DNS_ANSWER_MAX bytes; errors stay in `b`. */
void dns_put_answer(struct buf *b, const struct dns_query *q, const struct dns_answer *a);

/* The address of "4.3.2.1.in-addr.arpa", in the host's byte order. -EINVAL for other names. */
int dns_reverse(const struct dns_query *q, uint32_t *ret);
