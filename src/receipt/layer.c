/* SPDX-License-Identifier: Apache-2.0 */
#include "receipt/layer.h"

const char *const layer_names[LAYER_MAX + 1] = {
	[LAYER_USER_NAMESPACE] = "user-namespace",
	[LAYER_PID_NAMESPACE] = "pid-namespace",
	[LAYER_NO_NETWORK_DEVICE] = "no-network-device",
	[LAYER_SECCOMP] = "seccomp",
	[LAYER_NO_CAPABILITIES] = "no-capabilities",
	[LAYER_NO_NEW_PRIVILEGES] = "no-new-privileges",
	[LAYER_READ_ONLY_ROOT] = "read-only-root",
	[LAYER_LANDLOCK] = "landlock",
	[LAYER_APPARMOR] = "apparmor",
	[LAYER_CGROUP_CPU] = "cgroup-cpu",
	[LAYER_CGROUP_MEMORY] = "cgroup-memory",
	[LAYER_CGROUP_PIDS] = "cgroup-pids",
	[LAYER_DISK_QUOTA] = "disk-quota",
	[LAYER_KVM] = "kvm",
	[LAYER_DIAL_GUARD] = "dial-guard",
};

static const char *const extra_names[] = {
	[EXTRA_MOUNT_NAMESPACE - LAYER_MAX] = "mount-namespace",
	[EXTRA_IPC_NAMESPACE - LAYER_MAX] = "ipc-namespace",
	[EXTRA_UTS_NAMESPACE - LAYER_MAX] = "uts-namespace",
	[EXTRA_CGROUP_NAMESPACE - LAYER_MAX] = "cgroup-namespace",
	[EXTRA_OWN_IDS - LAYER_MAX] = "own-ids",
	[EXTRA_MASKED_PROC - LAYER_MAX] = "masked-proc",
	[EXTRA_NO_SYSFS - LAYER_MAX] = "no-sysfs",
	[EXTRA_NO_DEVICES - LAYER_MAX] = "no-devices",
	[EXTRA_RLIMITS - LAYER_MAX] = "rlimits",
	[EXTRA_KEEPER - LAYER_MAX] = "keeper-locked",
	[EXTRA_AUDIT - LAYER_MAX] = "audit",
};
static_assert(ARRAY_SIZE(extra_names) == RECEIPT_ROWS - LAYER_MAX, "a row without a name");

const char *receipt_row_name(unsigned int row)
{
	assert(row < RECEIPT_ROWS);
	return row < LAYER_MAX ? layer_names[row] : extra_names[row - LAYER_MAX];
}
