/* SPDX-License-Identifier: Apache-2.0 */
#include "image/stream.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"

static const struct format {
	const char *program;
	const char *magic;
	size_t n;
} formats[] = {
	{ "gzip", "\x1f\x8b", 2 },
	{ "zstd", "\x28\xb5\x2f\xfd", 4 },
	{ "xz",
	  "\xfd"
	  "7zXZ\0",
	  6 },
};

static const struct format *format_of(int fd)
{
	char head[8];
	ssize_t n = pread(fd, head, sizeof(head), 0);

	for (size_t i = 0; i < ARRAY_SIZE(formats); i++)
		if (n >= (ssize_t)formats[i].n && memcmp(head, formats[i].magic, formats[i].n) == 0)
			return &formats[i];
	return NULL;
}

static int start_unpacker(struct stream *s, const struct format *f, struct err *e)
{
	const char *const argv[] = { f->program, "-dc", NULL };
	_cleanup_close_ int from = -EBADF, to = -EBADF;
	char path[PATH_MAX];
	int r;

	if (proc_find(f->program, path, sizeof(path)) < 0)
		return err_set(e, -ENOENT, "%s is not installed; it is needed to read this file",
			       f->program);
	if (fd_pipe(0, &from, &to) < 0)
		return err_errno(e, "cannot create a pipe");
	r = proc_spawn(
		&(struct proc_spec){
			.path = path, .argv = argv, .in = s->fd, .out = to, .err = STDERR_FILENO },
		&s->unpacker, e);
	if (r < 0)
		return r;
	s->program = f->program;
	(void)fd_close(s->fd);
	s->fd = TAKE_FD(from);
	return 0;
}

int stream_open(struct stream *s, int fd, struct err *e)
{
	const struct format *f;
	struct stat st;

	*s = (struct stream)STREAM_INIT;
	s->fd = fd;
	(void)crypto_hash_sha256_init(&s->hash);
	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat the archive");
	if (!S_ISREG(st.st_mode))
		return 0;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return err_errno(e, "cannot seek to the start of the archive");
	f = format_of(fd);
	if (!f)
		return 0;
	s->packed = (uint64_t)st.st_size;
	return start_unpacker(s, f, e);
}

int64_t stream_read(void *stream, void *buf, size_t n, struct err *e)
{
	struct stream *s = stream;
	ssize_t k = RETRY_EINTR(read(s->fd, buf, n));

	if (k < 0)
		return err_errno(e, "cannot read the archive");
	s->out += (uint64_t)k;
	if (s->program && s->out > IMAGE_RATIO_FROM && s->out / IMAGE_RATIO_MAX > s->packed)
		return err_set(e, -EINVAL, "unpacks to more than %llu times its size: refused",
			       (unsigned long long)IMAGE_RATIO_MAX);
	(void)crypto_hash_sha256_update(&s->hash, buf, (unsigned long long)k);
	return k;
}

int stream_finish(struct stream *s, uint8_t ret_digest[static IMAGE_DIGEST], struct err *e)
{
	siginfo_t info = { 0 };
	int r;

	if (s->program) {
		r = proc_wait(&s->unpacker, UINT64_MAX, &info);
		if (r < 0)
			return err_set(e, r, "cannot wait for %s: %s", s->program, strerror(-r));
		if (info.si_code != CLD_EXITED || info.si_status != 0)
			return err_set(e, -EINVAL, "%s reports that the file is corrupt",
				       s->program);
	}
	(void)crypto_hash_sha256_final(&s->hash, ret_digest);
	return 0;
}

void stream_done(struct stream *s)
{
	s->fd = fd_close(s->fd);
	proc_done(&s->unpacker);
}
