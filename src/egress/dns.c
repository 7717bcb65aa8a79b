/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/dns.h"

#include <string.h>

#include "base/str.h"

enum {
	HEADER = 12,
	CLASS_IN = 1,
	LABEL_KINDS = 0xc0,
	QUESTION_AT = 0xc000 | HEADER, /* pointer to the queried name */

	/* Bits of the header's second word. */
	FLAG_RESPONSE = 0x8000,
	FLAG_OPCODE = 0x7800,
	FLAG_RECURSION = 0x0100,
	FLAG_AVAILABLE = 0x0080,
	FLAG_UNCHECKED = 0x0010,

	/* Bits of an OPT record's TTL. */
	OPT_VERSION_SHIFT = 16,
	OPT_RCODE_SHIFT = 24,
	OPT_DNSSEC = 0x8000,
	OPTION_ERROR = 15,
	ERROR_BLOCKED = 15,
};

/* ---- queries ---- */

static bool plain_byte(char c)
{
	return ascii_is_lower(c) || ascii_is_digit(c) || c == '-' || c == '_';
}

/* Appends one label. A dot inside a label clears `plain`: it would read as two labels. */
static void add_label(struct dns_query *q, const uint8_t *label, size_t n)
{
	if (q->len > 0)
		q->text[q->len++] = '.';
	for (size_t i = 0; i < n; i++) {
		char c = ascii_lower((char)label[i]);

		q->plain = q->plain && plain_byte(c);
		q->text[q->len++] = c;
	}
}

/* At most 255 bytes with lengths and root (RFC 1035), so at most 253 bytes of text. No pointers:
 * nothing before the question could be pointed to. */
static int read_name(struct reader *r, struct dns_query *q)
{
	const uint8_t *start = r->pos;

	q->plain = true;
	for (;;) {
		size_t n = reader_be(r, 1);
		const uint8_t *label = n & LABEL_KINDS ? NULL : reader_bytes(r, n);

		if (!label || r->pos - start + (n > 0) > NAME_TEXT_MAX + 2)
			return -EBADMSG;
		if (n == 0)
			break;
		add_label(q, label, n);
	}
	if (!q->plain)
		q->len = 0;
	q->text[q->len] = '\0';
	return 0;
}

static int read_question(struct reader *r, struct dns_query *q)
{
	const uint8_t *start = r->pos;
	uint64_t class;

	if (read_name(r, q) < 0)
		return DNS_FORMERR;
	q->type = (uint16_t)reader_be(r, 2);
	class = reader_be(r, 2);
	if (r->err)
		return DNS_FORMERR;
	q->question = start;
	q->question_len = (size_t)(r->pos - start);
	return class == CLASS_IN ? DNS_NOERROR : DNS_NOTIMP;
}

/* The only record that may follow. Its options are ignored. */
static int read_opt(struct reader *r, struct dns_query *q)
{
	uint64_t root = reader_be(r, 1), type = reader_be(r, 2), ttl;

	(void)reader_be(r, 2); /* the client's maximum: more than we send */
	ttl = reader_be(r, 4);
	(void)reader_bytes(r, reader_be(r, 2));
	if (r->err || root != 0 || type != DNS_OPT)
		return DNS_FORMERR;
	q->edns = true;
	q->dnssec = ttl & OPT_DNSSEC;
	return (ttl >> OPT_VERSION_SHIFT & 0xff) == 0 ? DNS_NOERROR : DNS_BADVERS;
}

int dns_parse(const void *data, size_t n, struct dns_query *ret)
{
	struct reader r = reader_of(data, n);
	struct dns_query q = { .id = (uint16_t)reader_be(&r, 2),
			       .flags = (uint16_t)reader_be(&r, 2) };
	uint64_t questions = reader_be(&r, 2), others = reader_be(&r, 4);
	uint64_t more = reader_be(&r, 2);
	int rcode = DNS_NOERROR, opt = DNS_NOERROR;

	if (r.err || (q.flags & FLAG_RESPONSE))
		return -EBADMSG;
	if (q.flags & FLAG_OPCODE)
		rcode = DNS_NOTIMP;
	else if (questions != 1 || others != 0 || more > 1)
		rcode = DNS_FORMERR;
	else
		rcode = read_question(&r, &q);
	if (q.question && more)
		opt = read_opt(&r, &q);
	if (q.question && opt != DNS_FORMERR && reader_finish(&r) < 0)
		opt = DNS_FORMERR;
	*ret = q;
	return opt == DNS_NOERROR ? rcode : opt;
}

/* ---- answers ---- */

