/* SPDX-License-Identifier: Apache-2.0 */
/* The CA of a sandbox, in the places of its root directory where programs look for it. */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/path.h"
#include "ca-store/bundle.h"
#include "ca-store/ca-store.h"
#include "fail.h"

#define BEGIN "-----BEGIN CERTIFICATE-----\n"
#define END   "-----END CERTIFICATE-----\n"
/* Their bytes contain "Hutch sandbox CA". */
#define CA    BEGIN "MSBIdXRjaCBzYW5kYm94IENB\n" END
#define CA2   BEGIN "Miwgb2Yg\nSHV0Y2ggc2FuZGJveCBDQQ==\n" END
#define ROOTS "# A root\n" BEGIN "cm9vdA==\n" END

#define BLOCK(ca) "# Hutch sandbox CA begin\n" ca "# Hutch sandbox CA end\n"
#define JOINED(ca)                                                                         \
	"# Hutch sandbox CA begin, after a line without an end\n" ca "# Hutch sandbox CA " \
	"end\n"
#define BUNDLE "etc/ssl/certs/ca-certificates.crt"
#define ANCHOR "usr/local/share/ca-certificates/hutch-sandbox-ca.crt"

static int install(const struct unit_dir *d, const char *ca, struct err *e)
{
	return ca_store_install(d->fd, ca, strlen(ca), e);
}

static void put(const struct unit_dir *d, const char *path, const char *text)
{
	char parent[256];

	assert_int_equal(path_parent(path, parent, sizeof(parent)), 0);
	assert_int_equal(path_mkdirs(d->fd, parent, 0755), 0);
	unit_dir_write(d, path, text, strlen(text));
}

static void put_link(const struct unit_dir *d, const char *path, const char *target)
{
	char parent[256];

	assert_int_equal(path_parent(path, parent, sizeof(parent)), 0);
	assert_int_equal(path_mkdirs(d->fd, parent, 0755), 0);
	assert_int_equal(symlinkat(target, d->fd, path), 0);
}

/* The contents behind a path, with links as in the sandbox. */
static void expect(const struct unit_dir *d, const char *path, const char *text)
{
	_cleanup_buf_ struct buf b = BUF_INIT(CA_STORE_FILE_MAX);
	_cleanup_close_ int fd = path_open_in_root(d->fd, path, O_RDONLY, 0);

	assert_true(fd >= 0);
	assert_int_equal(fd_read_all(fd, &b), 0);
	assert_string_equal(buf_text(&b), text);
}

static struct stat look(const struct unit_dir *d, const char *path)
{
	struct stat st = { 0 };

	(void)fstatat(d->fd, path, &st, AT_SYMLINK_NOFOLLOW);
	return st;
}

