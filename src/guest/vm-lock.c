/* SPDX-License-Identifier: Apache-2.0 */
#include "guest/vm.h"

#include <fcntl.h>
#include <string.h>

#include "base/fd.h"

/*
 * In a VM, the sandbox's root is uid 0 of the kernel, without capabilities. These settings disable
 * whatever the kernel protects only by uid 0; afterwards /proc/sys is read-only for all users. Each
 * setting is permanent, or reverting it needs a capability that no process has any more.
 *
 * In a nested VM, root has all capabilities and a writable /proc/sys. It can revert some settings;
 * modules_disabled and kexec_load_disabled stay. User namespaces are left on there.
 */
static const struct {
	const char *path, *value;
	bool confines; /* not in a nested VM */
} settings[] = {
	/* The kernel starts no helper program; if it does, the helper has no capabilities. */
	{ "kernel/modprobe", "\n" },
	{ "kernel/core_pattern", "core" },
	{ "kernel/usermodehelper/bset", "0 0" },
	{ "kernel/usermodehelper/inheritable", "0 0" },
	/* The running kernel cannot be replaced or extended, and hides its addresses. */
	{ "kernel/modules_disabled", "1" },
	{ "kernel/kexec_load_disabled", "1" },
	{ "kernel/sysrq", "0" },
	{ "kernel/dmesg_restrict", "1" },
	{ "kernel/kptr_restrict", "2" },
	{ "kernel/panic_on_oops", "1" },
	/* Interfaces that attacks on the kernel often start with. */
	{ "kernel/unprivileged_bpf_disabled", "1" },
	{ "kernel/perf_event_paranoid", "3" },
	{ "vm/unprivileged_userfaultfd", "0" },
	{ "user/max_user_namespaces", "0", .confines = true },
	/* An idle VM sleeps: no tidying of memory ahead of need, and rarer statistics. */
	{ "vm/compaction_proactiveness", "0" },
	{ "vm/stat_interval", "60" },
	/* As distributions set them. */
	{ "fs/protected_hardlinks", "1" },
	{ "fs/protected_symlinks", "1" },
	{ "fs/protected_fifos", "1" },
	{ "fs/protected_regular", "2" },
};

int vm_lock(struct err *e)
{
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		_cleanup_close_ int fd = -EBADF;
		char path[64];
		int r;

		if (settings[i].confines && vm_is_nested())
			continue;
		(void)snprintf(path, sizeof(path), "/proc/sys/%s", settings[i].path);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 && errno == ENOENT) /* this kernel lacks the feature */
			continue;
		r = fd < 0 ? -errno
			   : fd_write_all(fd, settings[i].value, strlen(settings[i].value));
		if (r < 0)
			return err_set(e, r, "cannot set %s: %s", settings[i].path, strerror(-r));
	}
	return 0;
}
