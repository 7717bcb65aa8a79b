/* SPDX-License-Identifier: Apache-2.0 */
/* The layers between a sandbox and its host, and their names: what `isolation.require` can insist
 * on, and the further rows of a receipt. */
#pragma once

#include "util.h"

/* What `isolation.require` can insist on; a bit each in policy.require. */
enum layer {
	LAYER_USER_NAMESPACE,
	LAYER_PID_NAMESPACE,
	LAYER_NO_NETWORK_DEVICE,
	LAYER_SECCOMP,
	LAYER_NO_CAPABILITIES,
	LAYER_NO_NEW_PRIVILEGES,
	LAYER_READ_ONLY_ROOT,
	LAYER_LANDLOCK,
	LAYER_APPARMOR,
	LAYER_CGROUP_CPU,
	LAYER_CGROUP_MEMORY,
	LAYER_CGROUP_PIDS,
	LAYER_DISK_QUOTA,
	LAYER_KVM,
	LAYER_DIAL_GUARD, /* the kernel holds the keeper to what may be dialled (dial-guard.h) */
	LAYER_MAX,
};

/* The rest of a receipt: always asked for, never optional for a policy to give up. */
enum extra_layer {
	EXTRA_MOUNT_NAMESPACE = LAYER_MAX,
	EXTRA_IPC_NAMESPACE,
	EXTRA_UTS_NAMESPACE,
	EXTRA_CGROUP_NAMESPACE,
	EXTRA_OWN_IDS,	   /* 65,536 user and group ids that no other sandbox has */
	EXTRA_MASKED_PROC, /* what /proc tells of the host is covered */
	EXTRA_NO_SYSFS,
	EXTRA_NO_DEVICES, /* /dev has the seven harmless ones only */
	EXTRA_RLIMITS,
	EXTRA_KEEPER, /* the keeper has locked itself down */
	EXTRA_AUDIT,  /* what is done is recorded; given up only with HUTCH_AUDIT=off */
	RECEIPT_ROWS,
};

extern const char *const layer_names[LAYER_MAX + 1]; /* NULL at the end */

/* The name of any row of a receipt. */
const char *receipt_row_name(unsigned int row);
