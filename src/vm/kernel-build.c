/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the small kernel from Debian's source. A build runs thousands of lines of make and shell,
 * so it has no privileges. As root, it gets ids that own nothing on the host and loses all
 * capabilities; an ordinary user's build runs as that user. Neither can gain privileges
 * (no_new_privs).
 *
 * The build uses absolute paths, and hutch's own directories are closed to other ids, so it runs in
 * a directory with a fixed name in $TMPDIR or /var/tmp; the next build removes the directory of an
 * interrupted one. The result is one file, whose size and type are checked.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/str.h"
#include "image/ids.h"
#include "image/tree.h"
#include "vm/guest-kernel.h"
#include "vm/kernel-inner.h"
#include "vm/tool-run.h"
#include "vm/unpack-kernel.h"

enum {
	ARGV_MAX = 32,
	CONFIG_MAX = 1 << 20,
	BUILDER = 65534, /* the image id that owns no files in an image either */
	COMPILER_S = 10,
};

struct build {
	struct kernel_work *work;
	char path[PATH_MAX];		 /* source directory */
	char uid[32], gid[32], jobs[16]; /* arguments */
	unsigned int count;		 /* files compiled */
	char error[160];		 /* first line that looks like an error */
};

/* ---- required programs ---- */

static const struct {
	const char *name, *package; /* `name`: a program, or the absolute path of a file */
} needed[] = {
	{ "make", "make" },
	{ "gcc", "gcc" },
	{ "/usr/include/stdio.h", "libc6-dev" },
	{ "ld", "binutils" },
	{ "flex", "flex" },
	{ "bison", "bison" },
	{ "/usr/include/libelf.h", "libelf-dev" },
	{ "bc", "bc" },
	{ "awk", "mawk" },
	{ "xz", "xz-utils" },
	{ "tar", "tar" },
	{ "setpriv", "util-linux" },
};

static bool is_there(const char *name)
{
	char path[PATH_MAX];

	return name[0] == '/' ? access(name, F_OK) == 0 : proc_find(name, path, sizeof(path)) >= 0;
}

int kernel_build_check(struct err *e)
{
	_cleanup_buf_ struct buf names = BUF_INIT(256), packages = BUF_INIT(256);

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++) {
		const char *slash = strrchr(needed[i].name, '/');

		if (is_there(needed[i].name))
			continue;
		(void)buf_printf(&names, "%s%s", names.len > 0 ? ", " : "",
				 slash ? slash + 1 : needed[i].name);
		(void)buf_printf(&packages, " %s", needed[i].package);
	}
	return names.len > 0
		       ? err_set(e, -ENOENT, "cannot build a kernel without %s: apt-get install%s",
				 buf_text(&names), buf_text(&packages))
		       : 0;
}

int kernel_build_inputs(struct buf *b, struct err *e)
{
	static const char *const argv[] = { "gcc", "--version", NULL };
	_cleanup_buf_ struct buf out = BUF_INIT(4096);
	char path[PATH_MAX];
	int status, r = 0;

	if (proc_find("gcc", path, sizeof(path)) < 0)
		r = err_set(e, -ENOENT, "gcc is not installed");
	if (r == 0)
		r = proc_capture(path, argv, false, clock_mono() + COMPILER_S * NSEC_PER_SEC, &out,
				 &status, e);
	if (r < 0)
		return r;
	(void)buf_put(b, guest_kernel_text, guest_kernel_text_n);
	(void)buf_put(b, buf_text(&out), strcspn(buf_text(&out), "\n"));
	return 0;
}

/* ---- the build directory ---- */

