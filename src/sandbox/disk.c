/* SPDX-License-Identifier: Apache-2.0 */
/* Measures a running container's disk through its PID 1: the numbers that df shows inside. */
#include <fcntl.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/fd.h"
#include "engine/engine.h"
#include "engine/scratch.h"
#include "sandbox/sandbox.h"

enum {
	CHILDREN_MAX = 4096,
	STATUS_MAX = 16 * 1024,
};

/* Whether this is PID 1 of a pid namespace below ours: the last of its pids is 1. */
static bool is_init(const char *pid)
{
	_cleanup_buf_ struct buf b = BUF_INIT(STATUS_MAX);
	struct err ignored = ERR_INIT;
	char path[64];
	const char *line;

	(void)snprintf(path, sizeof(path), "/proc/%s/status", pid);
	if (fd_read_file(AT_FDCWD, path, &b, &ignored) < 0)
		return false;
	line = strstr(buf_text(&b), "\nNSpid:");
	line = line ? line + 1 : "";
	return strcspn(line, "\n") > 2 && strncmp(line + strcspn(line, "\n") - 2, "\t1", 2) == 0;
}

static bool measure(const char *root, struct sandbox_disk *ret)
{
	struct statvfs s;

	if (statvfs(root, &s) < 0)
		return false;
	*ret = (struct sandbox_disk){
		.total = (uint64_t)s.f_blocks * s.f_frsize,
		.used = (uint64_t)(s.f_blocks - s.f_bfree) * s.f_frsize,
		.full = scratch_is_full((uint64_t)s.f_bavail * s.f_frsize),
		.inodes_full = s.f_files > 0 && s.f_ffree == 0,
	};
	return true;
}

bool sandbox_disk(int dir, const struct spec *spec, struct sandbox_disk *ret)
{
	_cleanup_close_ int pidfd = -EBADF;
	char path[64], children[CHILDREN_MAX], *pid, *rest = children;
	pid_t warden;

	/* The host knows only the size of a VM's file system. */
	if (!engine_can(spec, ENGINE_SCRATCH) || state_warden(dir, &pidfd, &warden) < 0)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)warden, (int)warden);
	if (fd_read_line(AT_FDCWD, path, children, sizeof(children)) < 0)
		return false;
	while ((pid = strsep(&rest, " "))) {
		(void)snprintf(path, sizeof(path), "/proc/%.16s/root", pid);
		if (pid[0] && is_init(pid) && measure(path, ret))
			return true;
	}
	return false;
}
