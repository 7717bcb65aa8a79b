/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs find CA certificates in different ways, so the CA of the sandbox goes to several places:
 *
 * - /etc/hutch/ca.pem, for programs that take one more CA (NODE_EXTRA_CA_CERTS);
 * - every bundle of the image, at its end, between two comment lines: OpenSSL, GnuTLS, Go, curl and
 *   git read one of them. An image without a bundle gets one. /etc/hutch/bundle.pem is a link to
 *   the first, for programs with a setting for a bundle (SSL_CERT_FILE, REQUESTS_CA_BUNDLE); a link
 *   because the user may install the distribution's certificates later;
 * - /etc/ssl/certs/HASH.0, for OpenSSL's lookup in a directory;
 * - the directory of local CAs, from which update-ca-certificates and update-ca-trust make the
 *   bundle anew;
 * - every Java keystore (java.h).
 *
 * The image is untrusted, and users have changed the files before a VM resumes (ca-file.h).
 * ca_store_remove() undoes all of it, so a change here needs its counterpart there.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "ca-store/bundle.h"
#include "ca-store/ca-file.h"
#include "ca-store/ca-store.h"
#include "ca-store/java.h"
#include "ca-store/places.h"

struct ca {
	int root;
	const char *pem;
	size_t n;
};

static int fail(const char *path, int r, struct err *e)
{
	return err_set(e, r, "cannot add the CA of the sandbox to /%s: %s", path,
		       r == -EFBIG ? "the file is too large" : strerror(-r));
}

/* ---- bundles ---- */

static int rewrite(const struct ca *c, const struct ca_place *p)
{
	enum {
		MORE = CA_STORE_CERT_MAX + 128 /* lines around it */
	};
	_cleanup_buf_ struct buf old = BUF_INIT(CA_STORE_FILE_MAX),
				 new = BUF_INIT(CA_STORE_FILE_MAX + MORE);
	struct stat st;
	int r = ca_file_read(p->dir, p->name, &old, &st);

	if (r == 0)
		r = buf_put(&new, buf_text(&old), old.len);
	if (r < 0)
		return r;
	bundle_strip(&new);
	r = bundle_append(&new, c->pem, c->n);
	if (r < 0)
		return r;
	if (new.len == old.len && memcmp(new.data, old.data, new.len) == 0)
		return 0;
	return ca_file_replace(p->dir, p->name, &st, new.data, new.len);
}

/* An image without CA certificates trusts our CA alone. *ret is NULL if it has no place for it. */
static int make_bundle(const struct ca *c, const char **ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * CA_STORE_CERT_MAX);
	_cleanup_close_ int dir = -EBADF;
	const struct stat as = ca_file_new();
	int r = ca_file_dir(c->root, CA_CERTS, &dir);

	if (r == -ENOENT) {
		r = path_mkdirs(c->root, CA_CERTS, 0755);
		if (r == 0)
			r = ca_file_dir(c->root, CA_CERTS, &dir);
	}
	if (r == 0)
		r = bundle_append(&b, c->pem, c->n);
	if (r == 0)
		r = ca_file_replace(dir, CA_BUNDLE, &as, b.data, b.len);
	*ret = r < 0 ? NULL : CA_CERTS_BUNDLE;
	return r < 0 && !ca_file_missing(r) ? fail(CA_CERTS_BUNDLE, r, e) : 0;
}

/* Adds the CA to all bundles; *ret is the first. */
static int put_bundles(const struct ca *c, const char **ret, struct err *e)
{
	const char *first = NULL;

	for (const char *const *path = ca_bundles; *path; path++) {
		struct ca_place p;
		int r = ca_place_find(c->root, *path, &p);

		if (r == 0)
			r = rewrite(c, &p);
		ca_place_done(&p);
		if (r < 0 && !ca_file_missing(r))
			return fail(*path, r, e);
		if (r == 0 && !first)
			first = *path;
	}
	*ret = first;
	return first ? 0 : make_bundle(c, ret, e);
}

/* ---- the other places ---- */

/* Programs of all users read it. */
static int open_ours(const struct ca *c, int *ret)
{
	_cleanup_close_ int dir = -EBADF;
	struct stat st;
	int r = path_mkdirs(c->root, CA_OURS, 0755);

	if (r == 0)
		r = ca_file_dir(c->root, CA_OURS, &dir);
	if (r == 0 && fstat(dir, &st) < 0)
		r = -errno;
	if (r == 0 && (st.st_mode & 0755) != 0755 && fchmod(dir, (st.st_mode & 0777) | 0755) < 0)
		r = -errno;
	if (r == 0)
		*ret = TAKE_FD(dir);
	return r;
}

