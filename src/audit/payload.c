/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads: JSON written directly, without a tree, because the keeper writes it. */
#include <sodium.h>
#include <string.h>

#include "audit/audit.h"
#include "base/str.h"

static const char redacted[] = "[redacted]", cut[] = "...";

void audit_payload_done(struct audit_payload *p)
{
	buf_done(&p->text);
}

void audit_payload_reset(struct audit_payload *p)
{
	buf_reset(&p->text);
}

/* `{` or `,` and the key; audit_append() adds the closing `}`. */
static void put_key(struct audit_payload *p, const char *key)
{
	(void)buf_printf(&p->text, "%c\"%s\":", p->text.len == 0 ? '{' : ',', key);
}

/* Escapes for people first, then for JSON, which leaves only quotes and backslashes to escape. */
static void put_escaped(struct buf *b, const char *s, size_t n)
{
	_cleanup_buf_ struct buf shown = BUF_INIT(AUDIT_PAYLOAD_MAX);

	if (str_escape(&shown, s, n) < 0)
		b->err = shown.err;
	for (size_t i = 0; i < shown.len; i++) {
		if (shown.data[i] == '"' || shown.data[i] == '\\')
			(void)buf_putc(b, '\\');
		(void)buf_putc(b, shown.data[i]);
	}
}

/* Length of the longest secret at `s`; 0: none. */
static size_t secret_at(const struct audit_secrets *secrets, const char *s, size_t n)
{
	size_t longest = 0;

	for (size_t i = 0; secrets && i < secrets->n; i++) {
		size_t len = strlen(secrets->values[i]);

		if (len > longest && len <= n && memcmp(s, secrets->values[i], len) == 0)
			longest = len;
	}
	return longest;
}

/* Redacts `s` up to out->max bytes; true if that is not all of it. */
static bool redact(const struct audit_secrets *secrets, const char *s, size_t n, struct buf *out)
{
	size_t i = 0;

	while (i < n && out->len + STRLEN("[redacted]") < out->max) {
		size_t len = secret_at(secrets, s + i, n - i);

		if (len > 0)
			(void)buf_puts(out, redacted);
		else
			(void)buf_putc(out, s[i]);
		i += MAX(len, (size_t)1);
	}
	return i < n;
}

/* Removes a character that was cut in the middle. */
static void drop_half(struct buf *b)
{
	for (size_t back = 1; back < 4 && back <= b->len; back++) {
		unsigned char c = (unsigned char)b->data[b->len - back];
		uint32_t cp;

		if (c < 0x80)
			return;
		if (c >= 0xc0) {
			if (utf8_decode(b->data + b->len - back, back, &cp) == 0)
				b->len -= back;
			return;
		}
	}
}

static void put_value(struct audit_payload *p, const char *s, size_t n, size_t max)
{
	_cleanup_buf_ struct buf kept = BUF_INIT(max);
	bool less = redact(p->secrets, s, n, &kept);

	if (kept.err)
		p->text.err = kept.err;
	if (less)
		drop_half(&kept);
	(void)buf_putc(&p->text, '"');
	put_escaped(&p->text, buf_text(&kept), kept.len);
	(void)buf_puts(&p->text, less ? cut : "");
	(void)buf_putc(&p->text, '"');
}

void audit_put_bytes(struct audit_payload *p, const char *key, const void *s, size_t n)
{
	put_key(p, key);
	put_value(p, s, n, AUDIT_TEXT_MAX);
}

void audit_put_text(struct audit_payload *p, const char *key, const char *s)
{
	audit_put_bytes(p, key, s, strlen(s));
}

void audit_put_number(struct audit_payload *p, const char *key, uint64_t n)
{
	put_key(p, key);
	(void)buf_printf(&p->text, "%llu", (unsigned long long)n);
}

void audit_put_hex(struct audit_payload *p, const char *key, const void *data, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *bytes = data;

	put_key(p, key);
	(void)buf_putc(&p->text, '"');
	for (size_t i = 0; i < n; i++) {
		(void)buf_putc(&p->text, digits[bytes[i] >> 4]);
		(void)buf_putc(&p->text, digits[bytes[i] & 15]);
	}
	(void)buf_putc(&p->text, '"');
}

/* Hashes all of an argument except secrets: a short secret could be found by brute force. */
static void hash_argument(const struct audit_secrets *secrets, crypto_hash_sha256_state *h,
			  const char *s)
{
	size_t n = strlen(s), from = 0;

	for (size_t i = 0; i < n;) {
		size_t len = secret_at(secrets, s + i, n - i);

		if (len > 0) {
			(void)crypto_hash_sha256_update(h, (const uint8_t *)s + from, i - from);
			(void)crypto_hash_sha256_update(h, (const uint8_t *)redacted,
							STRLEN("[redacted]"));
			from = i + len;
		}
		i += MAX(len, (size_t)1);
	}
	(void)crypto_hash_sha256_update(h, (const uint8_t *)s + from, n + 1 - from);
}

void audit_put_argv(struct audit_payload *p, const char *const *argv, size_t n)
{
	uint8_t hash[AUDIT_HASH];
	crypto_hash_sha256_state h;
	size_t start;

	put_key(p, "argv");
	(void)buf_putc(&p->text, '[');
	start = p->text.len;
	for (size_t i = 0; i < n && i < AUDIT_ARGS_MAX && p->text.len - start < AUDIT_ARGS_BYTES;
	     i++) {
		(void)buf_puts(&p->text, i > 0 ? "," : "");
		put_value(p, argv[i], strlen(argv[i]), AUDIT_TEXT_MAX);
	}
	(void)buf_putc(&p->text, ']');
	audit_put_number(p, "argc", n);
	(void)crypto_hash_sha256_init(&h);
	for (size_t i = 0; i < n; i++)
		hash_argument(p->secrets, &h, argv[i]);
	(void)crypto_hash_sha256_final(&h, hash);
	audit_put_hex(p, "argv_sha256", hash, sizeof(hash));
}
