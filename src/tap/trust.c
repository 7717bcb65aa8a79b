/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/trust.h"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/asn1.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <string.h>

#include "base/fd.h"

DEFINE_CLEANUP(X509 *, cleanup_x509, X509_free);
DEFINE_CLEANUP(BIO *, cleanup_bio, BIO_free_all);
DEFINE_CLEANUP(DIR *, cleanup_dir, closedir);

enum {
	ROOTS_FIRST = 256,
	VERSION_TAG = 0xa0,
};

/* Files with all CAs: OpenSSL's own, Debian, Fedora, SUSE, Alpine. */
static const char *const bundles[] = {
	"/etc/ssl/certs/ca-certificates.crt",
	"/etc/pki/tls/certs/ca-bundle.crt",
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
	"/etc/ssl/ca-bundle.pem",
	"/etc/ssl/cert.pem",
};

/*
 * OpenSSL takes half a millisecond to parse a certificate, and hosts have more than a hundred. So
 * the host's are kept as they are, by their subject, and parsed when a chain needs them.
 */
struct root {
	unsigned long subject; /* X509_NAME_hash_ex() */
	unsigned char *der;
	long n;
	bool is_parsed; /* and in the store */
};

struct roots {
	struct root *v;
	size_t n, room;
};

/* ---- certificates by subject ---- */

/* Enters (`inside`) or skips one value. False if it is missing. */
static bool walk(const unsigned char **at, const unsigned char *end, int tag, bool inside)
{
	int found, class;
	long n;
	const int r = ASN1_get_object(at, &n, &found, &class, end - *at);

	if ((r & 0x80) || found != tag)
		return false;
	if (!inside)
		*at += n;
	return true;
}

/* The subject of a certificate, RFC 5280 section 4.1. */
static bool find_subject(const struct root *r, unsigned long *ret)
{
	const unsigned char *at = r->der, *const end = at + r->n;
	X509_NAME *name;
	int ok = 0;

	/* The certificate, and the signed part of it. */
	for (int i = 0; i < 2; i++)
		if (!walk(&at, end, V_ASN1_SEQUENCE, true))
			return false;
	/* The version is optional. */
	if (at < end && *at == VERSION_TAG)
		(void)walk(&at, end, 0, false);
	if (!walk(&at, end, V_ASN1_INTEGER, false) ||  /* serial number */
	    !walk(&at, end, V_ASN1_SEQUENCE, false) || /* signature */
	    !walk(&at, end, V_ASN1_SEQUENCE, false) || /* issuer */
	    !walk(&at, end, V_ASN1_SEQUENCE, false))   /* validity */
		return false;
	name = d2i_X509_NAME(NULL, &at, end - at);
	if (name)
		*ret = X509_NAME_hash_ex(name, NULL, NULL, &ok);
	X509_NAME_free(name);
	return ok == 1;
}

/* Takes the bytes. */
static bool add_root(struct roots *all, unsigned char *der, long n)
{
	struct root r = { .der = der, .n = n }, *more;

	if (all->n == all->room) {
		all->room = all->room ? 2 * all->room : ROOTS_FIRST;
		more = realloc(all->v, all->room * sizeof(*more));
		if (more)
			all->v = more;
		if (!more || all->n == TRUST_ROOTS_MAX)
			return OPENSSL_free(der), false;
	}
	if (find_subject(&r, &r.subject))
		all->v[all->n++] = r;
	else
		OPENSSL_free(der);
	return true;
}

/* The callback of X509_LOOKUP: puts all certificates of the subject into the store. */
static int find_roots(X509_LOOKUP *lookup, X509_LOOKUP_TYPE type, const X509_NAME *name,
		      X509_OBJECT *ret)
{
	struct roots *all = X509_LOOKUP_get_method_data(lookup);
	int ok = 0, found = 0;
	const unsigned long subject = X509_NAME_hash_ex(name, NULL, NULL, &ok);

	if (type != X509_LU_X509 || !ok)
		return 0;
	for (size_t i = 0; i < all->n; i++) {
		_cleanup_(cleanup_x509) X509 *x = NULL;
		struct root *r = &all->v[i];
		const unsigned char *at = r->der;

		if (r->subject != subject || r->is_parsed)
			continue;
		r->is_parsed = true;
		x = d2i_X509_AUX(NULL, &at, r->n);
		if (!x || X509_NAME_cmp(X509_get_subject_name(x), name) != 0 ||
		    X509_STORE_add_cert(X509_LOOKUP_get_store(lookup), x) != 1)
			continue;
		found |= X509_OBJECT_set1_X509(ret, x);
	}
	ERR_clear_error();
	return found;
}

static void free_roots(X509_LOOKUP *lookup)
{
	struct roots *all = X509_LOOKUP_get_method_data(lookup);

	for (size_t i = 0; all && i < all->n; i++)
		OPENSSL_free(all->v[i].der);
	if (all)
		free(all->v);
	free(all);
}