TEST_IN_DIR(debian)
{
	static const char *const files[] = { BUNDLE, "etc/hutch/ca.pem", "etc/hutch/bundle.pem",
					     ANCHOR, ("etc/ssl/certs/" CA_STORE_LINK) };
	struct stat before[ARRAY_SIZE(files)];
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	put(d, BUNDLE, ROOTS);
	assert_int_equal(path_mkdirs(d->fd, "usr/local/share", 0755), 0);
	assert_int_equal(fchmodat(d->fd, BUNDLE, 0640, 0), 0);
	assert_int_equal(install(d, CA, &e), 0);
	expect(d, BUNDLE, ROOTS BLOCK(CA));
	expect(d, "etc/hutch/bundle.pem", ROOTS BLOCK(CA));
	expect(d, "etc/hutch/ca.pem", CA);
	expect(d, "etc/ssl/certs/" CA_STORE_LINK, CA);
	expect(d, ANCHOR, CA);
	assert_int_equal(look(d, BUNDLE).st_mode, S_IFREG | 0640);
	assert_int_equal(look(d, "etc/hutch").st_mode, S_IFDIR | 0755);
	assert_int_equal(look(d, "etc/hutch/ca.pem").st_mode, S_IFREG | 0644);
	assert_int_equal(look(d, "etc/ssl/ca-bundle.pem").st_mode, 0);

	/* Again: nothing changes. */
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		before[i] = look(d, files[i]);
	assert_int_equal(install(d, CA, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		assert_int_equal(look(d, files[i]).st_ino, before[i].st_ino);
	expect(d, BUNDLE, ROOTS BLOCK(CA));

	/* Another sandbox: another CA. */
	assert_int_equal(install(d, CA2, &e), 0);
	expect(d, BUNDLE, ROOTS BLOCK(CA2));
	expect(d, "etc/hutch/ca.pem", CA2);
	expect(d, ANCHOR, CA2);
}

/* One bundle in two places, and the directory of OpenSSL is a link. */
TEST_IN_DIR(fedora)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	put(d, "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", ROOTS);
	put_link(d, "etc/pki/tls/certs/ca-bundle.crt",
		 "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem");
	put_link(d, "etc/pki/tls/cert.pem", "certs/ca-bundle.crt");
	put_link(d, "etc/ssl/certs", "../pki/tls/certs");
	put_link(d, "etc/ssl/cert.pem", "../pki/tls/cert.pem");
	assert_int_equal(path_mkdirs(d->fd, "etc/pki/ca-trust/source/anchors", 0755), 0);
	assert_int_equal(install(d, CA, &e), 0);
	assert_int_equal(install(d, CA, &e), 0);
	expect(d, "etc/ssl/cert.pem", ROOTS BLOCK(CA));
	expect(d, "etc/hutch/bundle.pem", ROOTS BLOCK(CA));
	expect(d, "etc/pki/ca-trust/source/anchors/hutch-sandbox-ca.crt", CA);
	expect(d, "etc/pki/tls/certs/" CA_STORE_LINK, CA);
	assert_true(S_ISLNK(look(d, "etc/pki/tls/certs/ca-bundle.crt").st_mode));
	assert_true(S_ISLNK(look(d, "etc/ssl/cert.pem").st_mode));
}

TEST_IN_DIR(image_without_certificates)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	assert_int_equal(install(d, CA, &e), 0);
	assert_int_equal(install(d, CA, &e), 0);
	expect(d, BUNDLE, BLOCK(CA));
	expect(d, "etc/hutch/bundle.pem", BLOCK(CA));
	assert_int_equal(look(d, "usr").st_mode, 0);
	/* The package of the distribution makes another bundle, with the local CAs. */
	put(d, BUNDLE, ROOTS CA);
	expect(d, "etc/hutch/bundle.pem", ROOTS CA);
	assert_int_equal(install(d, CA, &e), 0);
	expect(d, BUNDLE, ROOTS CA);
}

/* There is no place for a bundle: our own directory has one. */
TEST_IN_DIR(image_with_a_dangling_directory)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	put_link(d, "etc/ssl/certs", "/nowhere");
	for (int i = 0; i < 2; i++) {
		assert_int_equal(install(d, CA, &e), 0);
		expect(d, "etc/hutch/bundle.pem", CA);
	}
	assert_int_equal(look(d, "nowhere").st_mode, 0);
}

TEST_IN_DIR(blocks_are_replaced)
{
	static const struct unit_row rows[] = {
		{ "", BLOCK(CA) },
		{ "no newline", "no newline\n" JOINED(CA) },
		{ BLOCK(CA2), BLOCK(CA) },
		{ BLOCK(CA2) ROOTS, ROOTS BLOCK(CA) },
		{ BLOCK(CA2) ROOTS BLOCK(CA) BLOCK(CA2), ROOTS BLOCK(CA) },
		/* A block that a user has cut takes nothing else with it. */
		{ "# Hutch sandbox CA begin\n" ROOTS BLOCK(CA2),
		  "# Hutch sandbox CA begin\n" ROOTS BLOCK(CA) },
		{ ROOTS "# Hutch sandbox CA end\n" ROOTS, ROOTS ROOTS BLOCK(CA) },
		{ ROOTS "# Hutch sandbox CA end", ROOTS "# Hutch sandbox CA end\n" JOINED(CA) },
		{ "no newline\n" JOINED(CA2), "no newline\n" JOINED(CA) },
		{ "no newline\n" JOINED(CA2) "more\n", "no newline\nmore\n" BLOCK(CA) },
		{ "x # Hutch sandbox CA begin\n" BLOCK(CA2),
		  "x # Hutch sandbox CA begin\n" BLOCK(CA) },
		{ "a" CA "b\n", "a" CA "b\n" },
	};
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		put(d, BUNDLE, rows[i].given);
		assert_int_equal(install(d, CA, &e), 0);
		expect(d, BUNDLE, rows[i].wanted);
	}
}

