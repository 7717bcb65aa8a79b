/* SPDX-License-Identifier: Apache-2.0 */
/* A form, whole and in pieces: both give the same result. The first byte is the length of a
 * piece, the first line after it the Content-Type. */
#include <string.h>

#include "envd/multipart.h"
#include "fuzz.h"

enum {
	OUT_MAX = 1 << 20,
};

/* All callbacks, as text. */
static int render(const char *type, const char *body, size_t n, size_t step, struct buf *out)
{
	struct multipart m;
	struct err e = ERR_INIT;
	int r = multipart_init(&m, type, &e);

	if (r < 0)
		return r;
	for (size_t at = 0; at < n && r >= 0; at += step) {
		const char *data = body + at, *part = NULL;
		size_t left = MIN(step, n - at), k = 0;

		while ((r = multipart_next(&m, &data, &left, &part, &k, &e)) > 0) {
			if (r == MULTIPART_DATA)
				(void)buf_put(out, part, k);
			else
				(void)buf_printf(out, "\n%d %s %s\n", r, m.name ? m.name : "",
						 m.filename ? m.filename : "");
			assert(r != MULTIPART_DATA || k > 0);
		}
		assert(r < 0 || left == 0);
	}
	assert(r == 0 || r == -EBADMSG);
	(void)buf_printf(out, "\n%d %d\n", r, r == 0 && multipart_whole(&m));
	multipart_done(&m);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_buf_ struct buf whole = BUF_INIT(OUT_MAX), pieces = BUF_INIT(OUT_MAX);
	const char *line = (const char *)data + 1, *end;
	char type[256];
	int r;

	if (size < 2)
		return 0;
	end = memchr(line, '\n', size - 1);
	if (!end || (size_t)(end - line) >= sizeof(type) ||
	    memchr(line, '\0', (size_t)(end - line)))
		return 0;
	memcpy(type, line, (size_t)(end - line));
	type[end - line] = '\0';
	size -= (size_t)(end + 1 - (const char *)data);
	r = render(type, end + 1, size, size + 1, &whole);
	assert(render(type, end + 1, size, data[0] % 16 + 1, &pieces) == r);
	assert(whole.len == pieces.len &&
	       memcmp(buf_text(&whole), buf_text(&pieces), whole.len) == 0);
	return 0;
}
