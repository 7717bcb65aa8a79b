/* SPDX-License-Identifier: Apache-2.0 */
#include "ca-store/bundle.h"

#include <string.h>

#include "base/base64.h"
#include "base/str.h"
#include "ca-store/ca-store.h"

#define BLOCK_BEGIN "# Hutch sandbox CA begin\n"
/* The bundle ended without a newline, and gets back that end. */
#define BLOCK_JOINED "# Hutch sandbox CA begin, after a line without an end\n"
#define BLOCK_END    "# Hutch sandbox CA end\n"
#define PEM_BEGIN    "-----BEGIN CERTIFICATE-----\n"
#define PEM_END	     "-----END CERTIFICATE-----\n"
/* update-ca-trust writes it before the certificate. */
#define LABEL "# " CA_STORE_SUBJECT "\n"

/* ---- one certificate ---- */

bool bundle_is_certificate(const char *pem, size_t n)
{
	return n > STRLEN(PEM_BEGIN PEM_END) && n <= CA_STORE_CERT_MAX &&
	       memcmp(pem, PEM_BEGIN, STRLEN(PEM_BEGIN)) == 0 && !memchr(pem, '#', n) &&
	       memmem(pem, n, PEM_END, STRLEN(PEM_END)) == pem + n - STRLEN(PEM_END);
}

int bundle_decode(const char *pem, size_t n, char **ret, size_t *ret_n)
{
	char text[CA_STORE_CERT_MAX];
	size_t k = 0;

	if (!bundle_is_certificate(pem, n))
		return -EINVAL;
	for (size_t i = STRLEN(PEM_BEGIN); i < n - STRLEN(PEM_END); i++)
		if (pem[i] != '\n' && pem[i] != '\r')
			text[k++] = pem[i];
	return base64_decode(text, k, ret, ret_n);
}

bool bundle_is_ours(const char *der, size_t n)
{
	return memmem(der, n, CA_STORE_SUBJECT, STRLEN(CA_STORE_SUBJECT)) != NULL;
}

/* ---- blocks ---- */

static bool is_line(const char *line, size_t n, const char *text)
{
	return n == strlen(text) && memcmp(line, text, n) == 0;
}

void bundle_strip(struct buf *b)
{
	char *out = b->data, *block = NULL;
	bool joined = false;
	size_t n;

	if (b->len == 0)
		return;
	for (char *line = b->data, *end = line + b->len; line < end; line += n) {
		char *newline = memchr(line, '\n', (size_t)(end - line));

		n = (size_t)((newline ? newline + 1 : end) - line);
		if (is_line(line, n, BLOCK_BEGIN) || is_line(line, n, BLOCK_JOINED)) {
			block = out;
			joined = out > b->data && is_line(line, n, BLOCK_JOINED);
		}
		if (is_line(line, n, BLOCK_END)) {
			out = block ? block : out;
			if (block && joined && line + n == end)
				out--;
			block = NULL;
		} else {
			memmove(out, line, n);
			out += n;
		}
	}
	b->len = (size_t)(out - b->data);
	b->data[b->len] = '\0';
}

int bundle_append(struct buf *b, const char *pem, size_t n)
{
	const bool joined = b->len > 0 && b->data[b->len - 1] != '\n';

	if (b->len > 0 && memmem(b->data, b->len, pem, n))
		return b->err;
	if (joined)
		(void)buf_putc(b, '\n');
	(void)buf_puts(b, joined ? BLOCK_JOINED : BLOCK_BEGIN);
	(void)buf_put(b, pem, n);
	return buf_puts(b, BLOCK_END);
}

/* ---- copies ---- */

/* Finds the end of the certificate that begins at `at`; NULL if it is not our CA. */
static const char *end_of_copy(const char *at, const char *end, int *ret)
{
	const size_t left = MIN((size_t)(end - at), (size_t)CA_STORE_CERT_MAX);
	const char *last = memmem(at, left, PEM_END, STRLEN(PEM_END));
	_cleanup_free_ char *der = NULL;
	size_t n = 0;
	int r;

	if (!last)
		return NULL;
	last += STRLEN(PEM_END);
	r = bundle_decode(at, (size_t)(last - at), &der, &n);
	if (r == -ENOMEM)
		*ret = r;
	return r == 0 && bundle_is_ours(der, n) ? last : NULL;
}

static char *without_label(const char *data, char *out)
{
	const size_t n = STRLEN(LABEL);

	if ((size_t)(out - data) < n || memcmp(out - n, LABEL, n) != 0)
		return out;
	return out == data + n || out[-(ptrdiff_t)n - 1] == '\n' ? out - n : out;
}

int bundle_strip_copies(struct buf *b)
{
	char *out = b->data, *at = b->data;
	const char *const end = b->data + b->len;
	int r = 0;

	while (at < end && r == 0) {
		char *pem = memmem(at, (size_t)(end - at), PEM_BEGIN, STRLEN(PEM_BEGIN));
		const char *after = pem ? end_of_copy(pem, end, &r) : NULL;
		size_t n = pem ? (size_t)(pem - at) + (after ? 0 : STRLEN(PEM_BEGIN))
			       : (size_t)(end - at);

		memmove(out, at, n);
		out += n;
		at += n;
		if (after) {
			out = without_label(b->data, out);
			at = b->data + (after - b->data);
		}
	}
	if (r == 0 && b->len > 0) {
		b->len = (size_t)(out - b->data);
		*out = '\0';
	}
	return r;
}
