/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes an archive in the format that the kernel unpacks when it boots ("newc",
 * Documentation/driver-api/early-userspace/buffer-format.rst). Output is reproducible: owners and
 * times are 0. Errors stay in the buffer; check it once, at the end.
 */
#pragma once

#include "base/buf.h"

struct cpio {
	struct buf *out;
	uint32_t n; /* entries so far */
};

/* Names have no leading slash. Directories come before their contents. */
void cpio_dir(struct cpio *c, const char *name);
void cpio_device(struct cpio *c, const char *name, uint32_t mode, uint32_t major, uint32_t minor);
void cpio_file(struct cpio *c, const char *name, uint32_t mode, const void *data, size_t n);

/* Ends the archive. Another may follow. 0, or the buffer's error. */
int cpio_end(struct cpio *c);
