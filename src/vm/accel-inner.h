/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by accel*.c and their test: facts about the host, results of a test boot, and verdicts. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/json-util.h"
#include "vm/accel.h"

/* Facts about KVM found without booting a guest. */
struct accel_seen {
	int device;	    /* 0, or -errno of opening /dev/kvm and asking for its version */
	const char *vendor; /* "kvm_intel", "kvm_amd"; NULL: neither is loaded */
	bool closed; /* /dev/kvm is closed to other users; QEMU of an ordinary user runs under
			another id */
};

enum accel_boot {
	ACCEL_NOT_TRIED,
	ACCEL_BOOTED,
	ACCEL_LATE,    /* not by the deadline */
	ACCEL_STOPPED, /* KVM stopped it: an internal error */
	ACCEL_ENDED,   /* QEMU exited; `text` is its last line of output */
};

struct accel_tried {
	enum accel_boot boot;
	uint64_t deadline_ms; /* how long the boot was given */
	char text[128];
};

/* Validity of a verdict: if one of these changes, KVM is tested again. */
struct accel_key {
	char boot[64];	  /* boot id of the host */
	char qemu[128];	  /* identity of the file and its modification time */
	char kernel[128]; /* digest of the guest's kernel and initrd */
};

enum {
	/* How long starts use TCG after a test boot that was only late, before they test again. */
	ACCEL_RETRY_MS = 10 * 60 * 1000,
};

struct accel_verdict {
	bool works;
	uint64_t retry_at; /* clock_mono(), ms, when KVM is tested again; 0: at the next reboot */
	char why[ACCEL_WHY_MAX];
};

/* Looks below `root_fd`, which stands for "/", on behalf of `uid`. */
void accel_see(int root_fd, uid_t uid, struct accel_seen *ret);

/* True if KVM cannot work, whatever a guest does. */
bool accel_hopeless(const struct accel_seen *s);

/* A late boot may have been the fault of a busy host, so its verdict ends ACCEL_RETRY_MS after
 * `now_ms`. */
void accel_judge(const struct accel_seen *s, const struct accel_tried *t, uint64_t now_ms,
		 struct accel_verdict *ret);

/* True if KVM need not be tested again. `insist`: only a final verdict suffices. */
bool accel_verdict_holds(const struct accel_verdict *v, bool insist, uint64_t now_ms);

/* The verdict for `key` in accel.json of the directory `dir`; -ENOENT if there is no valid one. */
int accel_load(int dir, const struct accel_key *key, struct accel_verdict *ret);
int accel_store(int dir, const struct accel_key *key, const struct accel_verdict *v, struct err *e);

enum {
	ACCEL_ROOT_SIZE = 4096,
};

/* empty-erofs.c: an empty image. */
void accel_empty_root(char ret[static ACCEL_ROOT_SIZE]);

/* accel-boot.c: boots a guest with KVM until it opens its port, for at most `deadline_ms`. The
 * guest writes to `disk`, an empty ext4. An error means that the test failed to run and says
 * nothing about KVM. */
int accel_boot(const char *qemu, const char *kernel, const char *initrd, int disk,
	       uint64_t deadline_ms, struct accel_tried *ret, struct err *e);
