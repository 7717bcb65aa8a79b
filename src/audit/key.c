/* SPDX-License-Identifier: Apache-2.0 */
/* The log's key. A signature covers "hutch-audit-1", a sequence number and the hash of that record.
 */
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>

#include "audit/audit-inner.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"

enum {
	SECRET = crypto_sign_SECRETKEYBYTES,
	SIGNED_MAX = 64,
};

static_assert(AUDIT_PUBLIC == crypto_sign_PUBLICKEYBYTES && AUDIT_SIGNATURE == crypto_sign_BYTES,
	      "Ed25519");

/* In libsodium, the second half of an Ed25519 secret key is the public key. */
static int read_secret(const struct audit_log *l, uint8_t out[static SECRET], struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SECRET);
	int r = fd_read_file(l->dir, AUDIT_KEY, &b, e);

	if (r < 0)
		return r;
	if (b.len == SECRET)
		memcpy(out, b.data, SECRET);
	else
		r = err_set(e, -EBADMSG, "'%s/" AUDIT_KEY "' is not a key", l->path);
	if (b.data)
		sodium_memzero(b.data, b.cap);
	return r;
}

static int write_pair(const struct audit_log *l, struct err *e)
{
	uint8_t seed[crypto_sign_SEEDBYTES], pub[AUDIT_PUBLIC], secret[SECRET];
	char hex[2 * AUDIT_PUBLIC + 1];
	int r;

	/* Not libsodium's generator, which ends the process without randomness. */
	if (RETRY_EINTR(getrandom(seed, sizeof(seed), 0)) != (ssize_t)sizeof(seed))
		return err_errno(e, "cannot create a key for the audit log");
	(void)crypto_sign_seed_keypair(pub, secret, seed);
	sodium_memzero(seed, sizeof(seed));
	(void)sodium_bin2hex(hex, sizeof(hex), pub, sizeof(pub));
	hex[2 * AUDIT_PUBLIC] = '\n';
	/* The secret last: once it exists, both exist. */
	r = fd_replace_file(l->dir, AUDIT_PUBKEY, 0600, hex, sizeof(hex), e);
	if (r == 0)
		r = FAULT_ERR("audit-key", e);
	if (r == 0)
		r = fd_replace_file(l->dir, AUDIT_KEY, 0600, secret, sizeof(secret), e);
	sodium_memzero(secret, sizeof(secret));
	return r;
}

int audit_key_make(const struct audit_log *l, struct err *e)
{
	int r = 0;

	if (faccessat(l->dir, AUDIT_KEY, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	r = audit_lock(l, LOCK_EX, e);
	if (r < 0)
		return r;
	if (faccessat(l->dir, AUDIT_KEY, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
		r = errno == ENOENT ? write_pair(l, e)
				    : err_errno(e, "cannot check for the key of the audit log");
	audit_unlock(l);
	return r;
}

int audit_public_key(const struct audit_log *l, uint8_t ret[static AUDIT_PUBLIC], struct err *e)
{
	char hex[2 * AUDIT_PUBLIC + 1];
	size_t n = 0;
	int r = l->off ? -ENOENT : fd_read_line(l->dir, AUDIT_PUBKEY, hex, sizeof(hex));

	if (r == 0 && (sodium_hex2bin(ret, AUDIT_PUBLIC, hex, strlen(hex), NULL, &n, NULL) < 0 ||
		       n != AUDIT_PUBLIC))
		r = -EBADMSG;
	return r < 0 ? err_set(e, r, "cannot read the key of the audit log: %s", strerror(-r)) : 0;
}

static size_t message(const struct audit_mark *m, uint8_t out[static SIGNED_MAX])
{
	static const char tag[] = "hutch-audit-1";
	size_t n = STRLEN("hutch-audit-1");

	memcpy(out, tag, n);
	for (unsigned int i = 0; i < 8; i++)
		out[n++] = (uint8_t)(m->seq >> 8 * (7 - i));
	memcpy(out + n, m->hash, AUDIT_HASH);
	return n + AUDIT_HASH;
}

int audit_sign(const struct audit_log *l, const struct audit_head *head, struct audit_mark *ret,
	       struct err *e)
{
	uint8_t secret[SECRET], text[SIGNED_MAX];
	struct audit_mark m = { .seq = head->count - 1 };
	int r = read_secret(l, secret, e);

	if (r < 0)
		return r;
	memcpy(m.hash, head->hash, AUDIT_HASH);
	memcpy(m.key, secret + SECRET - AUDIT_PUBLIC, AUDIT_PUBLIC);
	(void)crypto_sign_detached(m.signature, NULL, text, message(&m, text), secret);
	sodium_memzero(secret, sizeof(secret));
	*ret = m;
	return 0;
}

bool audit_mark_valid(const struct audit_mark *m)
{
	uint8_t text[SIGNED_MAX];

	return crypto_sign_verify_detached(m->signature, text, message(m, text), m->key) == 0;
}

int audit_mark_read(const char *text, size_t n, struct audit_mark *ret, struct err *e)
{
	struct audit_mark m = { 0 };

	if (n > 0 && text[n - 1] == '\n')
		n--;
	if (!audit_get_mark(text, n, &m))
		return err_set(e, -EINVAL,
			       "this is not a checkpoint from 'hutch audit checkpoint'");
	if (!audit_mark_valid(&m))
		return err_set(e, -EINVAL, "the signature of this checkpoint is wrong");
	*ret = m;
	return 0;
}

int audit_mark_print(const struct audit_mark *m, struct buf *b)
{
	struct audit_payload p = AUDIT_PAYLOAD_INIT(NULL);

	audit_put_number(&p, "seq", m->seq);
	audit_put_hex(&p, "hash", m->hash, AUDIT_HASH);
	audit_put_hex(&p, "key", m->key, AUDIT_PUBLIC);
	audit_put_hex(&p, "signature", m->signature, AUDIT_SIGNATURE);
	if (p.text.err)
		b->err = p.text.err;
	(void)buf_puts(b, buf_text(&p.text));
	audit_payload_done(&p);
	return buf_putc(b, '}');
}
