/* SPDX-License-Identifier: Apache-2.0 */
#include "base/journald.h"

#include <endian.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/buf.h"

int journald_open(const char *path, int *ret)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(a.sun_path))
		return -ENAMETOOLONG;
	memcpy(a.sun_path, path, strlen(path));
	if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -errno;
	*ret = TAKE_FD(fd);
	return 0;
}

static void put(struct buf *b, const struct journald_field *f)
{
	const size_t n = strlen(f->value);
	const uint64_t length = htole64(n);

	(void)buf_puts(b, f->name);
	if (strchr(f->value, '\n')) {
		(void)buf_putc(b, '\n');
		(void)buf_put(b, &length, sizeof(length));
	} else {
		(void)buf_putc(b, '=');
	}
	(void)buf_put(b, f->value, n);
	(void)buf_putc(b, '\n');
}

int journald_send(int fd, const struct journald_field *fields, size_t n)
{
	_cleanup_buf_ struct buf b = BUF_INIT(JOURNALD_MAX);

	for (size_t i = 0; i < n; i++)
		if (fields[i].value && fields[i].value[0])
			put(&b, &fields[i]);
	if (b.err)
		return b.err == -ENOBUFS ? -EMSGSIZE : b.err;
	return send(fd, b.data, b.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
}
