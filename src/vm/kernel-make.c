/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creates a kernel: finds and fetches the package, unpacks it in `machine/tmp/NAME`, extracts or
 * builds the kernel and the base of its initrds, and moves both to kernels/INPUTS. If the process
 * dies, the next one removes the work directory first. A lock keeps other processes out.
 */
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"
#include "image/tree.h"
#include "vm/home.h"
#include "vm/kernel-inner.h"
#include "vm/unpack-kernel.h"

enum {
	INPUTS_MAX = 65536
};

/* ---- Debian's own ---- */

/* lib/ is a link to usr/lib/ on hosts; a package may use either. */
static int open_modules(const struct kernel_work *w, const char *version, int *ret_fd,
			struct err *e)
{
	static const char *const places[] = { "lib/modules", "usr/lib/modules" };
	char path[256];
	int fd = -EBADF;

	for (size_t i = 0; i < ARRAY_SIZE(places) && fd < 0; i++) {
		(void)snprintf(path, sizeof(path), "files/%s/%s", places[i], version);
		fd = path_open_nofollow(w->dir, path, O_RDONLY | O_DIRECTORY, 0);
	}
	if (fd < 0)
		return err_set(e, fd, "the package has no modules: %s", strerror(-fd));
	*ret_fd = fd;
	return 0;
}

static int take_cloud(struct kernel_work *w, struct err *e)
{
	_cleanup_close_ int from = -EBADF, to = -EBADF, modules = -EBADF;
	const char *version = w->package.name + STRLEN("linux-image-");
	char path[256];
	int r;

	(void)snprintf(path, sizeof(path), "files/boot/vmlinuz-%s", version);
	from = path_open_nofollow(w->dir, path, O_RDONLY, 0);
	if (from < 0)
		return err_set(e, from, "the package has no /boot/vmlinuz-%s: %s", version,
			       strerror(-from));
	kernel_say(w, "unpacking the kernel", 0);
	r = kernel_create(w, "kernel", &to, e);
	if (r == 0)
		r = bzimage_unpack(from, to, e);
	if (r == 0)
		r = open_modules(w, version, &modules, e);
	return r < 0 ? err_wrap(e, "%s", w->package.name) : kernel_write_base(w, modules, e);
}

/* ---- all kinds ---- */

/* Digest of all inputs of a kernel. Change the first line when this program's part changes. */
static int digest_inputs(const struct kernel_work *w, char ret[static 65], struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(INPUTS_MAX);
	unsigned char sum[32];
	int r = 0;

	(void)buf_printf(&b, "2 %s\n%s %s\n", machine_kernel_names[w->job->kind], w->package.name,
			 w->package.version);
	if (w->job->kind == MACHINE_KERNEL_SMALL)
		r = kernel_build_inputs(&b, e);
	if (r < 0)
		return r;
	if (b.err < 0)
		return err_oom(e);
	(void)crypto_generichash(sum, sizeof(sum), (const unsigned char *)b.data, b.len, NULL, 0);
	(void)sodium_bin2hex(ret, 65, sum, sizeof(sum));
	return 0;
}

static int open_work(struct kernel_work *w, struct err *e)
{
	const char *name = machine_kernel_names[w->job->kind];
	_cleanup_close_ int tmp = -EBADF;
	char home[IMAGE_HOME_MAX];
	int r = machine_home_open("tmp", true, home, &tmp, e);

	if (r < 0)
		return r;
	(void)snprintf(w->path, sizeof(w->path), "%s/%s", home, name);
	r = tree_remove(tmp, name);
	if (r == 0)
		r = path_mkdirs(tmp, name, 0700);
	if (r == 0)
		r = w->dir = path_open_nofollow(tmp, name, O_RDONLY | O_DIRECTORY, 0);
	if (r >= 0)
		r = path_mkdirs(w->dir, "files", 0700);
	if (r == 0)
		r = path_mkdirs(w->dir, "out", 0755);
	if (r == 0)
		r = w->out = path_open_nofollow(w->dir, "out", O_RDONLY | O_DIRECTORY, 0);
	return r < 0 ? err_set(e, r, "cannot create '%s': %s", w->path, strerror(-r)) : 0;
}

static int unpack_package(struct kernel_work *w, struct err *e)
{
	char files[sizeof(w->path) + 8];
	int r;

	(void)snprintf(files, sizeof(files), "%s/files", w->path);
	if (w->package.file[0] == '\0') {
		char text[320];

		(void)snprintf(text, sizeof(text), "downloading %s %s", w->package.name,
			       w->package.version);
		kernel_say(w, text, 0);
	}
	r = package_fetch(&w->package, w->path, &w->lock, e);
	if (r < 0)
		return r;
	kernel_say(w, "unpacking the package", 0);
	return package_unpack(&w->package, files, &w->lock, e);
}

