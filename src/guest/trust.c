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
 *   bundle anew.
 *
 * Java's own format (/etc/ssl/certs/java/cacerts, lib/security/cacerts) is not supported.
 *
 * The image is untrusted, and users have changed the files before a VM resumes. Links are followed
 * inside the root directory only, and never into /proc or another mount, whose files PID 1 may read
 * and users may not. Files are replaced by rename(2), so a program never sees half a bundle.
 */
#include "guest/trust.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"

#define OURS	    "etc/hutch"
#define CERTS	    "etc/ssl/certs"
#define BUNDLE	    "ca-certificates.crt"
#define ANCHOR	    "hutch-sandbox-ca.crt"
#define LOCAL	    "usr/local/share"
#define LOCAL_NAME  "ca-certificates"
#define TEMPORARY   ".hutch-ca.tmp"
#define BLOCK_BEGIN "# Hutch sandbox CA begin\n"
#define BLOCK_END   "# Hutch sandbox CA end\n"
#define PEM_BEGIN   "-----BEGIN CERTIFICATE-----\n"
#define PEM_END	    "-----END CERTIFICATE-----\n"

enum {
	LINKS_MAX = 8,
};

/* The first that exists is the image's bundle. */
static const char *const bundles[] = {
	CERTS "/" BUNDLE,	 CERTS "/ca-bundle.crt", "etc/pki/tls/certs/ca-bundle.crt",
	"etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem",
};

/* Directories of local CAs: Debian and Alpine, Fedora, openSUSE, Arch. */
static const char *const anchors[] = {
	LOCAL "/" LOCAL_NAME,
	"etc/pki/ca-trust/source/anchors",
	"etc/pki/trust/anchors",
	"etc/ca-certificates/trust-source/anchors",
};

/* With the directories that links of the bundles lead to on Fedora, openSUSE and Arch. */
const char *const trust_readable[] = {
	OURS,
	CERTS,
	"etc/ssl/cert.pem",
	"etc/ssl/ca-bundle.pem",
	"etc/pki/tls/certs",
	"etc/pki/ca-trust/extracted",
	"etc/ca-certificates/extracted",
	"var/lib/ca-certificates",
	NULL,
};

struct trust {
	int root;
	const char *ca;
	size_t n;
};

/* ---- files ---- */

/* Nothing of use is at the path; other errors are failures. */
static bool is_missing(int r)
{
	return r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EXDEV;
}

/* The caller closes *ret. */
static int open_dir(const struct trust *t, const char *path, int *ret)
{
	_cleanup_close_ int fd = path_open_in_mount(t->root, path, O_RDONLY | O_DIRECTORY, 0);
	struct stat st;

	if (fd < 0)
		return fd;
	/* PID 1 has no right to ignore modes. The directory's owner may change it anyway. */
	if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & S_IWUSR))
		(void)!fchmod(fd, (st.st_mode & 07777) | S_IWUSR);
	*ret = TAKE_FD(fd);
	return 0;
}

static int fill(int fd, const struct stat *as, const char *data, size_t n)
{
	int r = fd_write_all(fd, data, n);

	if (r == 0 && fchmod(fd, as->st_mode & 0777) < 0)
		r = -errno;
	/* The owner of the old file may have no number here. Readable is good enough. */
	if (r == 0 && (as->st_uid != geteuid() || as->st_gid != getegid()))
		(void)!fchown(fd, as->st_uid, as->st_gid);
	return r;
}