static int put_ours(const struct ca *c, const char *bundle, const struct buf *made, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	char target[64] = "";
	int r = open_ours(c, &dir);

	if (r == 0)
		r = ca_file_put(dir, "ca.pem", c->pem, c->n);
	if (bundle)
		(void)snprintf(target, sizeof(target), "../%s", bundle + STRLEN("etc/"));
	if (r == 0)
		r = bundle ? ca_file_link(dir, "bundle.pem", target)
			   : ca_file_put(dir, "bundle.pem", c->pem, c->n);
	if (r == 0 && made->len > 0)
		r = ca_file_put(dir, CA_MADE, buf_text(made), made->len);
	return r < 0 ? err_set(e, r, "cannot write the CA of the sandbox to /" CA_OURS ": %s",
			       strerror(-r))
		     : 0;
}

static int put_hash_link(const struct ca *c, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	int r = ca_file_dir(c->root, CA_CERTS, &dir);

	if (ca_file_missing(r))
		return 0;
	if (r == 0)
		r = ca_file_link(dir, CA_STORE_LINK, "/" CA_OURS "/ca.pem");
	return r < 0 ? fail(CA_CERTS "/" CA_STORE_LINK, r, e) : 0;
}

/* Debian's package of certificates makes this directory, and reads it at once. */
static void make_local(const struct ca *c)
{
	_cleanup_close_ int dir = -EBADF;

	if (ca_file_dir(c->root, CA_LOCAL, &dir) == 0)
		(void)mkdirat(dir, CA_LOCAL_DIR, 0755);
}

static int put_anchors(const struct ca *c, struct err *e)
{
	for (const char *const *path = ca_anchors; *path; path++) {
		_cleanup_close_ int dir = -EBADF;
		int r = ca_file_dir(c->root, *path, &dir);

		if (ca_file_missing(r))
			continue;
		if (r == 0)
			r = ca_file_put(dir, CA_ANCHOR, c->pem, c->n);
		if (r == -EACCES) /* some images give /usr/local to a user */
			log_warning("cannot write the CA of the sandbox to /%s", *path);
		else if (r < 0)
			return fail(*path, r, e);
	}
	return 0;
}

static int put_java(const struct ca *c, struct err *e)
{
	_cleanup_free_ char *der = NULL;
	size_t n;
	int r = bundle_decode(c->pem, c->n, &der, &n);

	if (r == -EINVAL)
		return err_set(e, r, "the CA of the sandbox is not one PEM certificate");
	return r < 0 ? err_oom(e) : java_rewrite(c->root, der, n, e);
}

/* ---- files that did not exist ---- */

static bool is_there(int root, const char *path)
{
	_cleanup_close_ int fd = path_open_in_mount(root, path, O_PATH | O_NOFOLLOW, 0);

	return fd >= 0;
}

/* Reads the names that an earlier call has noted. Users may have changed the file. */
static void read_made(int root, struct buf *ret)
{
	_cleanup_close_ int dir = -EBADF;
	struct stat st;

	if (ca_file_dir(root, CA_OURS, &dir) < 0 || ca_file_read(dir, CA_MADE, ret, &st) < 0)
		buf_reset(ret);
}

/* Appends the names that exist now, unless they did before. */
static void note_made(int root, uint32_t before, struct buf *made)
{
	for (uint32_t i = 0; ca_makes[i]; i++)
		if (!(before & 1U << i) && is_there(root, ca_makes[i]))
			(void)buf_printf(made, "%s\n", ca_makes[i]);
}

static uint32_t look_before(int root)
{
	uint32_t before = 0;

	for (uint32_t i = 0; ca_makes[i]; i++)
		if (is_there(root, ca_makes[i]))
			before |= 1U << i;
	return before;
}

static int install(const struct ca *c, struct err *e)
{
	_cleanup_buf_ struct buf made = BUF_INIT(CA_MADE_MAX);
	const uint32_t before = look_before(c->root);
	const char *bundle;

	if (put_bundles(c, &bundle, e) < 0)
		return e->num;
	make_local(c);
	read_made(c->root, &made);
	note_made(c->root, before, &made);
	if (made.err)
		return err_set(e, made.err, "cannot note the files of the CA: %s",
			       strerror(-made.err));
	if (put_ours(c, bundle, &made, e) < 0 || put_hash_link(c, e) < 0)
		return e->num;
	return put_anchors(c, e) < 0 ? e->num : put_java(c, e);
}

int ca_store_install(int root, const char *ca, size_t n, struct err *e)
{
	const struct ca c = { root, ca, n };

	if (!bundle_is_certificate(ca, n))
		return err_set(e, -EINVAL, "the CA of the sandbox is not one PEM certificate");
	if (install(&c, e) == 0)
		return 0;
	if (e->num != -EROFS)
		return e->num;
	log_warning("%s; the sandbox continues without it", e->msg);
	return 0;
}
