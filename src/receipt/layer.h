/* SPDX-License-Identifier: Apache-2.0 */
/* The layers between a sandbox and its host, and their names: the rows of a receipt. */
#pragma once

#include "base/util.h"

/* Layers that `isolation.require` can name; each is a bit of policy.require. */
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
	LAYER_DIAL_GUARD, /* BPF limits the addresses that the keeper can dial (dial-guard.h) */
	LAYER_MAX,
};

/* The other rows of a receipt: always required, whatever the policy says. */
enum extra_layer {
	EXTRA_MOUNT_NAMESPACE = LAYER_MAX,
	EXTRA_IPC_NAMESPACE,
	EXTRA_UTS_NAMESPACE,
	EXTRA_CGROUP_NAMESPACE,
	EXTRA_OWN_IDS,	   /* 65,536 user and group ids that no other sandbox has */
	EXTRA_MASKED_PROC, /* files of /proc that reveal the host are masked */
	EXTRA_NO_SYSFS,
	EXTRA_NO_DEVICES, /* /dev has only the seven harmless devices */
	EXTRA_RLIMITS,
	EXTRA_KEEPER, /* the keeper has dropped its privileges */
	EXTRA_AUDIT,  /* the audit log is written; optional only with HUTCH_AUDIT=off */
	RECEIPT_ROWS,
};

extern const char *const layer_names[LAYER_MAX + 1]; /* NULL at the end */

/* Name of any row of a receipt. */
const char *receipt_row_name(unsigned int row);
