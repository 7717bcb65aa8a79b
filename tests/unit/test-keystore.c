/* SPDX-License-Identifier: Apache-2.0 */
/* Our CA in Java keystores that keytool has made (tests/fuzz/corpus/keystore). */
#include "unit.h"

#include <fcntl.h>
#include <openssl/pkcs12.h>
#include <openssl/sha.h>
#include <string.h>

#include "base/fd.h"
#include "ca-store/bundle.h"
#include "ca-store/keystore.h"
#include "ca-store/sha1.h"

#define OURS "0123 Hutch sandbox CA"

enum {
	MAX_BYTES = 1 << 20,
};

static void get_file(const char *name, struct buf *ret)
{
	struct err e = ERR_INIT;
	char path[512];

	(void)snprintf(path, sizeof(path), HUTCH_CORPUS "/keystore/%s", name);
	assert_int_equal(fd_read_file(AT_FDCWD, path, ret, &e), 0);
}

static bool same(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* Adding is undone by removing, and adding twice is the same as once. */
static void add_and_remove(const char *name, const char *stripped)
{
	_cleanup_buf_ struct buf in = BUF_INIT(MAX_BYTES), plain = BUF_INIT(MAX_BYTES),
				 added = BUF_INIT(MAX_BYTES), again = BUF_INIT(MAX_BYTES),
				 back = BUF_INIT(MAX_BYTES);

	get_file(name, &in);
	get_file(stripped, &plain);
	assert_int_equal(keystore_rewrite(&in, OURS, strlen(OURS), &added), 0);
	assert_true(bundle_is_ours(added.data, added.len));
	assert_int_equal(keystore_rewrite(&added, OURS, strlen(OURS), &again), 0);
	assert_true(same(&added, &again));
	assert_int_equal(keystore_rewrite(&added, NULL, 0, &back), 0);
	assert_true(same(&back, &plain));
	buf_reset(&back);
	assert_int_equal(keystore_rewrite(&in, NULL, 0, &back), 0);
	assert_true(same(&back, &plain));
}

TEST(jks)
{
	add_and_remove("jks", "jks");
	add_and_remove("jks-ours", "jks");
}

TEST(pkcs12)
{
	add_and_remove("pkcs12", "pkcs12");
	add_and_remove("pkcs12-ours", "pkcs12");
}

/* Counts the certificates with a name, as OpenSSL reads the file. */
static int certificates(const struct buf *b)
{
	const unsigned char *p = (const unsigned char *)b->data;
	PKCS12 *file = d2i_PKCS12(NULL, &p, (long)b->len);
	STACK_OF(PKCS7) * contents;
	int n = 0;

	assert_non_null(file);
	assert_ptr_equal(p, b->data + b->len);
	contents = PKCS12_unpack_authsafes(file);
	for (int i = 0; i < sk_PKCS7_num(contents); i++) {
		STACK_OF(PKCS12_SAFEBAG) *bags = PKCS12_unpack_p7data(sk_PKCS7_value(contents, i));

		for (int k = 0; k < sk_PKCS12_SAFEBAG_num(bags); k++) {
			char *name = PKCS12_get_friendlyname(sk_PKCS12_SAFEBAG_value(bags, k));

			n += name != NULL;
			OPENSSL_free(name);
		}
		sk_PKCS12_SAFEBAG_pop_free(bags, PKCS12_SAFEBAG_free);
	}
	sk_PKCS7_pop_free(contents, PKCS7_free);
	PKCS12_free(file);
	return n;
}

/* Also after Java has written the file again, with our certificate among the others. */
TEST(openssl_reads_it)
{
	static const struct {
		const char *name;
		int others;
	} rows[] = { { "pkcs12", 2 }, { "pkcs12-ours", 2 }, { "pkcs12-moved", 3 } };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_buf_ struct buf in = BUF_INIT(MAX_BYTES), added = BUF_INIT(MAX_BYTES),
					 back = BUF_INIT(MAX_BYTES);

		get_file(rows[i].name, &in);
		assert_int_equal(keystore_rewrite(&in, OURS, strlen(OURS), &added), 0);
		assert_int_equal(certificates(&added), rows[i].others + 1);
		assert_int_equal(keystore_rewrite(&added, NULL, 0, &back), 0);
		assert_int_equal(certificates(&back), rows[i].others);
		assert_false(bundle_is_ours(back.data, back.len));
	}
}

/* A store with a password, and every damaged one, stays as it is. */
TEST(others_are_refused)
{
	static const char *const names[] = { "jks", "pkcs12" };
	_cleanup_buf_ struct buf in = BUF_INIT(MAX_BYTES), out = BUF_INIT(MAX_BYTES);

	get_file("pkcs12-password", &in);
	assert_int_equal(keystore_rewrite(&in, OURS, strlen(OURS), &out), -ENOTSUP);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		buf_reset(&in);
		get_file(names[i], &in);
		for (size_t n = in.len; n-- > 0;) {
			struct buf cut = { .data = in.data, .len = n };

			buf_reset(&out);
			assert_int_equal(keystore_rewrite(&cut, OURS, strlen(OURS), &out),
					 -ENOTSUP);
		}
		(void)buf_putc(&in, 'x');
		buf_reset(&out);
		assert_int_equal(keystore_rewrite(&in, OURS, strlen(OURS), &out), -ENOTSUP);
	}
	buf_reset(&in);
	get_file("jks", &in);
	for (size_t i = 0; i < in.len; i++) {
		in.data[i] ^= 1;
		buf_reset(&out);
		assert_int_equal(keystore_rewrite(&in, OURS, strlen(OURS), &out), -ENOTSUP);
		in.data[i] ^= 1;
	}
}

TEST(out_of_space)
{
	static const char *const names[] = { "jks", "pkcs12" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_buf_ struct buf in = BUF_INIT(MAX_BYTES);
		size_t n = 0;
		int r = -ENOBUFS;

		get_file(names[i], &in);
		for (; r == -ENOBUFS; n++) {
			_cleanup_buf_ struct buf out = BUF_INIT(n);

			r = keystore_rewrite(&in, OURS, strlen(OURS), &out);
		}
		assert_int_equal(r, 0);
		assert_true(n > in.len + strlen(OURS));
	}
}

TEST(sha1_as_openssl)
{
	unsigned char data[200], ours[SHA1_BYTES], theirs[SHA_DIGEST_LENGTH];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)(i * 7);
	for (size_t n = 0; n <= sizeof(data); n++) {
		struct sha1 s;

		sha1_init(&s);
		sha1_put(&s, data, n / 3);
		sha1_put(&s, data + n / 3, n - n / 3);
		sha1_end(&s, ours);
		(void)SHA1(data, n, theirs);
		assert_memory_equal(ours, theirs, sizeof(ours));
	}
}
