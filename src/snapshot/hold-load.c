/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "snapshot/hold.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

/* Clones open the memfd again, by /proc/self/fd and under another id, so its mode allows everyone;
 * without a name, the mode gives no other access. */
int hold_load(int file, uint64_t size, const char *digest, int *ret_memfd)
{
	_cleanup_close_ int fd = memfd_create("template", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char hex[PAGES_HEX];
	int r;

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		return -errno;
	r = pages_digest(file, size, fd, hex);
	if (r == 0 && strcmp(hex, digest) != 0)
		r = -EBADMSG;
	if (r == 0 && fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		r = -errno;
	if (r == 0)
		*ret_memfd = TAKE_FD(fd);
	return r;
}

bool hold_is_sealed(int memfd, uint64_t size)
{
	struct stat st;

	return fcntl(memfd, F_GET_SEALS) == SEALS && fstat(memfd, &st) == 0 &&
	       (uint64_t)st.st_size == size;
}