/* Replaces the file `name` of a directory by one with the mode and owner of `as`. */
static int replace(int dir, const char *name, const struct stat *as, const char *data, size_t n)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	if (unlinkat(dir, TEMPORARY, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = RETRY_EINTR(
		openat(dir, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0)
		return -errno;
	r = fill(fd, as, data, n);
	if (r == 0 && renameat(dir, TEMPORARY, dir, name) < 0)
		r = -errno;
	if (r < 0)
		(void)unlinkat(dir, TEMPORARY, 0);
	return r;
}

static struct stat new_file(void)
{
	return (struct stat){ .st_mode = 0644, .st_uid = geteuid(), .st_gid = getegid() };
}

/* Reads a regular file of at most TRUST_BUNDLE_MAX bytes; anything else is -ENOENT. */
static int read_regular(int dir, const char *name, struct buf *b, struct stat *ret)
{
	_cleanup_close_ int fd = -EBADF;

	/* Opening a device may have effects, so look first. */
	if (fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(ret->st_mode))
		return -ENOENT;
	fd = path_open_in_mount(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW, 0);
	if (fd < 0)
		return fd;
	if (fstat(fd, ret) < 0)
		return -errno;
	return S_ISREG(ret->st_mode) ? fd_read_all(fd, b) : -ENOENT;
}

/* Writes our file unless it has these contents already: that keeps what Landlock allows. */
static int put_file(int dir, const char *name, const char *data, size_t n)
{
	_cleanup_buf_ struct buf old = BUF_INIT(WIRE_CA_MAX);
	struct stat st, as = new_file();

	if (read_regular(dir, name, &old, &st) == 0 && old.len == n &&
	    memcmp(buf_text(&old), data, n) == 0 && (st.st_mode & 0777) == as.st_mode)
		return 0;
	return replace(dir, name, &as, data, n);
}

static int put_link(int dir, const char *name, const char *target)
{
	char old[PATH_MAX];
	ssize_t k = readlinkat(dir, name, old, sizeof(old));
	int r;

	if (k >= 0 && (size_t)k == strlen(target) && memcmp(old, target, (size_t)k) == 0)
		return 0;
	if (unlinkat(dir, TEMPORARY, 0) < 0 && errno != ENOENT)
		return -errno;
	if (symlinkat(target, dir, TEMPORARY) < 0)
		return -errno;
	if (renameat(dir, TEMPORARY, dir, name) == 0)
		return 0;
	r = -errno;
	(void)unlinkat(dir, TEMPORARY, 0);
	return r;
}

/* ---- bundles ---- */

/* Where a path leads: a name that is no link, in an open directory. */
struct place {
	int dir;
	char name[NAME_MAX + 1];
};

static void place_done(struct place *p)
{
	p->dir = fd_close(p->dir);
}

/* Opens the directory of `path`. */
static int open_parent(const struct trust *t, const char *path, struct place *p)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	char parent[PATH_MAX];

	if (!*name || str_eq(name, ".") || str_eq(name, "..") || strlen(name) > NAME_MAX)
		return -ENOENT;
	(void)snprintf(parent, sizeof(parent), "%.*s", (int)(name - path), path);
	memcpy(p->name, name, strlen(name) + 1);
	return open_dir(t, slash ? parent : ".", &p->dir);
}

/* Follows the links at the end of a path. The caller calls place_done(), also after an error. */
static int find(const struct trust *t, const char *path, struct place *ret)
{
	char at[PATH_MAX], link[PATH_MAX], next[PATH_MAX];

	ret->dir = -EBADF;
	(void)snprintf(at, sizeof(at), "%s", path);
	for (int i = 0; i < LINKS_MAX; i++) {
		const char *slash;
		ssize_t k;
		int r, n;

		place_done(ret);
		r = open_parent(t, at, ret);
		if (r < 0)
			return r;
		k = readlinkat(ret->dir, ret->name, link, sizeof(link) - 1);
		if (k < 0)
			return errno == EINVAL ? 0 : -errno;
		link[k] = '\0';
		slash = strrchr(at, '/');
		n = snprintf(next, sizeof(next), "%.*s%s",
			     link[0] == '/' || !slash ? 0 : (int)(slash + 1 - at), at, link);
		if (n < 0 || (size_t)n >= sizeof(next))
			return -ENOENT;
		memcpy(at, next, sizeof(at));
	}
	return -ELOOP;
}

static bool is_line(const char *line, size_t n, const char *text)
{
	return n == strlen(text) && memcmp(line, text, n) == 0;
}

/* Removes the blocks that earlier calls have added; users may have damaged one. */
static void strip(struct buf *b)
{
	char *out = b->data, *block = NULL;
	size_t n;

	for (char *line = b->data, *end = line + b->len; line < end; line += n) {
		char *newline = memchr(line, '\n', (size_t)(end - line));

		n = (size_t)((newline ? newline + 1 : end) - line);
		if (is_line(line, n, BLOCK_BEGIN))
			block = out;
		if (is_line(line, n, BLOCK_END)) {
			out = block ? block : out;
			block = NULL;
		} else {
			memmove(out, line, n);
			out += n;
		}
	}
	b->len = (size_t)(out - b->data);
}

/* The CA may be in the bundle already, from the directory of local CAs. */
static void append(const struct trust *t, struct buf *b)
{
	if (b->len > 0 && memmem(b->data, b->len, t->ca, t->n))
		return;
	if (b->len > 0 && b->data[b->len - 1] != '\n')
		(void)buf_putc(b, '\n');
	(void)buf_puts(b, BLOCK_BEGIN);
	(void)buf_put(b, t->ca, t->n);
	(void)buf_puts(b, BLOCK_END);
}

static int rewrite(const struct trust *t, const struct place *p)
{
	enum {
		MORE = WIRE_CA_MAX + sizeof(BLOCK_BEGIN) + sizeof(BLOCK_END)
	};
	_cleanup_buf_ struct buf old = BUF_INIT(TRUST_BUNDLE_MAX),
				 new = BUF_INIT(TRUST_BUNDLE_MAX + MORE);
	struct stat st;
	int r = read_regular(p->dir, p->name, &old, &st);

	if (r < 0)
		return r;
	(void)buf_put(&new, buf_text(&old), old.len);
	if (!new.err &&new.len > 0)
		strip(&new);
	append(t, &new);
	if (new.err)
		return new.err;
	if (new.len == old.len && memcmp(new.data, old.data, new.len) == 0)
		return 0;
	return replace(p->dir, p->name, &st, new.data, new.len);
}

static int fail(const char *path, int r, struct err *e)
{
	return err_set(e, r, "cannot add the CA of the sandbox to /%s: %s", path,
		       r == -EFBIG ? "the file is too large" : strerror(-r));
}

/* An image without CA certificates trusts our CA alone. *ret is NULL if it has no place for it. */
static int make_bundle(const struct trust *t, const char **ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(2 * WIRE_CA_MAX);
	_cleanup_close_ int dir = -EBADF;
	const struct stat as = new_file();
	int r = open_dir(t, CERTS, &dir);

	if (r == -ENOENT) {
		r = path_mkdirs(t->root, CERTS, 0755);
		if (r == 0)
			r = open_dir(t, CERTS, &dir);
	}
	append(t, &b);
	if (r == 0)
		r = b.err ? b.err : replace(dir, BUNDLE, &as, b.data, b.len);
	*ret = r < 0 ? NULL : CERTS "/" BUNDLE;
	return r < 0 && !is_missing(r) ? fail(CERTS "/" BUNDLE, r, e) : 0;
}

/* Adds the CA to all bundles; *ret is the first. */
static int put_bundles(const struct trust *t, const char **ret, struct err *e)
{
	const char *first = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(bundles); i++) {
		struct place p;
		int r = find(t, bundles[i], &p);

		if (r == 0)
			r = rewrite(t, &p);
		place_done(&p);
		if (r < 0 && !is_missing(r))
			return fail(bundles[i], r, e);
		if (r == 0 && !first)
			first = bundles[i];
	}
	*ret = first;
	return first ? 0 : make_bundle(t, ret, e);
}

