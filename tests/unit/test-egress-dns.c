/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "egress/dns.h"

enum {
	HEADER = 12
};

#define HEAD(flags, qd, ar) "\x12\x34" flags "\0" qd "\0\0\0\0\0" ar
#define QUERY		    HEAD("\x01\x10", "\x01", "\0")
#define QUERY_OPT	    HEAD("\x01\x00", "\x01", "\x01")
#define NAME		    "\3WwW\7ExAmPlE\3com\0"
#define IN_A		    "\0\1\0\1"
#define OPT		    "\0\0\x29\x04\xd0\0\0\x80\0\0\0"

/* Parses a literal with its length, from memory of exactly that size. */
#define PARSE(text, q) parse(text, sizeof(text) - 1, q)

static char *bytes; /* the buffer that the last query points into */

static int parse(const char *text, size_t n, struct dns_query *q)
{
	free(bytes);
	bytes = unit_copy(text, n);
	return dns_parse(bytes, n, q);
}

static int done(void **state)
{
	free(bytes);
	bytes = NULL;
	return 0;
}

TEST(a_question_is_read)
{
	struct dns_query q;

	assert_int_equal(PARSE(QUERY NAME IN_A, &q), DNS_NOERROR);
	assert_string_equal(q.text, "www.example.com");
	assert_int_equal(q.len, 15);
	assert_int_equal(q.type, DNS_A);
	assert_true(q.plain && !q.edns);
	assert_int_equal(q.id, 0x1234);

	assert_int_equal(PARSE(QUERY_OPT NAME IN_A OPT, &q), DNS_NOERROR);
	assert_true(q.edns && q.dnssec);
	/* A cookie, which the parser ignores. */
	assert_int_equal(PARSE(QUERY_OPT NAME IN_A "\0\0\x29\x10\0\0\0\0\0\0\x0c\0\x0a\0\x08"
						   "12345678",
			       &q),
			 DNS_NOERROR);
	assert_true(q.edns && !q.dnssec);
	assert_int_equal(PARSE(QUERY "\0\0\2\0\1", &q), DNS_NOERROR);
	assert_true(q.plain && q.len == 0 && q.type == 2);
}

TEST(odd_names_are_not_plain)
{
	struct dns_query q;

	/* A dot inside a label must not make it "a.b.com". */
	assert_int_equal(PARSE(QUERY "\3a.b\3com\0" IN_A, &q), DNS_NOERROR);
	assert_true(!q.plain && q.len == 0);
	assert_int_equal(PARSE(QUERY "\3a\0b\3com\0" IN_A, &q), DNS_NOERROR);
	assert_false(q.plain);
	assert_int_equal(PARSE(QUERY "\3\xc3\xa4!\3com\0" IN_A, &q), DNS_NOERROR);
	assert_false(q.plain);
	assert_int_equal(PARSE(QUERY "\5_http\4_tcp\3com\0" IN_A, &q), DNS_NOERROR);
	assert_true(q.plain);
	assert_string_equal(q.text, "_http._tcp.com");
}

TEST(the_longest_name)
{
	char text[HEADER + 4 * 64 + 8] = QUERY;
	struct dns_query q;
	char *p = text + HEADER;

	/* 3 * 64 + 62 + 1 is 255: the maximum, 253 characters of text. */
	for (size_t i = 0; i < 4; i++) {
		size_t n = i < 3 ? 63 : 61;

		*p++ = (char)n;
		memset(p, 'a', n);
		p += n;
	}
	memcpy(p, "\0" IN_A, 5);
	assert_int_equal(parse(text, HEADER + 255 + 4, &q), DNS_NOERROR);
	assert_int_equal(q.len, NAME_TEXT_MAX);

	text[HEADER + 3 * 64] = 62;
	memcpy(p, "a\0" IN_A, 6);
	assert_int_equal(parse(text, HEADER + 256 + 4, &q), DNS_FORMERR);
	assert_null(q.question);
}

