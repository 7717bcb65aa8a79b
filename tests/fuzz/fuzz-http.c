/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a request, cut at every place, and the guess whether bytes are a request. */
#include <string.h>

#include "egress/http.h"
#include "egress/peek.h"
#include "fuzz.h"

static bool is_tapped(void *arg, const struct name *name)
{
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct target t = { .port = 80, .name = { 5, "a.com" } };
	const char *s = (const char *)data, *why = NULL;
	char detail[PEEK_DETAIL_MAX];
	struct http_head h = { 0 }, part;
	struct http_reading whole = { 0 }, rd = { 0 }, other = { 0 };
	int r = http_parse(&whole, s, size, &h, &why), looks = http_looks_like(s, size);
	size_t step = size / 64 + 1;

	assert(r >= 0 || (r == -EBADMSG && why));
	if (r == 1) {
		assert(h.host >= s && h.host + h.host_len <= s + size);
		assert(!memchr(h.host, '\0', h.host_len) && !memchr(h.host, '\n', h.host_len));
		/* Input that a server would take for a request must not pass as anything else. */
		assert(looks == 1);
	}
	for (size_t n = 0; n < size; n += step) {
		int k = http_parse(&rd, s, n, &part, &why);

		assert(k <= 0 || (r == 1 && part.host == h.host && part.host_len == h.host_len));
		assert(k >= 0 || r < 0);
		if (k != 0)
			rd = (struct http_reading){ 0 };
		k = http_looks_like(s, n);
		assert(k == 0 || k == looks);
	}
	rd = (struct http_reading){ 0 };
	if (peek(RULE_PROTO_HTTP, &t, &rd, data, size, false, detail) == PEEK_PASS)
		assert(r == 1 && h.host_len >= 5 && strncasecmp(h.host, "a.com", 5) == 0);
	(void)peek(RULE_PROTO_ANY, &t, &other, data, size, true, detail);
	rd = (struct http_reading){ 0 };
	assert(peek_around(is_tapped, NULL, &t, &rd, data, size, true, detail) == PEEK_REFUSE ||
	       looks <= 0);
	return 0;
}