/* ---- the other places ---- */

static int put_ours(const struct trust *t, const char *bundle, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	char target[64] = "";
	struct stat st;
	int r = path_mkdirs(t->root, OURS, 0755);

	if (r == 0)
		r = open_dir(t, OURS, &dir);
	if (r == 0 && fstat(dir, &st) < 0)
		r = -errno;
	/* Programs of all users read it. */
	if (r == 0 && (st.st_mode & 0755) != 0755 && fchmod(dir, (st.st_mode & 0777) | 0755) < 0)
		r = -errno;
	if (r == 0)
		r = put_file(dir, "ca.pem", t->ca, t->n);
	if (bundle)
		(void)snprintf(target, sizeof(target), "../%s", bundle + STRLEN("etc/"));
	if (r == 0)
		r = bundle ? put_link(dir, "bundle.pem", target)
			   : put_file(dir, "bundle.pem", t->ca, t->n);
	return r < 0 ? err_set(e, r, "cannot write the CA of the sandbox to /" OURS ": %s",
			       strerror(-r))
		     : 0;
}

static int put_hash_link(const struct trust *t, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	int r = open_dir(t, CERTS, &dir);

	if (is_missing(r))
		return 0;
	if (r == 0)
		r = put_link(dir, TRUST_LINK, "/" OURS "/ca.pem");
	return r < 0 ? fail(CERTS "/" TRUST_LINK, r, e) : 0;
}

