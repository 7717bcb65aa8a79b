/* SPDX-License-Identifier: Apache-2.0 */
#include "vm/package.h"

#include <fcntl.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "vm/tool-run.h"

enum {
	ANSWER_MAX = 1 << 20,
	ANSWER_S = 120
};

/* Each kind has two sources, the first of which is preferred: Debian 12 has Linux 6.12 beside its
 * own 6.1. Updates of 6.1 are less reliable: the guest of 6.1.192 crashes when ext4 has to read its
 * bitmaps again, which happens when memory is short. */
static const struct {
	const char *meta[2];	     /* depends on the current package */
	const char *prefix, *suffix; /* its name begins and ends so */
} kinds[] = {
	[MACHINE_KERNEL_CLOUD] = { { "linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64" },
				   "linux-image-",
				   "-cloud-amd64" },
	[MACHINE_KERNEL_SMALL] = { { "linux-source-6.12", "linux-source" }, "linux-source-", "" },
};

static_assert(ARRAY_SIZE(kinds) == MACHINE_KERNEL_MAX, "every kind has its package");

/* A package of one version, not one that depends on it: linux-image-6.1.0-54-cloud-amd64. */
static bool is_kind(enum machine_kernel_kind kind, const char *name)
{
	return str_has_prefix(name, kinds[kind].prefix) &&
	       ascii_is_digit(name[strlen(kinds[kind].prefix)]) &&
	       str_has_suffix(name, kinds[kind].suffix) &&
	       name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.+-")] == '\0';
}

static int ask(const char *const *argv, struct buf *out, struct err *e)
{
	char path[PATH_MAX];
	int status, r;

	if (proc_find(argv[0], path, sizeof(path)) < 0)
		return err_set(e, -ENOENT,
			       "%s is not installed: kernels come from Debian's packages", argv[0]);
	r = proc_capture(path, argv, false, clock_mono() + ANSWER_S * NSEC_PER_SEC, out, &status,
			 e);
	if (r == 0 && status != 0)
		return err_set(e, -ENOENT, "%s failed", argv[0]);
	return r;
}

/* The first word after "KEY: " at the start of a line. */
static bool field(const char *text, const char *key, char *out, size_t n)
{
	size_t key_n = strlen(key), len;

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, key_n) != 0 || line[key_n] != ':' || line[key_n + 1] != ' ')
			continue;
		line += key_n + 2;
		len = strcspn(line, " ,\n");
		if (len == 0 || len >= n)
			return false;
		memcpy(out, line, len);
		out[len] = '\0';
		return true;
	}
	return false;
}

static int ask_apt(const char *name, const char *key, char *out, size_t n, struct err *e)
{
	const char *const argv[] = { "apt-cache", "show", "--no-all-versions", name, NULL };
	_cleanup_buf_ struct buf b = BUF_INIT(ANSWER_MAX);
	struct err ignored = ERR_INIT;
	int r = ask(argv, &b, &ignored);

	if (r < 0 || !field(buf_text(&b), key, out, n))
		return err_set(e, -ENOENT,
			       "apt has no package %s: run apt-get update, or give --from DIR",
			       name);
	return 0;
}

/* A package of sources for one version is its own: nothing else depends on it. */
static int find_name(enum machine_kernel_kind kind, const char *meta, struct kernel_package *p,
		     struct err *e)
{
	int r = ask_apt(meta, "Depends", p->name, sizeof(p->name), e);

	if (r == 0 && !is_kind(kind, p->name))
		(void)snprintf(p->name, sizeof(p->name), "%s", meta);
	if (r == 0 && !is_kind(kind, p->name))
		r = err_set(e, -EINVAL, "%s depends on an unexpected package", meta);
	return r;
}

static int find_by_apt(enum machine_kernel_kind kind, struct kernel_package *p, struct err *e)
{
	struct err none = ERR_INIT;
	int r = find_name(kind, kinds[kind].meta[0], p, &none);

	if (r < 0)
		r = find_name(kind, kinds[kind].meta[1], p, e);
	return r < 0 ? r : ask_apt(p->name, "Version", p->version, sizeof(p->version), e);
}

