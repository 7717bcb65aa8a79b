/* SPDX-License-Identifier: Apache-2.0 */
/* A request as hutchd's server reads it: head, chunks, query. The split of the input changes
 * nothing. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/str.h"
#include "fuzz.h"
#include "http-lex/http-chunk.h"
#include "http/http-head.h"
#include "http/http-server.h"

static void check_text(const char *s)
{
	for (; *s != '\0'; s++)
		assert((unsigned char)*s >= ' ' || *s == '\t');
}

static void check_path(const char *path)
{
	assert(path[0] == '/' && path[1] != '/');
	assert(utf8_valid(path, strlen(path)));
	assert(!strstr(path, "/../") && !str_has_suffix(path, "/.."));
	assert(!strstr(path, "/./") && !str_has_suffix(path, "/."));
	check_text(path);
}

static void check_head(const struct http_head *h)
{
	assert(strlen(h->method) > 0 && strlen(h->method) <= HTTP_METHOD_MAX_LEN);
	assert(h->target[0] == '/' && !strchr(h->target, '?'));
	assert(strlen(h->target) + strlen(h->query) <= HTTP_SERVER_TARGET_MAX);
	assert(h->minor == 1 || (h->length >= 0 && !h->keep && !h->expect));
	assert(h->minor == 0 || strlen(h->host) > 0);
	assert(h->length >= -1 && h->n_fields <= HTTP_SERVER_FIELDS_MAX);
	assert((h->length < 0) == (http_head_field(h, "transfer-encoding") != NULL));
	assert(h->length <= 0 || http_head_field(h, "content-length"));
	check_path(h->path);
	for (size_t i = 0; i < h->n_fields; i++) {
		check_text(h->fields[i].value);
		assert(strlen(h->fields[i].name) > 0);
		for (size_t k = 0; k < i; k++)
			assert(strcasecmp(h->fields[i].name, h->fields[k].name) != 0);
	}
}

static void check_query(const struct http_head *h)
{
	struct exchange x = { .query = h->query };
	char *value = NULL;

	if (http_query(&x, "a", &value) == 0)
		assert(utf8_valid(value, strlen(value)));
	free(value);
}

struct unchunked {
	struct http_chunk chunk;
	size_t used, len;
	uint64_t sum; /* over the received bytes, in order */
};

static struct unchunked unchunk(const char *s, size_t n, size_t step)
{
	struct unchunked u = { .chunk = { 0 } };

	while (u.used < n && u.chunk.state < HTTP_CHUNK_DONE) {
		size_t part = n - u.used < step ? n - u.used : step, len;
		const char *piece;
		size_t took = http_chunk_feed(&u.chunk, s + u.used, part, &piece, &len);

		assert(took > 0 && took <= part && len <= took);
		assert(len == 0 || (piece >= s + u.used && piece + len == s + u.used + took));
		for (size_t i = 0; i < len; i++)
			u.sum = u.sum * 31 + (unsigned char)piece[i];
		u.used += took;
		u.len += len;
	}
	return u;
}

static void check_chunks(const char *s, size_t n)
{
	struct unchunked whole = unchunk(s, n, n + 1), bytes = unchunk(s, n, 1);

	assert(whole.chunk.state == bytes.chunk.state && whole.used == bytes.used);
	assert(whole.len == bytes.len && whole.sum == bytes.sum);
	if (whole.chunk.state == HTTP_CHUNK_DONE)
		assert(whole.used >= 5 && memcmp(s + whole.used - 4, "\r\n\r\n", 4) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *s = (const char *)data;
	struct http_scan whole = { 0 }, parts = { 0 };
	struct http_refusal why = { 0 }, again = { 0 };
	struct http_head h = { 0 };
	int r = http_head_scan(&whole, s, size, &why), k = 0;

	for (size_t n = 1; n <= size && k == 0; n++)
		k = http_head_scan(&parts, s, n, &again);
	assert(k == r && whole.pos == parts.pos && why.status == again.status);
	if (r == 1 && http_head_parse(s, whole.pos, &h, &why) == 0) {
		check_head(&h);
		check_query(&h);
		check_chunks(s + whole.pos, size - whole.pos);
	}
	http_head_done(&h);
	check_chunks(s, size);
	return 0;
}