/* Removes kernel directories that no NAME.json refers to. */
static void prune(int kernels)
{
	struct kernel_meta metas[MACHINE_KERNEL_MAX] = { { "" } };
	DIR *d = fd_list(kernels);
	struct dirent *entry;

	for (int i = 0; i < MACHINE_KERNEL_MAX; i++) {
		struct err ignored = ERR_INIT;

		(void)kernel_meta_read((enum machine_kernel_kind)i, &metas[i], &ignored);
	}
	while (d && (entry = readdir(d))) {
		bool used = strlen(entry->d_name) != 64; /* not a digest: not a kernel directory */

		for (int i = 0; i < MACHINE_KERNEL_MAX; i++)
			used |= str_eq(entry->d_name, metas[i].inputs);
		if (!used)
			(void)tree_remove(kernels, entry->d_name);
	}
	if (d)
		(void)closedir(d);
}

/* Syncs everything before it writes the name. */
static int keep(const struct kernel_work *w, struct kernel_meta *m, struct err *e)
{
	_cleanup_close_ int kernels = -EBADF;
	char path[IMAGE_HOME_MAX];
	int r = machine_file_digest(w->out, "kernel", m->kernel, e);

	if (r == 0)
		r = machine_file_digest(w->out, "base.cpio", m->base, e);
	if (r == 0)
		r = machine_home_open("kernels", true, path, &kernels, e);
	if (r < 0)
		return r;
	if (syncfs(w->out) < 0)
		return err_errno(e, "cannot write the kernel to disk");
	r = tree_remove(kernels, m->inputs); /* its creator died before writing the name */
	if (r < 0)
		return err_set(e, r, "cannot remove an old kernel: %s", strerror(-r));
	if (renameat(w->dir, "out", kernels, m->inputs) < 0)
		return err_errno(e, "cannot move the kernel to '%s'", path);
	r = kernel_meta_write(w->job->kind, m, e);
	if (r == 0)
		prune(kernels);
	return r;
}

static int make(struct kernel_work *w, struct kernel_meta *m, struct err *e)
{
	int r = unpack_package(w, e);

	if (r == 0)
		r = w->job->kind == MACHINE_KERNEL_SMALL ? kernel_build_small(w, e)
							 : take_cloud(w, e);
	(void)snprintf(m->package, sizeof(m->package), "%s", w->package.name);
	(void)snprintf(m->version, sizeof(m->version), "%s", w->package.version);
	return r < 0 ? r : keep(w, m, e);
}

static void close_work(struct kernel_work *w)
{
	if (w->dir >= 0 && tree_empty(w->dir) == 0)
		(void)rmdir(w->path);
	w->dir = fd_close(w->dir);
	w->out = fd_close(w->out);
	w->lock = fd_close(w->lock);
}

static bool is_there(const struct kernel_work *w, const char *inputs)
{
	struct kernel_meta m;
	struct err ignored = ERR_INIT;

	return kernel_meta_read(w->job->kind, &m, &ignored) == 0 && str_eq(m.inputs, inputs);
}

static int check_host(struct err *e)
{
	struct utsname u;

	if (uname(&u) < 0 || !str_eq(u.machine, "x86_64"))
		return err_set(e, -EINVAL, "VMs are supported on x86-64 only");
	return 0;
}

/* 1 if a kernel with these inputs exists, 0 if it was created. */
static int make_unless_there(struct kernel_work *w, struct err *e)
{
	struct kernel_meta m = { .inputs = "" };
	int r = package_find(w->job->kind, w->job->from, &w->package, e);

	if (r == 0)
		r = digest_inputs(w, m.inputs, e);
	if (r < 0)
		return r;
	if (is_there(w, m.inputs))
		return 1;
	r = open_work(w, e);
	return r < 0 ? r : make(w, &m, e);
}

int machine_kernel_make(const struct machine_kernel_job *job, struct machine_kernel_made *ret,
			struct err *e)
{
	_cleanup_(close_work) struct kernel_work w = {
		.job = job, .dir = -EBADF, .out = -EBADF, .lock = -EBADF
	};
	struct machine_kernel_made made = { .package = "" };
	struct stat st;
	int r = check_host(e);

	/* Before the download. */
	if (r == 0 && job->kind == MACHINE_KERNEL_SMALL)
		r = kernel_build_check(e);
	if (r == 0)
		r = machine_home_lock(machine_kernel_names[job->kind], &w.lock, e);
	if (r == 0)
		r = make_unless_there(&w, e);
	if (r < 0)
		return r;
	made.up_to_date = r > 0;
	if (w.out >= 0 && fstatat(w.out, "kernel", &st, AT_SYMLINK_NOFOLLOW) == 0)
		made.bytes = (uint64_t)st.st_size;
	(void)snprintf(made.package, sizeof(made.package), "%s", w.package.name);
	(void)snprintf(made.version, sizeof(made.version), "%s", w.package.version);
	*ret = made;
	return 0;
}