static void put_record(struct buf *b, uint16_t type, uint32_t ttl, size_t n)
{
	(void)buf_put_be(b, type, 2);
	(void)buf_put_be(b, CLASS_IN, 2);
	(void)buf_put_be(b, ttl, 4);
	(void)buf_put_be(b, n, 2);
}

/* Labels of a name that name_parse() accepted. */
static void put_name(struct buf *b, const struct name *name)
{
	for (size_t i = 0; i <= name->len;) {
		size_t n = strcspn(name->text + i, ".");

		(void)buf_put_be(b, n, 1);
		(void)buf_put(b, name->text + i, n);
		i += n + 1;
	}
	(void)buf_put_be(b, 0, 1);
}

static void put_found(struct buf *b, const struct dns_answer *a)
{
	(void)buf_put_be(b, QUESTION_AT, 2);
	if (a->addr) {
		put_record(b, DNS_A, DNS_TTL, 4);
		(void)buf_put_be(b, a->addr, 4);
	} else if (a->addr6) {
		put_record(b, DNS_AAAA, DNS_TTL, 16);
		(void)buf_put(b, a->addr6, 16);
	} else {
		put_record(b, DNS_PTR, DNS_TTL, a->name->len + 2U);
		put_name(b, a->name);
	}
}

/* SOA of the root, which is above every name: sets how long a negative answer is valid. */
static void put_soa(struct buf *b)
{
	(void)buf_put_be(b, 0, 1);
	put_record(b, DNS_SOA, DNS_TTL_NEGATIVE, 22);
	(void)buf_put_be(b, 0, 2);    /* server and mailbox: the root */
	(void)buf_put_be(b, 1, 4);    /* serial */
	(void)buf_put_be(b, 3600, 4); /* refresh, retry, expire: used by servers only */
	(void)buf_put_be(b, 600, 4);
	(void)buf_put_be(b, 86400, 4);
	(void)buf_put_be(b, DNS_TTL_NEGATIVE, 4);
}

static void put_opt(struct buf *b, const struct dns_query *q, const struct dns_answer *a)
{
	size_t n = a->reason ? strnlen(a->reason, DNS_REASON_MAX) : 0;
	uint32_t ttl = (uint32_t)a->rcode >> 4 << OPT_RCODE_SHIFT | (q->dnssec ? OPT_DNSSEC : 0);

	(void)buf_put_be(b, 0, 1);
	(void)buf_put_be(b, DNS_OPT, 2);
	(void)buf_put_be(b, DNS_QUERY_MAX, 2);
	(void)buf_put_be(b, ttl, 4);
	(void)buf_put_be(b, a->reason ? n + 6 : 0, 2);
	if (!a->reason)
		return;
	(void)buf_put_be(b, OPTION_ERROR, 2);
	(void)buf_put_be(b, n + 2, 2);
	(void)buf_put_be(b, ERROR_BLOCKED, 2);
	(void)buf_put(b, a->reason, n);
}

void dns_put_answer(struct buf *b, const struct dns_query *q, const struct dns_answer *a)
{
	bool found = a->addr || a->addr6 || a->name;
	bool soa = !found && q->question && (a->rcode == DNS_NOERROR || a->rcode == DNS_NXDOMAIN);
	uint16_t flags = q->flags & (FLAG_OPCODE | FLAG_RECURSION | FLAG_UNCHECKED);

	(void)buf_put_be(b, q->id, 2);
	(void)buf_put_be(b, flags | FLAG_RESPONSE | FLAG_AVAILABLE | (a->rcode & 0xf), 2);
	(void)buf_put_be(b, q->question ? 1 : 0, 2);
	(void)buf_put_be(b, found, 2);
	(void)buf_put_be(b, soa, 2);
	(void)buf_put_be(b, q->edns, 2);
	if (q->question)
		(void)buf_put(b, q->question, q->question_len);
	if (found)
		put_found(b, a);
	if (soa)
		put_soa(b);
	if (q->edns)
		put_opt(b, q, a);
}

/* ---- reverse names ---- */

int dns_reverse(const struct dns_query *q, uint32_t *ret)
{
	const char *s = q->text;
	uint32_t addr = 0;
	uint64_t v;

	for (unsigned int i = 0; i < 4; i++) {
		size_t n = strcspn(s, ".");

		if (str_to_u64(s, n, 255, &v) < 0 || s[n] != '.')
			return -EINVAL;
		addr |= (uint32_t)v << (8 * i);
		s += n + 1;
	}
	if (!str_eq(s, "in-addr.arpa"))
		return -EINVAL;
	*ret = addr;
	return 0;
}