/* Links lead nowhere outside, and only regular files are bundles. */
TEST_IN_DIR(strange_bundles_are_ignored)
{
	struct unit_dir *d = *state;
	struct unit_dir root = { .fd = -EBADF };
	struct err e = ERR_INIT;

	put(d, "outside", ROOTS);
	assert_int_equal(mkdirat(d->fd, "root", 0755), 0);
	root.fd = openat(d->fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put_link(&root, "etc/ssl/cert.pem", "../../../../../outside");
	put_link(&root, "etc/ssl/ca-bundle.pem", "ca-bundle.pem");
	assert_int_equal(path_mkdirs(root.fd, "etc/pki/tls/certs", 0755), 0);
	assert_int_equal(mkfifoat(root.fd, "etc/pki/tls/certs/ca-bundle.crt", 0644), 0);
	assert_int_equal(path_mkdirs(root.fd, "etc/ssl/certs/ca-bundle.crt", 0755), 0);
	assert_int_equal(install(&root, CA, &e), 0);
	expect(d, "outside", ROOTS);
	assert_int_equal(look(d, "root/outside").st_mode, 0);
	expect(&root, "etc/hutch/bundle.pem", BLOCK(CA));
	assert_true(S_ISFIFO(look(&root, "etc/pki/tls/certs/ca-bundle.crt").st_mode));
	(void)close(root.fd);
}

/* An image may put a link in the place of our directory. */
TEST_IN_DIR(our_directory_is_no_link)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	put_link(d, "etc/hutch", "/elsewhere");
	assert_int_equal(mkdirat(d->fd, "elsewhere", 0755), 0);
	assert_int_equal(install(d, CA, &e), -ELOOP);
	assert_string_equal(e.msg, "cannot write the CA of the sandbox to /etc/hutch: Too many "
				   "levels of symbolic links");
	assert_int_equal(look(d, "elsewhere/ca.pem").st_mode, 0);
}

/* The files may be there already: links of a user, a directory, an old temporary file. */
TEST_IN_DIR(old_files_are_replaced)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	put(d, "etc/passwd", "root\n");
	put_link(d, "etc/hutch/ca.pem", "../passwd");
	put_link(d, "etc/hutch/.hutch-ca.tmp", "../passwd");
	put(d, "etc/hutch/bundle.pem", "old\n");
	put(d, "etc/ssl/certs/" CA_STORE_LINK, "old\n");
	put(d, ANCHOR, CA2);
	assert_int_equal(fchmodat(d->fd, "etc/hutch", 0700, 0), 0);
	assert_int_equal(fchmodat(d->fd, "etc/ssl/certs", 0555, 0), 0);
	assert_int_equal(install(d, CA, &e), 0);
	expect(d, "etc/passwd", "root\n");
	expect(d, "etc/hutch/ca.pem", CA);
	expect(d, "etc/hutch/bundle.pem", BLOCK(CA));
	expect(d, "etc/ssl/certs/" CA_STORE_LINK, CA);
	expect(d, ANCHOR, CA);
	assert_int_equal(look(d, "etc/hutch").st_mode, S_IFDIR | 0755);
	assert_int_equal(look(d, "etc/hutch/.hutch-ca.tmp").st_mode, 0);
	assert_int_equal(unlinkat(d->fd, "etc/hutch/ca.pem", 0), 0);
	assert_int_equal(mkdirat(d->fd, "etc/hutch/ca.pem", 0755), 0);
	assert_int_equal(install(d, CA, &e), -EISDIR);
}

TEST_IN_DIR(bundles_have_a_limit)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	put(d, BUNDLE, ROOTS);
	{
		_cleanup_close_ int fd = openat(d->fd, BUNDLE, O_WRONLY | O_CLOEXEC);

		assert_int_equal(ftruncate(fd, CA_STORE_FILE_MAX + 1), 0);
		assert_int_equal(install(d, CA, &e), -EFBIG);
		assert_string_equal(e.msg, "cannot add the CA of the sandbox to /" BUNDLE
					   ": the file is too large");
		assert_int_equal(ftruncate(fd, CA_STORE_FILE_MAX), 0);
		assert_int_equal(install(d, CA, &e), 0);
	}
}

