/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A DNS query. For any input, the reply is short, repeats the query's id and question byte for
 * byte, and has the response bit set, so that no server replies to it. The parsed name matches the
 * bytes of the query.
 */
#include <string.h>

#include "base/str.h"
#include "egress/dns.h"
#include "fuzz.h"

enum {
	HEADER = 12
};

/* Parses the name a second time: labels joined by dots. */
static void check_name(const struct dns_query *q)
{
	const uint8_t *p = q->question;
	size_t at = 0;

	for (; *p; p += *p + 1) {
		if (at > 0)
			assert(q->text[at++] == '.');
		for (size_t i = 1; i <= *p; i++)
			assert(q->text[at++] == ascii_lower((char)p[i]));
	}
	assert(at == q->len && q->text[at] == '\0');
}

static void check_answer(const struct dns_query *q, const struct dns_answer *a)
{
	_cleanup_buf_ struct buf b = BUF_INIT(DNS_ANSWER_MAX);
	struct dns_query again;
	const uint8_t *p;

	dns_put_answer(&b, q, a);
	assert(b.err == 0 && b.len >= HEADER);
	p = (const uint8_t *)b.data;
	assert((p[0] << 8 | p[1]) == q->id && (p[3] & 0xf) == (a->rcode & 0xf));
	if (q->question)
		assert(memcmp(p + HEADER, q->question, q->question_len) == 0);
	assert(dns_parse(b.data, b.len, &again) == -EBADMSG);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct dns_answer answers[] = { { .rcode = DNS_NOERROR },
					{ .addr = 0xc6120102 },
					{ .rcode = DNS_NXDOMAIN, .reason = "not on the list" },
					{ .rcode = DNS_SERVFAIL } };
	struct dns_query q;
	uint32_t addr;
	int r = dns_parse(data, size, &q);

	if (r < 0)
		return 0;
	assert(q.question || r != DNS_NOERROR);
	if (q.question && q.plain)
		check_name(&q);
	if (q.question && dns_reverse(&q, &addr) == 0)
		assert(q.plain);
	if (r != DNS_NOERROR)
		check_answer(&q, &(const struct dns_answer){ .rcode = (enum dns_rcode)r });
	for (size_t i = 0; i < ARRAY_SIZE(answers) && r == DNS_NOERROR; i++)
		check_answer(&q, &answers[i]);
	return 0;
}