/* Reads name and version from the package. */
static int describe(struct kernel_package *p, struct err *e)
{
	const char *const argv[] = { "dpkg-deb", "-f", p->file, "Package", "Version", NULL };
	_cleanup_buf_ struct buf b = BUF_INIT(ANSWER_MAX);
	int r = ask(argv, &b, e);

	if (r == 0 && (!field(buf_text(&b), "Package", p->name, sizeof(p->name)) ||
		       !field(buf_text(&b), "Version", p->version, sizeof(p->version))))
		r = err_set(e, -EINVAL, "no name and version");
	return r < 0 ? err_wrap(e, "'%.100s' is not a package", p->file) : 0;
}

/* The only file of that kind in the directory. */
static int find_file(enum machine_kernel_kind kind, const char *dir, char *out, size_t n,
		     struct err *e)
{
	DIR *d = opendir(dir);
	struct dirent *entry;
	int found = 0, len = 0;

	if (!d)
		return err_errno(e, "cannot list '%.100s'", dir);
	while ((entry = readdir(d))) {
		char name[NAME_MAX + 1];

		(void)snprintf(name, sizeof(name), "%s", entry->d_name);
		name[strcspn(name, "_")] = '\0';
		if (!str_has_suffix(entry->d_name, ".deb") || !is_kind(kind, name))
			continue;
		found++;
		len = snprintf(out, n, "%s/%s", dir, entry->d_name);
	}
	(void)closedir(d);
	if (found != 1)
		return err_set(e, found ? -EINVAL : -ENOENT, "%s package %sVERSION%s in '%.80s'",
			       found ? "more than one" : "no", kinds[kind].prefix,
			       kinds[kind].suffix, dir);
	return len < 0 || (size_t)len >= n ? err_set(e, -ENAMETOOLONG, "the path is too long") : 0;
}

int package_find(enum machine_kernel_kind kind, const char *from, struct kernel_package *ret,
		 struct err *e)
{
	struct kernel_package p = { .name = "" };
	int r;

	if (from) {
		r = find_file(kind, from, p.file, sizeof(p.file), e);
		if (r == 0)
			r = describe(&p, e);
	} else {
		r = find_by_apt(kind, &p, e);
	}
	if (r == 0 && !is_kind(kind, p.name))
		r = err_set(e, -EINVAL, "'%.100s' contains the unexpected package '%.60s'", p.file,
			    p.name);
	if (r == 0)
		*ret = p;
	return r;
}

int package_fetch(struct kernel_package *p, const char *dir, const int *hold, struct err *e)
{
	char what[sizeof(p->name) + sizeof(p->version) + 2];
	const char *const argv[] = { "env", "-C", dir, "apt-get", "-q", "download", what, NULL };
	enum machine_kernel_kind kind = is_kind(MACHINE_KERNEL_CLOUD, p->name)
						? MACHINE_KERNEL_CLOUD
						: MACHINE_KERNEL_SMALL;
	int r;

	if (p->file[0] != '\0')
		return 0;
	(void)snprintf(what, sizeof(what), "%s=%s", p->name, p->version);
	r = tool_run(&(struct tool){ .argv = argv,
				     .package = "coreutils",
				     .in = -EBADF,
				     .out = -EBADF,
				     .hold = hold },
		     e);
	if (r < 0)
		return err_wrap(e, "cannot download %s", p->name);
	return find_file(kind, dir, p->file, sizeof(p->file), e);
}

int package_unpack(const struct kernel_package *p, const char *dir, const int *hold, struct err *e)
{
	const char *const argv[] = { "dpkg-deb", "-x", p->file, dir, NULL };

	return tool_run(&(struct tool){ .argv = argv,
					.package = "dpkg",
					.in = -EBADF,
					.out = -EBADF,
					.hold = hold },
			e);
}
