/* SPDX-License-Identifier: Apache-2.0 */
#include "vm/home.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/file.h>

int machine_home_open(const char *sub, bool make, char path[static IMAGE_HOME_MAX], int *ret_fd,
		      struct err *e)
{
	_cleanup_close_ int home = -EBADF;
	int r = image_home_open(MACHINE_HOME, make, path, &home, e);
	size_t n, sub_n = strlen(sub) + 2;

	if (r < 0)
		return r;
	n = strlen(path);
	if (n + sub_n > IMAGE_HOME_MAX)
		return err_set(e, -ENAMETOOLONG, "the path of '%s' is too long", sub);
	(void)snprintf(path + n, sub_n, "/%s", sub);
	return image_home_dir(home, sub, make, ret_fd, e);
}

int machine_home_lock(const char *name, int *ret_fd, struct err *e)
{
	_cleanup_close_ int tmp = -EBADF, fd = -EBADF;
	char path[IMAGE_HOME_MAX], file[64];
	int r = machine_home_open("tmp", true, path, &tmp, e);

	if (r < 0)
		return r;
	(void)snprintf(file, sizeof(file), "%s.lock", name);
	fd = RETRY_EINTR(openat(tmp, file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0 || RETRY_EINTR(flock(fd, LOCK_EX)) < 0)
		return err_errno(e, "cannot lock '%s/%s'", path, file);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int machine_file_digest(int dir, const char *name, char ret[static 65], struct err *e)
{
	_cleanup_close_ int fd = RETRY_EINTR(openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
	unsigned char chunk[65536], sum[32];
	crypto_generichash_state state;
	ssize_t k = 1;

	if (fd < 0)
		return err_errno(e, "cannot open '%s'", name);
	(void)crypto_generichash_init(&state, NULL, 0, sizeof(sum));
	while (k > 0) {
		k = RETRY_EINTR(read(fd, chunk, sizeof(chunk)));
		if (k < 0)
			return err_errno(e, "cannot read '%s'", name);
		(void)crypto_generichash_update(&state, chunk, (unsigned long long)k);
	}
	(void)crypto_generichash_final(&state, sum, sizeof(sum));
	(void)sodium_bin2hex(ret, 65, sum, sizeof(sum));
	return 0;
}
