/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/ca.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <string.h>

#include "names/rule.h"

enum {
	SERIAL_BYTES = 16,
	DAY = 24 * 60 * 60,
	NAME_PART_MAX = 64, /* bytes in a common name */
	V3 = 2,
};

struct ca {
	X509 *cert;
	EVP_PKEY *key;
};

DEFINE_CLEANUP(X509 *, cleanup_x509, X509_free);
DEFINE_CLEANUP(EVP_PKEY *, cleanup_key, EVP_PKEY_free);
DEFINE_CLEANUP(BIO *, cleanup_bio, BIO_free_all);
DEFINE_CLEANUP(BIGNUM *, cleanup_bignum, BN_free);
DEFINE_CLEANUP(X509_EXTENSION *, cleanup_extension, X509_EXTENSION_free);

static int failed(struct err *e, const char *what)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	(void)err_set(e, -EINVAL, "cannot %s: %s", what, text ? text : "unknown error");
	ERR_clear_error();
	return e->num;
}

/* ---- certificates ---- */

static bool set_serial(X509 *x)
{
	_cleanup_(cleanup_bignum) BIGNUM *n = NULL;
	unsigned char bytes[SERIAL_BYTES];

	if (RAND_bytes(bytes, sizeof(bytes)) != 1)
		return false;
	bytes[0] = (unsigned char)((bytes[0] & 0x7f) | 0x40); /* positive, and never shorter */
	n = BN_bin2bn(bytes, sizeof(bytes), NULL);
	return n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
}

static bool set_name(X509_NAME *name, const char *text)
{
	return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)text, -1,
					  -1, 0) == 1;
}

static bool add(X509 *x, X509 *issuer, int nid, const char *value)
{
	_cleanup_(cleanup_extension) X509_EXTENSION *extension = NULL;
	X509V3_CTX c;

	X509V3_set_ctx_nodb(&c);
	X509V3_set_ctx(&c, issuer, x, NULL, NULL, 0);
	extension = X509V3_EXT_conf_nid(NULL, &c, nid, value);
	return extension && X509_add_ext(x, extension, -1) == 1;
}

static bool set_times(X509 *x, int from_days, int to_days)
{
	return X509_time_adj_ex(X509_getm_notBefore(x), from_days, 0, NULL) &&
	       X509_time_adj_ex(X509_getm_notAfter(x), to_days, 0, NULL);
}

static X509 *make_root(EVP_PKEY *key)
{
	_cleanup_(cleanup_x509) X509 *x = X509_new();

	if (x && X509_set_version(x, V3) && set_serial(x) &&
	    set_name(X509_get_subject_name(x), "Hutch sandbox CA") &&
	    X509_set_issuer_name(x, X509_get_subject_name(x)) &&
	    set_times(x, -CA_BACK_DAYS, CA_YEARS * 365) && X509_set_pubkey(x, key) &&
	    add(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
	    add(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
	    add(x, x, NID_subject_key_identifier, "hash") && X509_sign(x, key, EVP_sha256()) > 0)
		return TAKE_PTR(x);
	return NULL;
}

X509 *ca_sign(const struct ca *ca, const char *host, bool is_addr, EVP_PKEY *key)
{
	_cleanup_(cleanup_x509) X509 *x = X509_new();
	const bool named = strlen(host) <= NAME_PART_MAX;
	char names[NAME_TEXT_MAX + 32];

	/* Without a subject, the other name must be critical. */
	(void)snprintf(names, sizeof(names), "%s%s:%s", named ? "" : "critical,",
		       is_addr ? "IP" : "DNS", host);
	if (x && X509_set_version(x, V3) && set_serial(x) &&
	    (!named || set_name(X509_get_subject_name(x), host)) &&
	    X509_set_issuer_name(x, X509_get_subject_name(ca->cert)) &&
	    set_times(x, -CA_BACK_DAYS, CERT_DAYS) && X509_set_pubkey(x, key) &&
	    add(x, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
	    add(x, ca->cert, NID_key_usage, "critical,digitalSignature") &&
	    add(x, ca->cert, NID_ext_key_usage, "serverAuth") &&
	    add(x, ca->cert, NID_subject_alt_name, names) &&
	    add(x, ca->cert, NID_authority_key_identifier, "keyid:always") &&
	    X509_sign(x, ca->key, EVP_sha256()) > 0)
		return TAKE_PTR(x);
	ERR_clear_error();
	return NULL;
}

/* ---- text ---- */

static int take_text(BIO *b, struct buf *ret, struct err *e)
{
	char *text;
	long n = BIO_get_mem_data(b, &text);
	int r = buf_put(ret, text, (size_t)MAX(n, 0L));

	explicit_bzero(text, (size_t)MAX(n, 0L));
	return r < 0 ? err_set(e, r, "cannot write the CA: %s", strerror(-r)) : 0;
}

int ca_make(struct buf *cert, struct buf *key, struct err *e)
{
	_cleanup_(cleanup_key) EVP_PKEY *k = EVP_EC_gen("P-256");
	_cleanup_(cleanup_x509) X509 *x = k ? make_root(k) : NULL;
	_cleanup_(cleanup_bio) BIO *a = BIO_new(BIO_s_mem()), *b = BIO_new(BIO_s_mem());

	if (!x || !a || !b || !PEM_write_bio_X509(a, x) ||
	    !PEM_write_bio_PKCS8PrivateKey(b, k, NULL, NULL, 0, NULL, NULL))
		return failed(e, "make a CA");
	if (take_text(b, key, e) < 0)
		return e->num;
	return take_text(a, cert, e);
}

/* Otherwise OpenSSL would ask for a password on the terminal. */
static int no_password(char *text, int n, int writing, void *arg)
{
	return -1;
}

int ca_load(const char *cert, const char *key, struct ca **ret, struct err *e)
{
	_cleanup_(cleanup_bio) BIO *a = BIO_new_mem_buf(cert, -1), *b = BIO_new_mem_buf(key, -1);
	struct ca *ca = calloc(1, sizeof(*ca));

	if (!ca || !a || !b)
		(void)err_oom(e);
	else if (!(ca->cert = PEM_read_bio_X509(a, NULL, no_password, NULL)) ||
		 !(ca->key = PEM_read_bio_PrivateKey(b, NULL, no_password, NULL)) ||
		 X509_check_private_key(ca->cert, ca->key) != 1)
		(void)failed(e, "use the CA");
	else if (X509_check_ca(ca->cert) != 1)
		(void)err_set(e, -EINVAL, "cannot use the CA: its certificate is not a CA's");
	else
		return *ret = ca, 0;
	ca_free(ca);
	return e->num;
}

struct ca *ca_free(struct ca *ca)
{
	if (!ca)
		return NULL;
	X509_free(ca->cert);
	EVP_PKEY_free(ca->key);
	free(ca);
	return NULL;
}