/* Debian's package of certificates makes this directory, and reads it at once. */
static void make_local(const struct trust *t)
{
	_cleanup_close_ int dir = -EBADF;

	if (open_dir(t, LOCAL, &dir) == 0)
		(void)mkdirat(dir, LOCAL_NAME, 0755);
}

static int put_anchors(const struct trust *t, struct err *e)
{
	make_local(t);
	for (size_t i = 0; i < ARRAY_SIZE(anchors); i++) {
		_cleanup_close_ int dir = -EBADF;
		int r = open_dir(t, anchors[i], &dir);

		if (is_missing(r))
			continue;
		if (r == 0)
			r = put_file(dir, ANCHOR, t->ca, t->n);
		if (r == -EACCES) /* some images give /usr/local to a user */
			log_warning("cannot write the CA of the sandbox to /%s", anchors[i]);
		else if (r < 0)
			return fail(anchors[i], r, e);
	}
	return 0;
}

/* One certificate, and no line that ends a block. */
static bool is_certificate(const char *ca, size_t n)
{
	return n > STRLEN(PEM_BEGIN PEM_END) && n <= WIRE_CA_MAX &&
	       memcmp(ca, PEM_BEGIN, STRLEN(PEM_BEGIN)) == 0 && !memchr(ca, '#', n) &&
	       memmem(ca, n, PEM_END, STRLEN(PEM_END)) == ca + n - STRLEN(PEM_END);
}

int trust_install(int root, const char *ca, size_t n, struct err *e)
{
	const struct trust t = { root, ca, n };
	const char *bundle;

	if (!is_certificate(ca, n))
		return err_set(e, -EINVAL, "the CA of the sandbox is not one PEM certificate");
	if (put_bundles(&t, &bundle, e) == 0 && put_ours(&t, bundle, e) == 0 &&
	    put_hash_link(&t, e) == 0 && put_anchors(&t, e) == 0)
		return 0;
	if (e->num != -EROFS)
		return e->num;
	log_warning("%s; the sandbox continues without it", e->msg);
	return 0;
}

int trust_hello(const struct fields *hello, struct err *e)
{
	static bool again;
	const bool first = !again;
	_cleanup_close_ int root = -EBADF;
	const char *ca;
	size_t pos = 0, n;

	again = true;
	if (!fields_next(hello, TAG_CA, &pos, &ca, &n))
		return 0;
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return err_errno(e, "cannot open the root directory");
	if (trust_install(root, ca, n, e) == 0)
		return 0;
	if (first)
		return e->num;
	log_warning("%s", e->msg);
	return 0;
}
