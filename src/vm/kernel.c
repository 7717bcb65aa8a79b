/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the installed kernel and its initrd. A kernel is created once, in a directory that never
 * changes; kernels/NAME.json says which directory. The initrd is the kernel's base.cpio followed by
 * an archive with hutch-guest: the kernel unpacks any number of archives. It is stored by the
 * digest of both, so a new hutch-guest gets a new initrd, and no VM starts with an old one.
 */
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "vm/cpio.h"
#include "vm/home.h"
#include "vm/kernel-inner.h"
#include "vm/known.h"

enum {
	META_MAX = 65536,
	INITRD_MAX = 128 << 20,
	INITRD_KEPT_S = 3600, /* since the last use */
};

const char *const machine_kernel_names[] = {
	[MACHINE_KERNEL_CLOUD] = "cloud",
	[MACHINE_KERNEL_SMALL] = "small",
};

static_assert(ARRAY_SIZE(machine_kernel_names) == MACHINE_KERNEL_MAX, "every kind has a name");

/* ---- kernels/NAME.json ---- */

static int copy_text(const json_t *obj, const char *key, char *out, size_t n, struct err *e)
{
	const char *text;
	int r = json_get_string(obj, key, n - 1, &text, e);

	if (r == 0)
		(void)snprintf(out, n, "%s", text);
	return r;
}

static int copy_digest(const json_t *obj, const char *key, char out[static 65], struct err *e)
{
	int r = copy_text(obj, key, out, 65, e);

	if (r == 0 && strspn(out, "0123456789abcdef") != 64)
		r = err_set(e, -EINVAL, "'%s' is not a digest", key);
	return r;
}

static int parse_meta(const struct buf *b, struct kernel_meta *ret, struct err *e)
{
	_cleanup_json_ json_t *j = NULL;
	struct kernel_meta m = { .inputs = "" };
	int r = json_read(buf_text(b), b->len, &j, e);

	if (r == 0)
		r = copy_digest(j, "inputs", m.inputs, e);
	if (r == 0)
		r = copy_digest(j, "kernel", m.kernel, e);
	if (r == 0)
		r = copy_digest(j, "base", m.base, e);
	if (r == 0)
		r = copy_text(j, "package", m.package, sizeof(m.package), e);
	if (r == 0)
		r = copy_text(j, "version", m.version, sizeof(m.version), e);
	if (r == 0)
		*ret = m;
	return r;
}

int kernel_meta_read(enum machine_kernel_kind kind, struct kernel_meta *ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(META_MAX);
	_cleanup_close_ int dir = -EBADF;
	char path[IMAGE_HOME_MAX], name[32];
	int r = machine_home_open("kernels", false, path, &dir, e);

	if (r < 0)
		return r;
	(void)snprintf(name, sizeof(name), "%s.json", machine_kernel_names[kind]);
	r = fd_read_file(dir, name, &b, e);
	if (r == 0)
		r = parse_meta(&b, ret, e);
	return r < 0 ? err_wrap(e, "%s/%s", path, name) : 0;
}

int kernel_meta_write(enum machine_kernel_kind kind, const struct kernel_meta *m, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	_cleanup_free_ char *text = NULL;
	char path[IMAGE_HOME_MAX], name[32];
	_cleanup_json_ json_t *j = JSON_OBJECT(
		{ "inputs", json_string(m->inputs) }, { "kernel", json_string(m->kernel) },
		{ "base", json_string(m->base) }, { "package", json_string(m->package) },
		{ "version", json_string(m->version) });
	int r = machine_home_open("kernels", true, path, &dir, e);

	if (r < 0)
		return r;
	text = j ? json_write_canonical(j) : NULL;
	if (!text)
		return err_oom(e);
	(void)snprintf(name, sizeof(name), "%s.json", machine_kernel_names[kind]);
	return fd_replace_file(dir, name, 0600, text, strlen(text), e);
}

/* ---- the initrd ---- */

/* BLAKE2b of two texts, in hex. */
static void digest_two(const char *a, const char *b, char ret[static 65])
{
	crypto_generichash_state state;
	unsigned char sum[32];

	(void)crypto_generichash_init(&state, NULL, 0, sizeof(sum));
	(void)crypto_generichash_update(&state, (const unsigned char *)a, strlen(a));
	(void)crypto_generichash_update(&state, (const unsigned char *)b, strlen(b));
	(void)crypto_generichash_final(&state, sum, sizeof(sum));
	(void)sodium_bin2hex(ret, 65, sum, sizeof(sum));
}

