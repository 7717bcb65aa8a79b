/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An archive in the format that the kernel unpacks at its start ("newc", Documentation/driver-api/
 * early-userspace/buffer-format.rst). The same entries give the same bytes: owners and times are 0.
 * Errors are those of the buffer, which is asked once, at the end.
 */
#pragma once

#include "buf.h"

struct cpio {
	struct buf *out;
	uint32_t n; /* entries so far */
};

/* Names have no slash in front. Directories come before what is in them. */
void cpio_dir(struct cpio *c, const char *name);
void cpio_device(struct cpio *c, const char *name, uint32_t mode, uint32_t major, uint32_t minor);
void cpio_file(struct cpio *c, const char *name, uint32_t mode, const void *data, size_t n);

/* The archive's end. Another may follow. 0, or the buffer's error. */
int cpio_end(struct cpio *c);
