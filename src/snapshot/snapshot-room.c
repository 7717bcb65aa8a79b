/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits the disk space of all snapshots of a user together: `snapshot_space` of host.yaml. The
 * maximum size of a snapshot is known before it is written. Snapshots being written at the same
 * time count with what they have written so far.
 */
#include "snapshot/snapshot-room.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

#define MIB UINT64_C(1048576)

enum {
	DEPTH_MAX = 3, /* snapshots/NAME/box */
};

/* Files that disappear meanwhile do not count. */
static uint64_t bytes_below(int dir, unsigned int depth)
{
	DIR *d = depth < DEPTH_MAX ? fd_list(dir) : NULL;
	struct dirent *entry;
	uint64_t sum = 0;
	struct stat st;

	while (d && (entry = readdir(d))) {
		_cleanup_close_ int sub = -EBADF;

		if (str_eq(entry->d_name, ".") || str_eq(entry->d_name, "..") ||
		    fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		sum += (uint64_t)st.st_blocks * 512;
		if (!S_ISDIR(st.st_mode))
			continue;
		sub = path_open_nofollow(dir, entry->d_name, O_RDONLY | O_DIRECTORY, 0);
		if (sub >= 0)
			sum += bytes_below(sub, depth + 1);
	}
	if (d)
		(void)closedir(d);
	return sum;
}

int snapshot_room(int home, uint64_t space, uint64_t need, struct err *e)
{
	const uint64_t used = bytes_below(home, 0);

	if (used <= space && need <= space - used)
		return 0;
	return err_set(e, -EDQUOT,
		       "snapshots take %llu MiB, this one may need %llu MiB more, and %llu MiB are "
		       "allowed: remove some (hutch snapshot ls, hutch snapshot rm), or raise "
		       "snapshot_space in host.yaml",
		       (unsigned long long)(used / MIB),
		       (unsigned long long)((need + MIB - 1) / MIB),
		       (unsigned long long)(space / MIB));
}