TEST_IN_DIR(only_a_certificate)
{
	static const char *const wrong[] = {
		"",
		"x",
		BEGIN END,
		BEGIN "x\n" END END,
		CA CA2,
		"x" CA,
		CA "x",
		ROOTS CA,
		BEGIN "# Hutch sandbox CA end\n" END,
		BEGIN "Q0E=\n",
	};
	struct unit_dir *d = *state;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct err e = ERR_INIT;

		assert_int_equal(install(d, wrong[i], &e), -EINVAL);
		assert_string_equal(e.msg, "the CA of the sandbox is not one PEM certificate");
	}
	assert_int_equal(unit_dir_entries(d), 0);
}

static int install_afresh(const struct unit_dir *d)
{
	static bool other;
	struct err e = ERR_INIT;

	other = !other;
	return install(d, other ? CA2 : CA, &e);
}

TEST_IN_DIR(every_failure_is_clean)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	put(d, BUNDLE, ROOTS);
	FAIL_SWEEP(install_afresh(d));
	assert_int_equal(install(d, CA, &e), 0);
	expect(d, BUNDLE, ROOTS BLOCK(CA));
	assert_int_equal(look(d, "etc/ssl/certs/.hutch-ca.tmp").st_mode, 0);
}

/* A root directory that cannot be written is not an error. */
TEST_IN_DIR(read_only_root)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	put(d, BUNDLE, ROOTS);
	for (unsigned int n = 1; n < 1000; n++) {
		int r;

		fail_arm(n, EROFS);
		r = install_afresh(d);
		if (!fail_reached())
			break;
		fail_off();
		assert_true(r == 0 || r == -ENOMEM); /* allocations fail with that */
	}
	fail_off();
	assert_int_equal(install(d, CA, &e), 0);
	expect(d, BUNDLE, ROOTS BLOCK(CA));
}

/* ---- removal ---- */

/* All names, modes, contents and targets below a directory, as text. */
static void listing(int dir, const char *path, struct buf *out)
{
	struct dirent **names;
	int n = scandirat(dir, path, &names, NULL, alphasort);

	assert_true(n >= 0);
	for (int i = 0; i < n; i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(CA_STORE_FILE_MAX);
		char at[512], target[512] = "";
		struct stat st;

		(void)snprintf(at, sizeof(at), "%s/%s", path, names[i]->d_name);
		if (strcmp(names[i]->d_name, ".") == 0 || strcmp(names[i]->d_name, "..") == 0) {
			free(names[i]);
			continue;
		}
		assert_int_equal(fstatat(dir, at, &st, AT_SYMLINK_NOFOLLOW), 0);
		if (S_ISLNK(st.st_mode))
			assert_true(readlinkat(dir, at, target, sizeof(target) - 1) > 0);
		if (S_ISREG(st.st_mode)) {
			_cleanup_close_ int fd = openat(dir, at, O_RDONLY | O_CLOEXEC);

			assert_int_equal(fd_read_all(fd, &b), 0);
		}
		(void)buf_printf(out, "%s %o %s\n", at, st.st_mode, target);
		for (size_t k = 0; k < b.len; k++)
			(void)buf_printf(out, b.data[k] >= ' ' ? "%c" : "\\%d", b.data[k]);
		(void)buf_putc(out, '\n');
		if (S_ISDIR(st.st_mode))
			listing(dir, at, out);
		free(names[i]);
	}
	free(names);
	assert_int_equal(out->err, 0);
}

/* Everything is as before the installation, also if another CA was installed first. */
static void undone(const struct unit_dir *d)
{
	_cleanup_buf_ struct buf before = BUF_INIT(1 << 20), after = BUF_INIT(1 << 20);
	struct err e = ERR_INIT;

	listing(d->fd, ".", &before);
	assert_int_equal(ca_store_remove(d->fd, &e), 0);
	listing(d->fd, ".", &after);
	assert_string_equal(buf_text(&after), buf_text(&before));
	assert_int_equal(install(d, CA2, &e), 0);
	assert_int_equal(install(d, CA, &e), 0);
	buf_reset(&after);
	listing(d->fd, ".", &after);
	assert_string_not_equal(buf_text(&after), buf_text(&before));
	assert_int_equal(ca_store_remove(d->fd, &e), 0);
	buf_reset(&after);
	listing(d->fd, ".", &after);
	assert_string_equal(buf_text(&after), buf_text(&before));
}

