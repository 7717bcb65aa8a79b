/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that create kernels. */
#pragma once

#include "vm/package.h"

/* A kernel being created. */
struct kernel_work {
	const struct machine_kernel_job *job;
	struct kernel_package package;
	char path[IMAGE_HOME_MAX + 64]; /* path of the work directory */
	int dir;			/* the work directory */
	int out;			/* becomes the kernel's directory */
	int lock;			/* held during all of this */
};

/* Metadata of a kernel: kernels/NAME.json. `inputs` is also the name of its directory. */
struct kernel_meta {
	char inputs[65];
	char kernel[65], base[65]; /* digests of the two files */
	char package[128], version[128];
};

int kernel_meta_read(enum machine_kernel_kind kind, struct kernel_meta *ret, struct err *e);
int kernel_meta_write(enum machine_kernel_kind kind, const struct kernel_meta *m, struct err *e);

/* kernel-output.c: opens a new file of `out`, to be written and read. */
int kernel_create(const struct kernel_work *w, const char *name, int *ret_fd, struct err *e);

/* The archive with the modules of isolation.nested, empty for a kernel without modules. */
#define KERNEL_NESTED "nested.cpio"

/* Writes base.cpio: directories, /dev/console and, unless `modules` is -EBADF, the modules in it.
 * Writes KERNEL_NESTED, too. */
int kernel_write_base(const struct kernel_work *w, int modules, struct err *e);

/* The package is unpacked in w->dir/files: makes out/kernel and out/base.cpio. */
int kernel_build_small(struct kernel_work *w, struct err *e);

/* Inputs of a build besides the package: configuration and compiler. */
int kernel_build_inputs(struct buf *b, struct err *e);

/* Checks that the programs and headers for a build exist; the error names missing ones and their
 * packages. */
int kernel_build_check(struct err *e);

static inline void kernel_say(const struct kernel_work *w, const char *phase, unsigned int count)
{
	if (w->job->say)
		w->job->say(phase, count, w->job->arg);
}
