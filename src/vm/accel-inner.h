/* SPDX-License-Identifier: Apache-2.0 */
/* Inside accel*.c, and for their test: what is seen, what is tried, and what follows from both. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "accel.h"
#include "json-util.h"

/* What is seen of KVM without a guest. */
struct accel_seen {
	int device;	    /* 0, or the -errno of opening /dev/kvm and asking for its version */
	const char *vendor; /* "kvm_intel", "kvm_amd"; NULL: neither is loaded */
	bool closed; /* to others than its owner and group; QEMU of an ordinary user is another */
};

enum accel_boot {
	ACCEL_NOT_TRIED,
	ACCEL_BOOTED,
	ACCEL_LATE,    /* not at its deadline */
	ACCEL_STOPPED, /* KVM gave up on it: an internal error */
	ACCEL_ENDED,   /* QEMU did, and `text` is the end of what it said */
};

struct accel_tried {
	enum accel_boot boot;
	uint64_t deadline_ms; /* how long it was waited for */
	char text[128];
};

/* What a verdict holds for; anything else is another machine. */
struct accel_key {
	char boot[64];	  /* boot id of the host */
	char qemu[128];	  /* which file it is, and when it was last changed */
	char kernel[128]; /* digest of the guest's kernel and initrd */
};

struct accel_verdict {
	bool works;
	char why[ACCEL_WHY_MAX];
};

/* Below `root_fd`, which stands for "/", on behalf of `uid`. */
void accel_see(int root_fd, uid_t uid, struct accel_seen *ret);

/* True if it cannot work, whatever a guest does. */
bool accel_hopeless(const struct accel_seen *s);

void accel_judge(const struct accel_seen *s, const struct accel_tried *t,
		 struct accel_verdict *ret);

/* The verdict for `key` in accel.json of the directory `dir`: -ENOENT if there is none, or none
 * that is whole. */
int accel_load(int dir, const struct accel_key *key, struct accel_verdict *ret);
int accel_store(int dir, const struct accel_key *key, const struct accel_verdict *v, struct err *e);

enum {
	ACCEL_ROOT_SIZE = 4096,
};

/* empty-erofs.c: an image with nothing in it. */
void accel_empty_root(char ret[static ACCEL_ROOT_SIZE]);

/* accel-boot.c: boots a guest with KVM until its agent opens its port, at most `deadline_ms`. It
 * writes to `disk`, an empty ext4. An error is one of ours: nothing is known of KVM then. */
int accel_boot(const char *qemu, const char *kernel, const char *initrd, int disk,
	       uint64_t deadline_ms, struct accel_tried *ret, struct err *e);
