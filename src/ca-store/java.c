/* SPDX-License-Identifier: Apache-2.0 */
#include "ca-store/java.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "ca-store/ca-store.h"
#include "ca-store/keystore.h"

enum {
	MORE = CA_STORE_CERT_MAX + 1024, /* that our certificate adds to a keystore */
	HOMES_MAX = 64,			 /* entries of a directory of JDKs that are looked at */
};

/* Debian and Alpine, Fedora, openSUSE. */
static const char *const common[] = {
	"etc/ssl/certs/java/cacerts",
	"etc/pki/ca-trust/extracted/java/cacerts",
	"var/lib/ca-certificates/java-cacerts",
};

/* Directories with JDKs: of distributions, of images on registries, of SDKMAN. */
static const char *const parents[] = {
	"usr/lib/jvm",
	"usr/lib64/jvm",
	"usr/java",
	"opt",
	"opt/java",
	"usr/local",
	"usr/local/sdkman/candidates/java",
	"root/.sdkman/candidates/java",
	"home/user/.sdkman/candidates/java",
};

/* In a JDK; since version 9, and before. */
static const char *const inside[] = { "lib/security/cacerts", "jre/lib/security/cacerts" };

struct task {
	int root;
	const char *der;
	size_t n;
};

static int replace(const struct task *t, const struct ca_place *p)
{
	_cleanup_buf_ struct buf old = BUF_INIT(CA_STORE_FILE_MAX),
				 new = BUF_INIT(CA_STORE_FILE_MAX + MORE);
	struct stat st;
	int r = ca_file_read(p->dir, p->name, &old, &st);

	if (r == 0)
		r = keystore_rewrite(&old, t->der, t->n, &new);
	if (r < 0 || (new.len == old.len &&memcmp(new.data, old.data, new.len) == 0))
		return r;
	return ca_file_replace(p->dir, p->name, &st, new.data, new.len);
}

/* Java of an image without our CA reports an error that names it, so this is no reason to fail. */
static bool is_harmless(int r)
{
	return r == -ENOTSUP || r == -EFBIG || r == -ENOBUFS || r == -EACCES;
}

static int rewrite(const struct task *t, const char *path, struct err *e)
{
	struct ca_place p;
	int r = ca_place_find(t->root, path, &p);

	if (r == 0)
		r = replace(t, &p);
	ca_place_done(&p);
	if (r == 0 || ca_file_missing(r))
		return 0;
	if (!is_harmless(r))
		return err_set(e, r, "cannot change the Java keystore /%s: %s", path, strerror(-r));
	if (t->der)
		log_warning("cannot add the CA of the sandbox to the Java keystore /%s: %s", path,
			    r == -ENOTSUP ? "it is neither JKS with the password 'changeit' nor "
					    "PKCS #12 without one"
					  : strerror(-r));
	return 0;
}

static int rewrite_home(const struct task *t, const char *parent, const char *home, struct err *e)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < ARRAY_SIZE(inside); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s/%s", parent, home, inside[i]);
		if (rewrite(t, path, e) < 0)
			return e->num;
	}
	return 0;
}

static int rewrite_homes(const struct task *t, const char *parent, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	const struct dirent *entry;
	int r = 0, left = HOMES_MAX;
	DIR *d;

	if (ca_file_dir(t->root, parent, &fd) < 0)
		return 0;
	d = fd_list(fd);
	if (!d)
		return err_errno(e, "cannot list /%s", parent);
	while (r == 0 && left > 0 && (entry = readdir(d)))
		if (entry->d_name[0] != '.') {
			left--;
			r = rewrite_home(t, parent, entry->d_name, e);
		}
	(void)closedir(d);
	return r;
}

int java_rewrite(int root, const char *der, size_t n, struct err *e)
{
	const struct task t = { root, der, n };

	for (size_t i = 0; i < ARRAY_SIZE(common); i++)
		if (rewrite(&t, common[i], e) < 0)
			return e->num;
	for (size_t i = 0; i < ARRAY_SIZE(parents); i++)
		if (rewrite_homes(&t, parents[i], e) < 0)
			return e->num;
	return 0;
}
