/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a VM, below this user's state directory (image_home_open()):
 *
 *   `machine/kernels/NAME/`     kernel, base.cpio (modules, if it has any), meta.json
 *   `machine/initrds/KEY`       base.cpio and hutch-guest as /init, created on demand
 *   `machine/disks/SIZE.ext4`   an empty file system of that size, to be copied
 *   `machine/snapshots/KEY/`    snapshot.h
 *   `machine/tmp/`              work in progress
 *   images/trees/sha256-HEX/root.erofs   the image as a disk, created once
 *
 * Each appears by one rename, complete and synced.
 */
#pragma once

#include "image/image-store.h"
#include "snapshot/snapshot.h"

struct machine_kernel {
	char name[64];
	char kernel[4096], initrd[4096]; /* absolute paths */
	char digest[65];   /* digest of both files, in hex: part of a snapshot's key */
	char version[200]; /* "PACKAGE VERSION" */
};

/*
 * Finds the kernel to use, "small" if it exists, else "cloud"; and its initrd with hutch-guest from
 * the path `guest`, created if hutch-guest has changed; with `nested`, also with the modules of
 * isolation.nested. -ENOENT with advice.
 */
int machine_kernel_find(const char *guest, bool nested, struct machine_kernel *ret, struct err *e);

enum machine_kernel_kind {
	MACHINE_KERNEL_CLOUD, /* Debian's cloud kernel: unpacked, not built */
	MACHINE_KERNEL_SMALL, /* built from Debian's source with tools/guest-kernel.config */
	MACHINE_KERNEL_MAX,
};

extern const char *const machine_kernel_names[MACHINE_KERNEL_MAX];

struct machine_kernel_job {
	enum machine_kernel_kind kind;
	const char *from; /* directory with the package; NULL: apt-get downloads it */
	/* Reports progress: a phase (`count` 0), or the number of compiled files. */
	void (*say)(const char *phase, unsigned int count, void *arg);
	void *arg;
};

struct machine_kernel_made {
	char package[128], version[128];
	bool up_to_date; /* nothing to do: same package, configuration and compiler */
	uint64_t bytes;	 /* size of the kernel */
};

/* Creates a kernel, unless one with the same inputs exists. */
int machine_kernel_make(const struct machine_kernel_job *job, struct machine_kernel_made *ret,
			struct err *e);

/*
 * The EROFS of an image's tree, whose root is `tree_root` (trees/sha256-HEX/root of the image
 * store); created if missing. *ret is its absolute path. Owners in it are ids of the image.
 */
int machine_root(const char *tree_root, char ret[static 4096], struct err *e);

/* An empty ext4 of `size` bytes, rounded down to 4096; created if missing. */
int machine_blank(uint64_t size, char ret[static 4096], struct err *e);