/* The table belongs to the store. */
static struct roots *table_in(X509_STORE *store)
{
	static X509_LOOKUP_METHOD *method;
	struct roots *all = calloc(1, sizeof(*all));
	X509_LOOKUP *lookup = NULL;

	if (!method) {
		method = X509_LOOKUP_meth_new("hutch");
		if (method && (!X509_LOOKUP_meth_set_get_by_subject(method, find_roots) ||
			       !X509_LOOKUP_meth_set_free(method, free_roots)))
			return free(all), NULL;
	}
	if (all && method)
		lookup = X509_STORE_add_lookup(store, method);
	if (lookup && X509_LOOKUP_set_method_data(lookup, all))
		return all;
	free(all);
	return NULL;
}

/* ---- the host's files ---- */

/* Adds certificates up to the end or the first error. */
static void add_all(struct roots *all, const void *text, size_t n)
{
	_cleanup_(cleanup_bio) BIO *b = BIO_new_mem_buf(text, (int)n);
	char *name, *header;
	unsigned char *der;
	bool ok = b;
	long len;

	while (ok && PEM_read_bio(b, &name, &header, &der, &len) == 1) {
		if (strcmp(name, PEM_STRING_X509) == 0 || strcmp(name, PEM_STRING_X509_OLD) == 0 ||
		    strcmp(name, PEM_STRING_X509_TRUSTED) == 0)
			ok = add_root(all, der, len);
		else
			OPENSSL_free(der);
		OPENSSL_free(name);
		OPENSSL_free(header);
	}
}

static void add_file(struct roots *all, int dir, const char *path)
{
	_cleanup_buf_ struct buf text = BUF_INIT(TRUST_FILE_MAX);
	struct err e = ERR_INIT;

	/* A file that cannot be read adds no trust. */
	if (fd_read_file(dir, path, &text, &e) == 0)
		add_all(all, buf_text(&text), text.len);
	ERR_clear_error();
}

static void add_directory(struct roots *all, const char *path)
{
	_cleanup_(cleanup_dir) DIR *d = opendir(path);
	const struct dirent *entry;

	for (int i = 0; d && i < TRUST_FILES_MAX && (entry = readdir(d)); i++)
		if (entry->d_name[0] != '.')
			add_file(all, dirfd(d), entry->d_name);
}

static void add_directories(struct roots *all, const char *list)
{
	char path[4096];

	while (*list) {
		const size_t n = strcspn(list, ":");

		if (n > 0 && n < sizeof(path)) {
			memcpy(path, list, n);
			path[n] = '\0';
			add_directory(all, path);
		}
		list += n + (list[n] == ':');
	}
}

int trust_load(X509_STORE **ret, size_t *ret_n, struct err *e)
{
	const char *file = getenv(X509_get_default_cert_file_env());
	const char *dirs = getenv(X509_get_default_cert_dir_env());
	X509_STORE *store = X509_STORE_new();
	struct roots *all = store ? table_in(store) : NULL;

	if (!all) {
		X509_STORE_free(store);
		return err_oom(e);
	}
	if (file)
		add_file(all, AT_FDCWD, file);
	if (dirs)
		add_directories(all, dirs);
	if (!file && !dirs) {
		add_file(all, AT_FDCWD, X509_get_default_cert_file());
		for (size_t i = 0; all->n == 0 && i < ARRAY_SIZE(bundles); i++)
			add_file(all, AT_FDCWD, bundles[i]);
		if (all->n == 0)
			add_directories(all, X509_get_default_cert_dir());
	}
	*ret = store;
	*ret_n = all->n;
	return 0;
}

/* ---- additional CAs ---- */

static const char *reason(void)
{
	const char *text = ERR_reason_error_string(ERR_peek_last_error());

	return text ? text : "unknown error";
}

static bool at_end(void)
{
	const unsigned long error = ERR_peek_last_error();

	return ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
}

int trust_add(X509_STORE *store, const char *pem, struct err *e)
{
	_cleanup_(cleanup_bio) BIO *b = BIO_new_mem_buf(pem, -1);
	bool ok = b;
	size_t n = 0;

	ERR_clear_error();
	while (ok) {
		_cleanup_(cleanup_x509) X509 *x = PEM_read_bio_X509_AUX(b, NULL, NULL, NULL);

		if (!x)
			break;
		ok = X509_STORE_add_cert(store, x) == 1;
		n++;
	}
	if (ok && n > 0 && at_end())
		return ERR_clear_error(), 0;
	(void)err_set(e, -EINVAL, "cannot use the additional CAs: %s",
		      n == 0 ? "no certificate in them" : reason());
	ERR_clear_error();
	return e->num;
}
