/* SPDX-License-Identifier: Apache-2.0 */
#include "confine/landlock.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include "base/util.h"

int landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return abi < 0 ? -errno : (int)abi;
}

uint64_t landlock_file_rights(int abi)
{
	/* 13 in version 1; then refer (2), truncate (3) and ioctl of devices (5). */
	unsigned int n = abi >= 5 ? 16 : abi >= 3 ? 15 : abi >= 2 ? 14 : 13;

	return (UINT64_C(1) << n) - 1;
}

struct landlock_rights landlock_all_rights(int abi, bool connect)
{
	struct landlock_rights a = { .fs = landlock_file_rights(abi) };

	if (abi >= 4)
		a.net = connect ? 1 : 3; /* bind, connect */
	if (abi >= 6)
		a.scoped = 3; /* abstract sockets and signals */
	return a;
}

int landlock_ruleset(const struct landlock_rights *r)
{
	/* The structure has grown: pass only the part that this kernel knows. */
	size_t n = r->scoped ? sizeof(*r) : r->net ? 2 * sizeof(r->fs) : sizeof(r->fs);
	long fd = syscall(SYS_landlock_create_ruleset, r, n, 0);

	return fd < 0 ? -errno : (int)fd;
}

int landlock_allow(int ruleset, int fd, uint64_t rights)
{
	const struct landlock_path_beneath_attr rule = { .allowed_access = rights,
							 .parent_fd = fd };

	return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0
		       ? -errno
		       : 0;
}

int landlock_restrict(int ruleset)
{
	return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 0;
}

int landlock_forbid_all(bool connect, int fd, uint64_t rights)
{
	const int abi = landlock_abi();
	const struct landlock_rights all = landlock_all_rights(abi, connect);
	_cleanup_close_ int ruleset = -EBADF;
	int r = 0;

	if (abi < 1)
		return 0;
	ruleset = landlock_ruleset(&all);
	if (ruleset < 0)
		return ruleset;
	if (fd >= 0)
		r = landlock_allow(ruleset, fd, rights & all.fs);
	if (r == 0)
		r = landlock_restrict(ruleset);
	return r < 0 ? r : 1;
}

int landlock_check(void)
{
	_cleanup_close_ int fd = -EBADF;

	if (landlock_abi() < 1)
		return 0;
	fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		return -EPERM;
	return errno == EACCES ? 0 : -errno;
}
