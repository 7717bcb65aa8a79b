/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a virtual machine is made of, kept below what this user's hutch keeps (image_home_open()):
 *
 *   machine/kernels/NAME/       kernel, base.cpio (modules, if it has any), meta.json
 *   machine/initrds/KEY         base.cpio and hutch-guest as /init, made when it is asked for
 *   machine/disks/SIZE.ext4     an empty file system of that size, to be copied
 *   machine/snapshots/KEY/      snapshot.h
 *   machine/tmp/                what is being made
 *   images/trees/sha256-HEX/root.erofs   the image as a disk, made once
 *
 * Each appears by one rename, whole and on disk.
 */
#pragma once

#include "image-store.h"
#include "snapshot.h"

struct machine_kernel {
	char name[64];
	char kernel[4096], initrd[4096]; /* absolute paths */
	char digest[65];		 /* of both files, hex: part of a snapshot's key */
};

/*
 * The kernel that is used: "small" if it is there, else "cloud"; and the initrd with `guest`, a
 * path of hutch-guest, in it, which is made if this is another hutch-guest than before. -ENOENT
 * with advice.
 */
int machine_kernel_find(const char *guest, struct machine_kernel *ret, struct err *e);

enum machine_kernel_kind {
	MACHINE_KERNEL_CLOUD, /* Debian's own, for clouds: unpacked, not built */
	MACHINE_KERNEL_SMALL, /* built from Debian's source with tools/guest-kernel.config */
	MACHINE_KERNEL_MAX,
};

extern const char *const machine_kernel_names[MACHINE_KERNEL_MAX];

struct machine_kernel_job {
	enum machine_kernel_kind kind;
	const char *from; /* directory with the package; NULL: apt-get downloads it */
	/* Told what goes on, for people: a phase (`count` 0), and how many files it has compiled.
	 */
	void (*say)(const char *phase, unsigned int count, void *arg);
	void *arg;
};

struct machine_kernel_made {
	char package[128], version[128];
	bool up_to_date; /* nothing was done: one of the same package, configuration, compiler */
	uint64_t bytes;	 /* of the kernel */
};

/* Makes a kernel, unless one of the same inputs is there. */
int machine_kernel_make(const struct machine_kernel_job *job, struct machine_kernel_made *ret,
			struct err *e);

/*
 * The EROFS of an image's tree, whose root is `tree_root` (trees/sha256-HEX/root of the image
 * store): made if it is not there. *ret is its absolute path. Owners in it are ids of the image.
 */
int machine_root(const char *tree_root, char ret[static 4096], struct err *e);

/* An empty ext4 of `size` bytes, rounded down to 4096: made if it is not there. */
int machine_blank(uint64_t size, char ret[static 4096], struct err *e);
