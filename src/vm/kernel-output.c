/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a kernel in the making consists of. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "vm/cpio.h"
#include "vm/kernel-inner.h"
#include "vm/modules.h"

enum {
	BASE_MAX = 64 << 20,
};

int kernel_create(const struct kernel_work *w, const char *name, int *ret_fd, struct err *e)
{
	int fd = openat(w->out, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);

	if (fd < 0)
		return err_errno(e, "cannot make '%s/out/%s'", w->path, name);
	*ret_fd = fd;
	return 0;
}

static int write_archive(const struct kernel_work *w, const char *name, struct cpio *c,
			 struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r;

	if (cpio_end(c) < 0)
		return err_oom(e);
	r = kernel_create(w, name, &fd, e);
	if (r < 0)
		return r;
	r = fd_write_all(fd, c->out->data, c->out->len);
	return r < 0 ? err_set(e, r, "cannot write %s: %s", name, strerror(-r)) : 0;
}

int kernel_write_base(const struct kernel_work *w, int modules, struct err *e)
{
	static const char *const dirs[] = { "dev", "proc", "root", "sys" };
	_cleanup_buf_ struct buf b = BUF_INIT(BASE_MAX), more = BUF_INIT(BASE_MAX);
	struct cpio c = { .out = &b }, nested = { .out = &more };
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		cpio_dir(&c, dirs[i]);
	cpio_device(&c, "dev/console", S_IFCHR | 0600, 5, 1);
	if (modules >= 0)
		r = modules_add(modules, &c, &nested, e);
	if (r == 0)
		r = write_archive(w, "base.cpio", &c, e);
	return r < 0 ? r : write_archive(w, KERNEL_NESTED, &nested, e);
}
