/* SPDX-License-Identifier: Apache-2.0 */
/* The state directories of the user who runs hutch. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/state-dir.h"
#include "base/str.h"
#include "image/image-store.h"

int image_home_dir(int at, const char *name, bool make, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = make ? path_mkdirs(at, name, 0700) : 0;
	struct stat st;

	if (r == 0)
		r = fd = path_open_nofollow(at, name, O_RDONLY | O_DIRECTORY, 0);
	if (r < 0)
		return err_set(e, r, "cannot open '%s': %s", name, strerror(-r));
	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat '%s'", name);
	if (st.st_uid != geteuid())
		return err_set(e, -EPERM, "'%s' belongs to uid %u: refused", name,
			       (unsigned int)st.st_uid);
	if (st.st_mode & (S_IWGRP | S_IWOTH))
		return err_set(e, -EPERM, "others can write in '%s': refused", name);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int image_home_open(const char *name, bool make, char path[static IMAGE_HOME_MAX], int *ret_fd,
		    struct err *e)
{
	_cleanup_close_ int base_fd = -EBADF;
	char base[IMAGE_HOME_MAX - 64], below[64];
	const char *prefix = NULL;
	int r = state_dir_open(make, base, sizeof(base), &prefix, &base_fd, e);

	if (r < 0)
		return r;
	(void)snprintf(below, sizeof(below), "%s%s", prefix, name);
	(void)snprintf(path, IMAGE_HOME_MAX, "%s/%s", base, below);
	return image_home_dir(base_fd, below, make, ret_fd, e);
}

int image_home_lock(int dir, const char *path, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;

	fd = RETRY_EINTR(openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0 || RETRY_EINTR(flock(fd, LOCK_EX)) < 0)
		return err_errno(e, "cannot lock '%s'", path);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int image_home_names(int names, const char *path, image_name_fn *fn, const void *store, void *arg,
		     struct err *e)
{
	DIR *d = fd_list(names);
	struct dirent *entry;
	int r = 0;

	if (!d)
		return err_errno(e, "cannot list '%s/names'", path);
	while (r == 0 && (entry = readdir(d))) {
		/* An interrupted write leaves NAME.json.NONCE.tmp. */
		if (!str_has_suffix(entry->d_name, ".json"))
			continue;
		entry->d_name[strlen(entry->d_name) - STRLEN(".json")] = '\0';
		if (strlen(entry->d_name) > IMAGE_NAME_MAX)
			continue;
		r = fn(store, entry->d_name, arg, e);
	}
	(void)closedir(d);
	return r;
}