TEST(wrong_queries)
{
	struct dns_query q;

	assert_int_equal(PARSE("", &q), -EBADMSG);
	assert_int_equal(parse(QUERY, HEADER - 1, &q), -EBADMSG);
	assert_int_equal(PARSE(HEAD("\x81\x00", "\x01", "\0") NAME IN_A, &q), -EBADMSG);
	assert_int_equal(PARSE(HEAD("\x29\x00", "\x01", "\0") NAME IN_A, &q), DNS_NOTIMP);
	assert_int_equal(PARSE(HEAD("\x01\x00", "\x00", "\0"), &q), DNS_FORMERR);
	assert_int_equal(PARSE(HEAD("\x01\x00", "\x02", "\0") NAME IN_A NAME IN_A, &q),
			 DNS_FORMERR);
	assert_int_equal(PARSE(HEAD("\x01\x00", "\x01", "\x02") NAME IN_A OPT OPT, &q),
			 DNS_FORMERR);
	assert_int_equal(PARSE(QUERY NAME IN_A "x", &q), DNS_FORMERR);
	assert_int_equal(PARSE(QUERY NAME "\0\1\0", &q), DNS_FORMERR);
	assert_int_equal(PARSE(QUERY "\xc0\x0c" IN_A, &q), DNS_FORMERR);
	assert_int_equal(PARSE(QUERY "\3www\xc0\x0c" IN_A, &q), DNS_FORMERR);
	assert_int_equal(PARSE(QUERY "\x40", &q), DNS_FORMERR);
	assert_int_equal(PARSE(QUERY "\3ww", &q), DNS_FORMERR);
	assert_int_equal(PARSE(QUERY_OPT NAME IN_A, &q), DNS_FORMERR);
	assert_int_equal(PARSE(QUERY_OPT NAME IN_A OPT "x", &q), DNS_FORMERR);
	assert_int_equal(PARSE(QUERY_OPT NAME IN_A "\0\0\xfa\x04\xd0\0\0\0\0\0\0", &q),
			 DNS_FORMERR); /* TSIG */
	assert_int_equal(PARSE(QUERY_OPT NAME IN_A "\0\0\x29\x04\xd0\0\1\0\0\0\0", &q),
			 DNS_BADVERS);
	assert_int_equal(PARSE(QUERY NAME "\0\1\0\3", &q), DNS_NOTIMP); /* CHAOS */
}

static void check(const struct dns_query *q, const struct dns_answer *a, const char *want, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(DNS_ANSWER_MAX);

	dns_put_answer(&b, q, a);
	assert_int_equal(b.err, 0);
	assert_int_equal(b.len, n);
	assert_memory_equal(b.data, want, n);
}

#define CHECK(q, want, ...) \
	check(q, &(const struct dns_answer){ __VA_ARGS__ }, want, sizeof(want) - 1)
#define ANSWER(flags, an, ns, ar) "\x12\x34" flags "\0\1\0" an "\0" ns "\0" ar NAME IN_A
#define SOA			  "\0\0\6\0\1\0\0\0\5\0\x16\0\0\0\0\0\1\0\0\x0e\x10\0\0\2\x58\0\1\x51\x80\0\0\0\5"