TEST_IN_DIR(removed_from_debian)
{
	struct unit_dir *d = *state;

	put(d, BUNDLE, ROOTS);
	put(d, "etc/ssl/certs/12345678.0", ROOTS);
	assert_int_equal(path_mkdirs(d->fd, "usr/local/share/ca-certificates", 0755), 0);
	assert_int_equal(fchmodat(d->fd, BUNDLE, 0640, 0), 0);
	assert_int_equal(fchmodat(d->fd, "etc/ssl/certs", 0555, 0), 0);
	undone(d);
}

TEST_IN_DIR(removed_from_images_without_certificates)
{
	struct unit_dir *d = *state;

	assert_int_equal(path_mkdirs(d->fd, "usr/local/share", 0755), 0);
	assert_int_equal(path_mkdirs(d->fd, "etc", 0755), 0);
	undone(d);
	/* These exist before, although nothing is in them. */
	put(d, BUNDLE, "");
	assert_int_equal(path_mkdirs(d->fd, "usr/local/share/ca-certificates", 0755), 0);
	undone(d);
}

TEST_IN_DIR(removed_from_a_bundle_without_a_last_newline)
{
	struct unit_dir *d = *state;

	put(d, BUNDLE, ROOTS "x");
	put(d, "etc/pki/tls/certs/ca-bundle.crt", "\n");
	put_link(d, "etc/ssl/cert.pem", "../pki/tls/certs/ca-bundle.crt");
	assert_int_equal(path_mkdirs(d->fd, "etc/pki/ca-trust/source/anchors", 0755), 0);
	undone(d);
}

/* A store common to several JDKs, which link to it, and one of a JDK of its own. */
TEST_IN_DIR(java)
{
	static const char *const stores[] = { "etc/ssl/certs/java/cacerts",
					      "opt/java/openjdk/lib/security/cacerts" };
	_cleanup_buf_ struct buf plain = BUF_INIT(CA_STORE_FILE_MAX);
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	assert_int_equal(fd_read_file(AT_FDCWD, HUTCH_CORPUS "/keystore/pkcs12", &plain, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(stores); i++) {
		char parent[256];

		assert_int_equal(path_parent(stores[i], parent, sizeof(parent)), 0);
		assert_int_equal(path_mkdirs(d->fd, parent, 0755), 0);
		unit_dir_write(d, stores[i], plain.data, plain.len);
	}
	put_link(d, "usr/lib/jvm/java-17/lib/security/cacerts", "/etc/ssl/certs/java/cacerts");
	put_link(d, "usr/lib/jvm/default", "java-17");
	put(d, "usr/lib/jvm/java-8/jre/lib/security/cacerts", "no keystore");
	put(d, BUNDLE, ROOTS);
	undone(d);
	assert_int_equal(install(d, CA, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(stores); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(CA_STORE_FILE_MAX);

		assert_int_equal(fd_read_file(d->fd, stores[i], &b, &e), 0);
		assert_true(bundle_is_ours(b.data, b.len));
	}
	expect(d, "usr/lib/jvm/java-8/jre/lib/security/cacerts", "no keystore");
}

/* update-ca-certificates and update-ca-trust make copies of a local CA. */
TEST_IN_DIR(removed_with_its_copies)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	put(d, BUNDLE, ROOTS);
	assert_int_equal(path_mkdirs(d->fd, "usr/local/share/ca-certificates", 0755), 0);
	assert_int_equal(install(d, CA2, &e), 0);
	put(d, BUNDLE, ROOTS CA2 ROOTS "# Hutch sandbox CA\n" CA2 ROOTS CA);
	put_link(d, "etc/ssl/certs/hutch-sandbox-ca.pem",
		 "/usr/local/share/ca-certificates/hutch-sandbox-ca.crt");
	assert_int_equal(unlinkat(d->fd, "etc/ssl/certs/" CA_STORE_LINK, 0), 0);
	put_link(d, "etc/ssl/certs/" CA_STORE_LINK, "hutch-sandbox-ca.pem");
	put_link(d, "etc/ssl/certs/0b35cce6.1", "/etc/hutch/ca.pem");
	assert_int_equal(ca_store_remove(d->fd, &e), 0);
	expect(d, BUNDLE, ROOTS ROOTS ROOTS);
	assert_int_equal(look(d, "etc/ssl/certs/hutch-sandbox-ca.pem").st_mode, 0);
	assert_int_equal(look(d, "etc/ssl/certs/" CA_STORE_LINK).st_mode, 0);
	assert_int_equal(look(d, "etc/ssl/certs/0b35cce6.1").st_mode, 0);
	assert_int_equal(look(d, ANCHOR).st_mode, 0);
	assert_int_equal(look(d, "etc/hutch").st_mode, 0);
}

/* Users keep what they have written, also under our names. */
TEST_IN_DIR(files_of_users_stay)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	assert_int_equal(path_mkdirs(d->fd, "usr/local/share", 0755), 0);
	assert_int_equal(install(d, CA, &e), 0);
	put(d, "etc/hutch/mine", "mine\n");
	put(d, "etc/ssl/certs/mine.pem", ROOTS);
	put(d, ANCHOR, ROOTS);
	put(d, BUNDLE, "mine\n" BLOCK(CA));
	assert_int_equal(ca_store_remove(d->fd, &e), 0);
	expect(d, "etc/hutch/mine", "mine\n");
	expect(d, "etc/ssl/certs/mine.pem", ROOTS);
	expect(d, ANCHOR, ROOTS);
	expect(d, BUNDLE, "mine\n");
	assert_int_equal(look(d, "etc/hutch/ca.pem").st_mode, 0);
}

