/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether KVM works here: not whether there is a /dev/kvm, but whether a guest boots with it. On
 * some hosts a machine can be made and run, and no kernel ever gets anywhere. The verdict is kept
 * for this boot of the host (machine/accel.json: boot id, QEMU, kernel, verdict and reason).
 */
#pragma once

#include <stdbool.h>

#include "err.h"

struct machine_kernel;

enum accel {
	ACCEL_TCG,
	ACCEL_KVM,
};

enum accel_wish {
	ACCEL_AUTO,
	ACCEL_WANT_KVM,
	ACCEL_WANT_TCG,
};

enum {
	ACCEL_WHY_MAX = 256,
};

/* The wish: $HUTCH_ACCEL, else `accel:` of host.yaml (host-config.h), else auto. */
int accel_wish(enum accel_wish *ret, struct err *e);

/*
 * What to use for machines that boot `kernel` (NULL: none is installed). `why` says why it is not
 * KVM, for people; "". -ENOTSUP: KVM was wished for and does not work. `probe` false: a verdict
 * that is there is taken, and none is made (ACCEL_TCG then). True: without one, and if it is not
 * plain that there is no KVM, a guest is booted, which takes until `accel_timeout` (15 s) where it
 * does not boot.
 */
int accel_choose(const struct machine_kernel *kernel, bool probe, enum accel *ret,
		 char why[static ACCEL_WHY_MAX], struct err *e);

/*
 * Makes the verdict anew, for `hutch doctor --probe`: boots a guest wherever /dev/kvm can be
 * opened.
 */
int accel_probe(const struct machine_kernel *kernel, struct err *e);
