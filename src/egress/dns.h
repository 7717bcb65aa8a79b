/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of DNS that a stub resolver in a sandbox needs (RFC 1035, EDNS of RFC 6891, errors of
 * RFC 8914): one question in, one answer out. An answer has one address or name, or nothing; a
 * negative answer has an SOA, so that programs need not retry and know how long it is valid. No
 * answer exceeds 512 bytes, so none is truncated.
 */
#pragma once

#include "base/buf.h"
#include "names/name.h"

enum {
	DNS_QUERY_MAX = 1232, /* also the maximum that we advertise */
	DNS_ANSWER_MAX = 512,
	DNS_REASON_MAX = 128,
	DNS_TTL = 300,	      /* an address is valid for the life of the sandbox */
	DNS_TTL_NEGATIVE = 5, /* the policy may change */
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

/* A parsed query. Points into the packet, which must outlive it. */
struct dns_query {
	uint16_t id, flags, type;
	const uint8_t *question; /* name, type and class as received; NULL: not understood */
	size_t question_len;
	bool edns, dnssec;
	char text[NAME_TEXT_MAX +
		  1]; /* the name in lower case; "" for the root or if not `plain` */
	uint8_t len;
	bool plain; /* only characters of host names, or underscores */
};

/*
 * Parses one query. DNS_NOERROR, or an error code to answer with; or -EBADMSG if no answer is due:
 * no header, or not a query. *ret is written except on -EBADMSG.
 */
int dns_parse(const void *data, size_t n, struct dns_query *ret);

/* The answer to send. All zero: the name exists but has no such record. */
struct dns_answer {
	enum dns_rcode rcode;
	uint32_t addr;		 /* A, in the host's byte order; 0: none */
	const uint8_t *addr6;	 /* AAAA: 16 bytes; NULL: none */
	const struct name *name; /* PTR; NULL: none */
	const char *reason; /* why it is blocked, up to DNS_REASON_MAX bytes; NULL: not blocked */
};

/* Appends the answer, at most DNS_ANSWER_MAX bytes; errors stay in `b`. */
void dns_put_answer(struct buf *b, const struct dns_query *q, const struct dns_answer *a);

/* The address of "4.3.2.1.in-addr.arpa", in the host's byte order. -EINVAL for other names. */
int dns_reverse(const struct dns_query *q, uint32_t *ret);