/* Removes the directory of an interrupted build of ours. */
static int clear_place(int tmp, const char *name, struct err *e)
{
	struct stat st;
	int r;

	if (fstatat(tmp, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(e, "cannot stat '%s'", name);
	if (st.st_uid != geteuid() && geteuid() != 0)
		return err_set(e, -EPERM, "'%s' belongs to uid %u: remove it, or set TMPDIR", name,
			       (unsigned int)st.st_uid);
	r = tree_remove(tmp, name);
	return r < 0 ? err_set(e, r, "cannot remove '%s': %s", name, strerror(-r)) : 0;
}

/* Creates the directory with the configuration in it, owned by the builder. */
static int make_place(struct build *b, int *ret_tmp, char name[static 64], struct err *e)
{
	const char *tmp_path = getenv("TMPDIR");
	_cleanup_close_ int tmp = -EBADF, dir = -EBADF;
	struct id_ranges ids = { 0 };
	int r = geteuid() == 0 ? ids_find(&ids, e) : 0;

	if (r < 0)
		return r;
	if (!tmp_path || tmp_path[0] != '/')
		tmp_path = "/var/tmp";
	tmp = RETRY_EINTR(open(tmp_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (tmp < 0)
		return err_errno(e, "cannot open '%.100s'", tmp_path);
	(void)snprintf(name, 64, "hutch-kernel-%u", (unsigned int)geteuid());
	(void)snprintf(b->path, sizeof(b->path), "%s/%s", tmp_path, name);
	r = clear_place(tmp, name, e);
	if (r < 0)
		return err_wrap(e, "%.100s", tmp_path);
	if (mkdirat(tmp, name, 0700) < 0)
		return err_errno(e, "cannot create '%.100s'", b->path);
	dir = RETRY_EINTR(openat(tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (dir < 0)
		return err_errno(e, "cannot open '%.100s'", b->path);
	r = fd_replace_file(dir, "hutch.config", 0644, guest_kernel_text, guest_kernel_text_n, e);
	if (r < 0)
		return r;
	if (geteuid() == 0 && fchown(dir, ids.uid + BUILDER, ids.gid + BUILDER) < 0)
		return err_errno(e, "cannot change the owner of '%.100s'", b->path);
	(void)snprintf(b->uid, sizeof(b->uid), "--reuid=%u", ids.uid + BUILDER);
	(void)snprintf(b->gid, sizeof(b->gid), "--regid=%u", ids.gid + BUILDER);
	*ret_tmp = TAKE_FD(tmp);
	return 0;
}

/* ---- the build ---- */

static void take_line(const char *line, void *arg)
{
	struct build *b = arg;

	if (str_has_prefix(line, "  CC ") || str_has_prefix(line, "  AS "))
		kernel_say(b->work, "compiling", ++b->count);
	if (b->error[0] == '\0' && (strstr(line, "rror: ") || strstr(line, "*** ")))
		(void)snprintf(b->error, sizeof(b->error), "%s", line);
}

/* Runs a command as the builder. */
static int run_as_builder(struct build *b, int in, const char *const *words, struct err *e)
{
	static const char *const dropping[] = { "--clear-groups", "--inh-caps=-all",
						"--bounding-set=-all" };
	const char *argv[ARGV_MAX] = { "setpriv", "--no-new-privs", "--pdeathsig",
				       "KILL" }; /* again: changing ids clears it */
	size_t n = 4;
	int r;

	if (geteuid() == 0) {
		argv[n++] = b->uid;
		argv[n++] = b->gid;
		for (size_t i = 0; i < ARRAY_SIZE(dropping); i++)
			argv[n++] = dropping[i];
	}
	while (*words && n < ARGV_MAX - 1)
		argv[n++] = *words++;
	assert(!*words);
	b->error[0] = '\0';
	r = tool_run(&(struct tool){ .argv = argv,
				     .package = "util-linux",
				     .in = in,
				     .out = -EBADF,
				     .hold = &b->work->lock,
				     .line = take_line,
				     .arg = b },
		     e);
	return r == -EIO && b->error[0] ? err_set(e, r, "the kernel build failed: %s", b->error)
					: r;
}

/* linux-source-6.1 contains usr/src/linux-source-6.1.tar.xz. */
static int unpack_source(struct build *b, struct err *e)
{
	const char *const words[] = {
		"tar", "-xJf", "-", "--strip-components=1", "-C", b->path, "--no-same-owner", NULL
	};
	_cleanup_close_ int fd = -EBADF;
	char path[256];

	(void)snprintf(path, sizeof(path), "files/usr/src/%s.tar.xz", b->work->package.name);
	fd = path_open_nofollow(b->work->dir, path, O_RDONLY, 0);
	if (fd < 0)
		return err_set(e, fd, "the package has no %s: %s", path, strerror(-fd));
	kernel_say(b->work, "unpacking the source", 0);
	return run_as_builder(b, fd, words, e);
}

/* Reports options of ours that this kernel version does not know. */
static void say_missing(const struct build *b, int dir)
{
	_cleanup_buf_ struct buf config = BUF_INIT(CONFIG_MAX), text = BUF_INIT(CONFIG_MAX);
	struct err ignored = ERR_INIT;
	char line[128];

	if (fd_read_file(dir, ".config", &config, &ignored) < 0)
		return;
	for (const char *at = guest_kernel_text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		int n = (int)strcspn(at, "\n");

		(void)snprintf(line, sizeof(line), "\n%.*s\n", n, at);
		if (!str_has_prefix(at, "CONFIG_") || at[n - 1] == 'n' ||
		    strstr(buf_text(&config), line))
			continue;
		(void)buf_printf(&text, "%s%.*s", text.len ? ", " : "not in this kernel: ", n, at);
	}
	if (text.len > 0)
		kernel_say(b->work, buf_text(&text), 0);
}

static int configure(struct build *b, int dir, struct err *e)
{
	char config[PATH_MAX + 64];
	const char *const words[] = { "make", "-s", "-C", b->path, config, "allnoconfig", NULL };
	int r;

	(void)snprintf(config, sizeof(config), "KCONFIG_ALLCONFIG=%s/hutch.config", b->path);
	kernel_say(b->work, "configuring", 0);
	r = run_as_builder(b, -EBADF, words, e);
	if (r == 0)
		say_missing(b, dir);
	return r;
}

/* Reproducible: independent of path, time and builder. */
static int compile(struct build *b, struct err *e)
{
	const char *const words[] = { "nice",
				      "make",
				      b->jobs,
				      "-C",
				      b->path,
				      "KBUILD_BUILD_TIMESTAMP=@0",
				      "KBUILD_BUILD_USER=hutch",
				      "KBUILD_BUILD_HOST=hutch",
				      "vmlinux",
				      NULL };
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	(void)snprintf(b->jobs, sizeof(b->jobs), "-j%ld", n > 0 ? n : 1);
	kernel_say(b->work, "compiling, which takes minutes", 0);
	return run_as_builder(b, -EBADF, words, e);
}

static int take_kernel(const struct build *b, int dir, struct err *e)
{
	_cleanup_close_ int from = path_open_nofollow(dir, "vmlinux", O_RDONLY | O_NONBLOCK, 0);
	_cleanup_close_ int to = -EBADF;
	struct stat st;
	int r;

	if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode))
		return err_set(e, -EINVAL, "the build created no vmlinux");
	r = kernel_create(b->work, "kernel", &to, e);
	return r < 0 ? r : kernel_copy(from, to, e);
}

static int build(struct build *b, int tmp, const char *name, struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	int r;

	dir = RETRY_EINTR(openat(tmp, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (dir < 0)
		return err_errno(e, "cannot open '%.100s'", b->path);
	r = unpack_source(b, e);
	if (r == 0)
		r = configure(b, dir, e);
	if (r == 0)
		r = compile(b, e);
	if (r == 0)
		r = take_kernel(b, dir, e);
	return r < 0 ? r : kernel_write_base(b->work, -EBADF, e);
}

int kernel_build_small(struct kernel_work *w, struct err *e)
{
	struct build b = { .work = w };
	_cleanup_close_ int tmp = -EBADF;
	char name[64];
	int r = make_place(&b, &tmp, name, e);

	if (r < 0)
		return r;
	r = build(&b, tmp, name, e);
	kernel_say(w, "removing the source", 0);
	(void)tree_remove(tmp, name);
	return r;
}
