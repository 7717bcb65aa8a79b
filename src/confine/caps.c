/* SPDX-License-Identifier: Apache-2.0 */
#include "confine/caps.h"

#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/util.h"

enum {
	CAPS_MAX = 64,
	WORDS = _LINUX_CAPABILITY_U32S_3,
};

static int get(struct __user_cap_data_struct data[static WORDS])
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capget, &head, data) < 0 ? -errno : 0;
}

static int set(const struct __user_cap_data_struct data[static WORDS])
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };

	return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

static uint32_t word(uint64_t caps, unsigned int i)
{
	return (uint32_t)(caps >> (32 * i));
}

int caps_bound(uint64_t keep)
{
	for (unsigned long cap = 0; cap < CAPS_MAX; cap++)
		if (!(keep & CAPS_BIT(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return errno == EINVAL ? 0 : -errno; /* past the kernel's last one */
	return 0;
}

int caps_only(uint64_t keep)
{
	struct __user_cap_data_struct data[WORDS] = { 0 };

	for (unsigned int i = 0; i < WORDS; i++)
		data[i].permitted = data[i].effective = word(keep, i);
	if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
		return -errno;
	return set(data);
}

int caps_limit(uint64_t keep, uint64_t use)
{
	struct __user_cap_data_struct data[WORDS] = { 0 };
	int r = keep != 0 ? get(data) : 0;

	if (r < 0)
		return r;
	for (unsigned int i = 0; i < WORDS; i++) {
		data[i].permitted &= word(keep, i);
		data[i].effective = data[i].permitted & word(use, i);
		data[i].inheritable = 0;
	}
	return set(data);
}

int caps_check(uint64_t keep)
{
	struct __user_cap_data_struct data[WORDS] = { 0 };
	int r = get(data);

	if (r < 0)
		return r;
	for (unsigned int i = 0; i < WORDS; i++)
		if ((data[i].permitted | data[i].effective | data[i].inheritable) & ~word(keep, i))
			return -EPERM;
	return 0;
}