/* Removes initrds that were not used for a long time. */
static void prune(int initrds)
{
	uint64_t now = clock_wall() / NSEC_PER_SEC;
	DIR *d = fd_list(initrds);
	struct dirent *entry;
	struct stat st;

	while (d && (entry = readdir(d)))
		if (entry->d_name[0] != '.' &&
		    fstatat(initrds, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    (uint64_t)st.st_atime + INITRD_KEPT_S < now)
			(void)unlinkat(initrds, entry->d_name, 0);
	if (d)
		(void)closedir(d);
}

static void digest_of(const struct buf *b, char ret[static 65])
{
	unsigned char sum[32];

	(void)crypto_generichash(sum, sizeof(sum), (const unsigned char *)b->data, b->len, NULL, 0);
	(void)sodium_bin2hex(ret, 65, sum, sizeof(sum));
}

/* Its digest takes milliseconds, a good part of a clone's time. A file that changed a moment ago
 * may change once more within the same time stamp: then the digest is not kept. */
static int guest_digest(const char *guest, char ret[static KNOWN_MAX], struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(INITRD_MAX / 2);
	_cleanup_close_ int home = -EBADF;
	char path[IMAGE_HOME_MAX], key[KNOWN_KEY_MAX];
	bool settled = false;
	int r = image_home_open(MACHINE_HOME, true, path, &home, e);

	if (r == 0)
		r = known_key(guest, key, &settled, e);
	if (r < 0 || known_load(home, "guest.json", key, ret))
		return r;
	r = fd_read_file(AT_FDCWD, guest, &b, e);
	if (r < 0)
		return r;
	digest_of(&b, ret);
	if (settled)
		known_store(home, "guest.json", key, ret);
	return 0;
}

/* Modules for nested containers belong to the same package as the base. */
static void initrd_key(const struct kernel_meta *m, const char *guest, bool nested,
		       char ret[static 65])
{
	char base[80];

	(void)snprintf(base, sizeof(base), "%s%s", m->base, nested ? " nested" : "");
	digest_two(base, guest, ret);
}

/* Returns the key of what it has written: `guest` may have changed since its digest was taken. */
static int write_initrd(int initrds, const struct kernel_meta *m, const char *guest, bool nested,
			char key[static 65], struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(INITRD_MAX), init = BUF_INIT(INITRD_MAX / 2);
	_cleanup_close_ int kernels = -EBADF;
	char path[IMAGE_HOME_MAX], name[80], digest[65];
	struct cpio c = { .out = &b };
	int r = machine_home_open("kernels", false, path, &kernels, e);

	(void)snprintf(name, sizeof(name), "%s/base.cpio", m->inputs);
	if (r == 0)
		r = fd_read_file(kernels, name, &b, e);
	(void)snprintf(name, sizeof(name), "%s/" KERNEL_NESTED, m->inputs);
	if (r == 0 && nested)
		r = fd_read_file(kernels, name, &b, e);
	if (r == -ENOENT && nested)
		return err_set(
			e, r,
			"the kernel for VMs is from an earlier hutch, without the modules of "
			"isolation.nested: run 'hutch image kernel'");
	if (r == 0)
		r = fd_read_file(AT_FDCWD, guest, &init, e);
	if (r < 0)
		return r;
	digest_of(&init, digest);
	initrd_key(m, digest, nested, key);
	cpio_file(&c, "init", 0755, init.data, init.len);
	if (cpio_end(&c) < 0)
		return err_oom(e);
	prune(initrds);
	/* Readable for all: QEMU runs under other ids than hutch. */
	return fd_replace_file(initrds, key, 0444, b.data, b.len, e);
}

static int find_initrd(const struct kernel_meta *m, const char *guest, bool nested,
		       struct machine_kernel *ret, struct err *e)
{
	const struct timespec used[] = { { .tv_nsec = UTIME_NOW }, { .tv_nsec = UTIME_OMIT } };
	_cleanup_close_ int dir = -EBADF;
	char path[IMAGE_HOME_MAX], digest[KNOWN_MAX], key[65];
	int r = guest_digest(guest, digest, e);

	if (r == 0)
		r = machine_home_open("initrds", true, path, &dir, e);
	if (r < 0)
		return r;
	initrd_key(m, digest, nested, key);
	/* Updates only the access time: a template's key depends on the modification time. */
	if (utimensat(dir, key, used, AT_SYMLINK_NOFOLLOW) < 0)
		r = write_initrd(dir, m, guest, nested, key, e);
	if (r < 0)
		return r;
	(void)snprintf(ret->initrd, sizeof(ret->initrd), "%s/%s", path, key);
	digest_two(m->kernel, key, ret->digest);
	return 0;
}

/* ---- both ---- */

static int find_kernel(struct kernel_meta *m, enum machine_kernel_kind *ret, struct err *e)
{
	static const enum machine_kernel_kind order[] = { MACHINE_KERNEL_SMALL,
							  MACHINE_KERNEL_CLOUD };
	int r = -ENOENT;

	for (size_t i = 0; i < ARRAY_SIZE(order) && r == -ENOENT; i++) {
		*e = (struct err)ERR_INIT;
		*ret = order[i];
		r = kernel_meta_read(order[i], m, e);
	}
	if (r == -ENOENT)
		return err_set(e, r, "no kernel for VMs is installed: run 'hutch image kernel'");
	return r;
}

int machine_kernel_find(const char *guest, bool nested, struct machine_kernel *ret, struct err *e)
{
	struct machine_kernel k = { .name = "" };
	enum machine_kernel_kind kind;
	_cleanup_close_ int dir = -EBADF;
	char path[IMAGE_HOME_MAX];
	struct kernel_meta m;
	int r = find_kernel(&m, &kind, e);

	if (r == 0)
		r = machine_home_open("kernels", false, path, &dir, e);
	if (r == 0)
		r = find_initrd(&m, guest, nested, &k, e);
	if (r < 0)
		return r;
	(void)snprintf(k.name, sizeof(k.name), "%s", machine_kernel_names[kind]);
	(void)snprintf(k.kernel, sizeof(k.kernel), "%s/%s/kernel", path, m.inputs);
	(void)snprintf(k.version, sizeof(k.version), "%.90s %.90s", m.package, m.version);
	*ret = k;
	return 0;
}
