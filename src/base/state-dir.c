/* SPDX-License-Identifier: Apache-2.0 */
#include "base/state-dir.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/path.h"

static int place(char *path, size_t n, const char **ret_prefix, struct err *e)
{
	const char *state = getenv("HUTCH_STATE_DIR"), *xdg = getenv("XDG_DATA_HOME"),
		   *home = getenv("HOME");
	int k;

	*ret_prefix = "hutch/";
	if (state && state[0] == '/') {
		*ret_prefix = "";
		k = snprintf(path, n, "%s", state);
	} else if (geteuid() == 0) {
		k = snprintf(path, n, "/var/lib");
	} else if (xdg && xdg[0] == '/') {
		k = snprintf(path, n, "%s", xdg);
	} else if (home && home[0] == '/') {
		k = snprintf(path, n, "%s/.local/share", home);
	} else {
		return err_set(e, -ENOENT, "no place for state: set HOME or HUTCH_STATE_DIR");
	}
	if (k < 0 || (size_t)k >= n)
		return err_set(e, -ENAMETOOLONG, "the path of the state directory is too long");
	return 0;
}

int state_dir_path(char *out, size_t n, struct err *e)
{
	char base[PATH_MAX];
	const char *prefix;
	int r = place(base, sizeof(base), &prefix, e), k;

	if (r < 0)
		return r;
	k = snprintf(out, n, "%s%s", base, prefix[0] ? "/hutch" : "");
	if (k < 0 || (size_t)k >= n)
		return err_set(e, -ENAMETOOLONG, "the path of the state directory is too long");
	return 0;
}

int state_dir_open(bool make, char *path, size_t n, const char **ret_prefix, int *ret_fd,
		   struct err *e)
{
	_cleanup_close_ int top = -EBADF;
	int r = place(path, n, ret_prefix, e), fd;

	if (r < 0)
		return r;
	fd = RETRY_EINTR(openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0 && errno == ENOENT && make) {
		top = RETRY_EINTR(openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC));
		r = top < 0 ? -errno : path_mkdirs(top, path + strspn(path, "/"), 0700);
		if (r < 0)
			return err_set(e, r, "cannot make '%s': %s", path, strerror(-r));
		fd = RETRY_EINTR(openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	}
	if (fd < 0)
		return err_errno(e, "cannot open '%s'", path);
	*ret_fd = fd;
	return 0;
}
