/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Undoes install.c. It knows our CA by its subject, so it needs no certificate, and also finds the
 * copies that update-ca-certificates and similar programs have made inside the sandbox.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "ca-store/bundle.h"
#include "ca-store/ca-file.h"
#include "ca-store/ca-store.h"
#include "ca-store/java.h"
#include "ca-store/places.h"

enum {
	HASHES_MAX = 10, /* links with our subject's hash: HASH.0 to HASH.9 */
};

static int fail(const char *path, int r, struct err *e)
{
	return err_set(e, r, "cannot remove the CA of the sandbox from '/%s': %s", path,
		       r == -EFBIG ? "the file is too large" : strerror(-r));
}

/* ---- files that are ours ---- */

/* Is it a file with our CA, or a link to one? 1, 0 or -errno. */
static int is_ours(int dir, const char *name)
{
	_cleanup_buf_ struct buf b = BUF_INIT(CA_STORE_CERT_MAX);
	_cleanup_free_ char *der = NULL;
	char target[PATH_MAX];
	ssize_t k = readlinkat(dir, name, target, sizeof(target) - 1);
	struct stat st;
	size_t n;
	int r;

	if (k >= 0) {
		target[k] = '\0';
		return str_eq(target, "/" CA_OURS "/ca.pem") || str_has_suffix(target, CA_ANCHOR) ||
		       str_eq(target, "hutch-sandbox-ca.pem");
	}
	r = ca_file_read(dir, name, &b, &st);
	if (r == 0)
		r = bundle_decode(buf_text(&b), b.len, &der, &n);
	if (r == 0)
		return bundle_is_ours(der, n);
	return r == -EFBIG || r == -EINVAL || ca_file_missing(r) ? 0 : r;
}

static int drop_ours(int dir, const char *name)
{
	int r = is_ours(dir, name);

	if (r > 0)
		r = unlinkat(dir, name, 0) < 0 ? -errno : 0;
	return r;
}

static int drop_certs(int root, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	char name[] = CA_STORE_LINK;
	int r = ca_file_dir(root, CA_CERTS, &dir);

	if (ca_file_missing(r))
		return 0;
	for (int i = 0; r == 0 && i < HASHES_MAX; i++) {
		name[STRLEN(CA_STORE_LINK) - 1] = (char)('0' + i);
		r = drop_ours(dir, name);
	}
	if (r == 0)
		r = drop_ours(dir, "hutch-sandbox-ca.pem"); /* made by update-ca-certificates */
	return r < 0 ? fail(CA_CERTS, r, e) : 0;
}

static int drop_anchors(int root, struct err *e)
{
	for (const char *const *path = ca_anchors; *path; path++) {
		_cleanup_close_ int dir = -EBADF;
		int r = ca_file_dir(root, *path, &dir);

		if (r == 0)
			r = drop_ours(dir, CA_ANCHOR);
		if (r < 0 && !ca_file_missing(r))
			return fail(*path, r, e);
	}
	return 0;
}

/* ---- bundles ---- */

static int strip(const struct ca_place *p)
{
	_cleanup_buf_ struct buf b = BUF_INIT(CA_STORE_FILE_MAX);
	struct stat st;
	size_t n;
	int r = ca_file_read(p->dir, p->name, &b, &st);

	/* Our CA cannot be in a larger file. */
	if (r < 0)
		return r == -EFBIG ? 0 : r;
	n = b.len;
	bundle_strip(&b);
	r = bundle_strip_copies(&b);
	if (r < 0 || b.len == n)
		return r;
	return ca_file_replace(p->dir, p->name, &st, buf_text(&b), b.len);
}

static int strip_bundles(int root, struct err *e)
{
	for (const char *const *path = ca_bundles; *path; path++) {
		struct ca_place p;
		int r = ca_place_find(root, *path, &p);

		if (r == 0)
			r = strip(&p);
		ca_place_done(&p);
		if (r < 0 && !ca_file_missing(r))
			return fail(*path, r, e);
	}
	return 0;
}

/* ---- files that the sandbox began without ---- */

static bool has_line(const struct buf *text, const char *line)
{
	const size_t n = strlen(line);

	for (const char *at = buf_text(text); *at; at += strcspn(at, "\n"), at += *at == '\n')
		if (strncmp(at, line, n) == 0 && at[n] == '\n')
			return true;
	return false;
}

/* Only an empty file or directory: users may have put something there. */
static int drop_empty(int root, const char *path)
{
	_cleanup_close_ int dir = -EBADF;
	char parent[PATH_MAX];
	const char *name = strrchr(path, '/') + 1;
	struct stat st;

	if (path_parent(path, parent, sizeof(parent)) < 0 || ca_file_dir(root, parent, &dir) < 0 ||
	    fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISREG(st.st_mode) && st.st_size > 0)
		return 0;
	if (unlinkat(dir, name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) < 0 && errno != ENOTEMPTY &&
	    errno != EEXIST)
		return -errno;
	return 0;
}

static int drop_made(int root, const struct buf *made, struct err *e)
{
	int r = 0;

	for (size_t i = 0; ca_makes[i]; i++) {
		if (has_line(made, ca_makes[i]))
			r = drop_empty(root, ca_makes[i]);
		if (r < 0)
			return fail(ca_makes[i], r, e);
	}
	return 0;
}

/* Removes the files of /etc/hutch; `made` receives the notes of install.c. */
static int drop_directory(int root, struct buf *made, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	struct stat st;
	int r = ca_file_dir(root, CA_OURS, &dir);

	if (ca_file_missing(r))
		return 0;
	if (r == 0)
		r = is_ours(dir, "ca.pem");
	if (r <= 0)
		return r < 0 ? fail(CA_OURS, r, e) : 0;
	if (ca_file_read(dir, CA_MADE, made, &st) < 0)
		buf_reset(made);
	if (unlinkat(dir, "ca.pem", 0) < 0 ||
	    (unlinkat(dir, "bundle.pem", 0) < 0 && errno != ENOENT) ||
	    (unlinkat(dir, CA_MADE, 0) < 0 && errno != ENOENT))
		return fail(CA_OURS, -errno, e);
	r = drop_empty(root, CA_OURS);
	return r < 0 ? fail(CA_OURS, r, e) : 0;
}

int ca_store_remove(int root, struct err *e)
{
	_cleanup_buf_ struct buf made = BUF_INIT(CA_MADE_MAX);

	if (strip_bundles(root, e) < 0 || drop_certs(root, e) < 0 || drop_anchors(root, e) < 0 ||
	    java_rewrite(root, NULL, 0, e) < 0)
		return e->num;
	return drop_directory(root, &made, e) < 0 ? e->num : drop_made(root, &made, e);
}
