/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks kernels and modules as shipped: compressed, a kernel with its unpacking code in front. */
#pragma once

#include <stdint.h>

#include "base/err.h"

enum {
	BOOT_HEADER = 0x250 /* bytes of a bzImage that are read */
};

/*
 * Position of the compressed kernel in a bzImage of `size` bytes that starts with `head`
 * (Documentation/x86/boot.rst, "payload_offset"). -EINVAL: there is none.
 */
int bzimage_payload(const uint8_t head[static BOOT_HEADER], uint64_t size, uint64_t *ret_at,
		    uint64_t *ret_n);

/* The program that unpacks a file with this start: "lz4", "xz", ...; "" for an ELF file; NULL if
 * unknown.
 */
const char *packed_with(const uint8_t *head, size_t n);

/* Writes the kernel in the bzImage `from` to `to`, which is empty and readable: an ELF file for
 * x86-64. */
int bzimage_unpack(int from, int to, struct err *e);

/* Copies the file `from` to `to`, decompressed if needed. */
int packed_copy(int from, int to, struct err *e);

/* The same for a kernel, to an empty and readable `to`; checks that it is an ELF file for x86-64.
 */
int kernel_copy(int from, int to, struct err *e);
