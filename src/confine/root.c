/* SPDX-License-Identifier: Apache-2.0 */
#include "confine/root.h"

#include <errno.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* As described in pivot_root(2), "pivot_root(".", ".")". */
int root_enter(const char *path)
{
	if (chdir(path) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return -errno;
	return 0;
}

int root_enter_empty(const char *path)
{
	if (mount("hutch", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
		  "mode=555,size=4k,nr_inodes=1") < 0)
		return -errno;
	return root_enter(path);
}

int root_check_empty(void)
{
	struct statvfs fs;
	struct stat st;

	if (stat("/", &st) < 0 || statvfs("/", &fs) < 0)
		return -errno;
	/* A directory in "/" would be a third link to it, and a file a second inode. */
	return st.st_nlink != 2 || fs.f_files != 1 || !(fs.f_flag & ST_RDONLY) ? -EPERM : 0;
}