TEST(answers)
{
	static const uint8_t one[16] = { [15] = 1 };
	const struct name name = { .len = 3, .text = "a.b" };
	struct dns_query q;

	assert_int_equal(PARSE(QUERY NAME IN_A, &q), 0);
	/* The question is returned unchanged: some clients mix its case to recognise their
	 * answers. */
	CHECK(&q,
	      ANSWER("\x81\x90", "\1", "\0", "\0") "\xc0\x0c\0\1\0\1\0\0\x01\x2c\0\4\xc6\x12\1\2",
	      .addr = 0xc6120102);
	CHECK(&q,
	      ANSWER("\x81\x90", "\1", "\0",
		     "\0") "\xc0\x0c\0\x1c\0\1\0\0\x01\x2c\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1",
	      .addr6 = one);
	CHECK(&q, ANSWER("\x81\x90", "\1", "\0", "\0") "\xc0\x0c\0\x0c\0\1\0\0\x01\x2c\0\5\1a\1b\0",
	      .name = &name);
	CHECK(&q, ANSWER("\x81\x90", "\0", "\1", "\0") SOA, .rcode = DNS_NOERROR);
	CHECK(&q, ANSWER("\x81\x93", "\0", "\1", "\0") SOA, .rcode = DNS_NXDOMAIN, .reason = "no");
	CHECK(&q, ANSWER("\x81\x92", "\0", "\0", "\0"), .rcode = DNS_SERVFAIL);
}

TEST(answers_with_edns)
{
	struct dns_query q;

	assert_int_equal(PARSE(QUERY_OPT NAME IN_A OPT, &q), 0);
	CHECK(&q,
	      ANSWER("\x81\x83", "\0", "\1", "\1") SOA
	      "\0\0\x29\4\xd0\0\0\x80\0\0\x08\0\x0f\0\4\0\x0fno",
	      .rcode = DNS_NXDOMAIN, .reason = "no");
	assert_int_equal(PARSE(QUERY_OPT NAME IN_A "\0\0\x29\x04\xd0\0\1\0\0\0\0", &q),
			 DNS_BADVERS);
	CHECK(&q, ANSWER("\x81\x80", "\0", "\0", "\1") "\0\0\x29\4\xd0\1\0\0\0\0\0",
	      .rcode = DNS_BADVERS);
	/* A malformed query is answered without its question. */
	assert_int_equal(PARSE(QUERY "\xc0\x0c" IN_A, &q), DNS_FORMERR);
	CHECK(&q, "\x12\x34\x81\x91\0\0\0\0\0\0\0\0", .rcode = DNS_FORMERR);
}

TEST(the_longest_answer_fits)
{
	_cleanup_buf_ struct buf b = BUF_INIT(DNS_ANSWER_MAX);
	char text[HEADER + 255 + 4 + 11] = QUERY_OPT;
	char reason[2 * DNS_REASON_MAX];
	struct dns_query q;

	for (size_t i = 0; i < 127; i++)
		memcpy(text + HEADER + 2 * i, "\1a", 2);
	memcpy(text + HEADER + 254, "\0" IN_A OPT, 16);
	memset(reason, 'r', sizeof(reason));
	assert_int_equal(parse(text, sizeof(text), &q), 0);
	dns_put_answer(&b, &q,
		       &(const struct dns_answer){ .rcode = DNS_NXDOMAIN, .reason = reason });
	assert_int_equal(b.err, 0);
}

TEST(reverse_names)
{
	static const struct {
		const char *text;
		int r;
		uint32_t addr;
	} cases[] = {
		{ "1.2.18.198.in-addr.arpa", 0, 0xc6120201 },
		{ "255.255.255.255.in-addr.arpa", 0, 0xffffffff },
		{ "256.2.18.198.in-addr.arpa", -EINVAL, 0 },
		{ "01.2.18.198.in-addr.arpa", -EINVAL, 0 },
		{ "2.18.198.in-addr.arpa", -EINVAL, 0 },
		{ "0.1.2.18.198.in-addr.arpa", -EINVAL, 0 },
		{ "1.2.18.198.ip6.arpa", -EINVAL, 0 },
		{ "1.2.18.198", -EINVAL, 0 },
		{ "", -EINVAL, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct dns_query q = { .len = (uint8_t)strlen(cases[i].text) };
		uint32_t addr = 0;

		memcpy(q.text, cases[i].text, q.len);
		assert_int_equal(dns_reverse(&q, &addr), cases[i].r);
		assert_true(addr == cases[i].addr);
	}
}

int main(void)
{
	return unit_run(NULL, done);
}
