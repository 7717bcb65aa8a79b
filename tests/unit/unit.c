/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>

#include "util.h"

int unit_dir_setup(void **state)
{
	static const char template[] = "/tmp/hutch-unit-XXXXXX";
	struct unit_dir *d = calloc(1, sizeof(*d));

	if (!d)
		return -1;
	memcpy(d->path, template, sizeof(template));
	d->fd = mkdtemp(d->path) ? open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	*state = d;
	return d->fd < 0 ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

int unit_dir_teardown(void **state)
{
	struct unit_dir *d = *state;
	int r = nftw(d->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);

	(void)fd_close(d->fd);
	free(d);
	return r;
}

size_t unit_dir_entries(const struct unit_dir *d)
{
	DIR *dir = opendir(d->path);
	size_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n - 2; /* . and .. */
}

void unit_dir_write(const struct unit_dir *d, const char *name, const void *data, size_t n)
{
	_cleanup_close_ int fd =
		openat(d->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, n), n);
}

char *unit_copy(const void *data, size_t n)
{
	char *p = malloc(n > 0 ? n : 1);

	assert_non_null(p);
	if (n > 0)
		memcpy(p, data, n);
	return p;
}