/* A user who wants to keep the CA in an image can; other files of the host are out of reach. */
TEST_IN_DIR(links_lead_nowhere)
{
	struct unit_dir *d = *state;
	struct unit_dir root = { .fd = -EBADF };
	struct err e = ERR_INIT;

	put(d, "outside", BLOCK(CA));
	assert_int_equal(mkdirat(d->fd, "root", 0755), 0);
	root.fd = openat(d->fd, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	put_link(&root, "etc/ssl/cert.pem", "../../../../../outside");
	put_link(&root, "etc/hutch", "../..");
	put_link(&root, BUNDLE, "/../outside");
	assert_int_equal(ca_store_remove(root.fd, &e), 0);
	expect(d, "outside", BLOCK(CA));
	(void)close(root.fd);
}

/* After a failure the worker drops the image; a second attempt succeeds. */
TEST_IN_DIR(every_failure_of_a_removal_is_clean)
{
	struct unit_dir *d = *state;
	bool more = true;

	put(d, BUNDLE, ROOTS);
	for (unsigned int n = 1; more; n++) {
		size_t fds = fail_count_fds();
		struct err e = ERR_INIT;
		int r;

		assert_int_equal(install(d, CA, &e), 0);
		fail_arm(n, EIO);
		r = ca_store_remove(d->fd, &e);
		more = fail_reached();
		fail_off();
		assert_true(r == 0 || r == -EIO || r == -ENOMEM);
		assert_int_equal(fail_count_fds(), fds);
		assert_int_equal(ca_store_remove(d->fd, &e), 0);
		expect(d, BUNDLE, ROOTS);
		assert_int_equal(look(d, "etc/ssl/certs/" CA_STORE_LINK).st_mode, 0);
	}
}

/* OpenSSL computes the name of the link from the subject. */
TEST(link_has_the_hash_of_the_subject)
{
	X509_NAME *name = X509_NAME_new();
	char text[32];
	int ok = 0;

	assert_non_null(name);
	assert_int_equal(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
						    (const unsigned char *)"Hutch sandbox CA", -1,
						    -1, 0),
			 1);
	(void)snprintf(text, sizeof(text), "%08lx.0", X509_NAME_hash_ex(name, NULL, NULL, &ok));
	X509_NAME_free(name);
	assert_int_equal(ok, 1);
	assert_string_equal(text, CA_STORE_LINK);
}
