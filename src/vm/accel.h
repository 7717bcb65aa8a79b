/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether KVM works on this host: not whether /dev/kvm exists, but whether a guest boots
 * with it. On some hosts a VM can be created and run, but no kernel ever boots. The verdict is
 * stored until the host reboots (`machine/accel.json`: boot id, QEMU, kernel, verdict and reason).
 * A guest that did not boot in time proves nothing: that verdict ends after ten minutes.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

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

/* The configured choice: $HUTCH_ACCEL, else `accel:` of host.yaml (host-config.h), else auto. */
int accel_wish(enum accel_wish *ret, struct err *e);

/*
 * Chooses the accelerator for VMs that boot `kernel` (NULL: none is installed). `why` explains why
 * it is not KVM, or is "". -ENOTSUP: KVM is configured and does not work. `probe` false: uses a
 * stored verdict; without one, returns ACCEL_TCG. `probe` true: without a stored verdict, and
 * unless KVM is obviously missing, boots a guest, which takes up to `accel_timeout` (15 s) if it
 * fails.
 */
int accel_choose(const struct machine_kernel *kernel, bool probe, enum accel *ret,
		 char why[static ACCEL_WHY_MAX], struct err *e);

/* Tests again, for `hutch doctor --probe`: boots a guest if /dev/kvm can be opened. */
int accel_probe(const struct machine_kernel *kernel, struct err *e);
