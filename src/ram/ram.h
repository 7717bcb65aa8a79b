/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hutch-ram.so, which QEMU loads by LD_PRELOAD, replaces mmap(3). QEMU's arguments call its memory
 * a shared file, so it leaves memory out of the state that it saves and loads. The file is an empty
 * placeholder in QEMU's root directory. When QEMU maps it, the library maps memory privately
 * instead:
 *
 *   data of the snapshot's file   a private mapping of the file: clones share its pages until they
 *                                 write them
 *   holes of the file             anonymous memory
 *
 * So a VM is charged for exactly the pages that it writes, and it changes nothing that another VM
 * could observe. A private mapping of the holes would not do: the first write to a page of a hole
 * also puts a page of zeros into the file's cache, or into the memfd for good.
 *
 * The library does this once, before the guest runs, reports the address, and closes its files.
 */
#pragma once

#define RAM_LIBRARY "hutch-ram.so"

/* In QEMU's environment: the size of the memory in bytes; set if it comes from a snapshot. */
#define RAM_SIZE     "HUTCH_RAM_SIZE"
#define RAM_SNAPSHOT "HUTCH_RAM_SNAPSHOT"

/* Descriptors that QEMU inherits. */
enum {
	RAM_FD_MEMORY = 7, /* the snapshot's memory; none if the VM boots */
	RAM_FD_REPORT = 9, /* a pipe: struct ram_report */
};

struct ram_report {
	unsigned long long address;
	unsigned long long dev, ino; /* the placeholder, which QEMU keeps open */
};
