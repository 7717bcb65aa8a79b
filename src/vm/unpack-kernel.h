/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels and modules as they are shipped: compressed, a kernel behind the code that unpacks it. */
#pragma once

#include <stdint.h>

#include "err.h"

enum {
	BOOT_HEADER = 0x250 /* bytes of a bzImage that are looked at */
};

/*
 * Where the compressed kernel lies in a bzImage of `size` bytes that begins with `head`
 * (Documentation/x86/boot.rst, "payload_offset"). -EINVAL: there is none.
 */
int bzimage_payload(const uint8_t head[static BOOT_HEADER], uint64_t size, uint64_t *ret_at,
		    uint64_t *ret_n);

/* The program that unpacks what begins so: "lz4", "xz", ...; "" for an ELF file; NULL if unknown.
 */
const char *packed_with(const uint8_t *head, size_t n);

/* Writes the kernel in the bzImage `from` to `to`, empty and readable: an ELF file for x86-64. */
int bzimage_unpack(int from, int to, struct err *e);

/* Writes the file `from` to `to`, unpacked if it is packed. */
int packed_copy(int from, int to, struct err *e);

/* The same of a kernel, to an empty and readable `to`, which is then an ELF file for x86-64. */
int kernel_copy(int from, int to, struct err *e);
