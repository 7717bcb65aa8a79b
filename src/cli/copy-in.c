/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/str.h"
#include "cli/copy.h"
#include "tar/pack.h"

struct packing {
	struct pack pack;
	struct copy *copy;
	struct err *e;
};

static int send_pack(void *arg, const void *data, size_t n)
{
	struct packing *p = arg;

	return transfer_write(&p->copy->t, data, n, p->e);
}

static void tick(struct pack *p)
{
	copy_tick(((struct packing *)p)->copy, p->entries, p->bytes);
}

/* Finds the target directory in the sandbox, and the name there. */
static int place(struct copy *c, const char *src, const char *dst, char dir[static TAR_NAME_MAX],
		 char top[static TAR_NAME_MAX], struct err *e)
{
	size_t n = strlen(dst);
	int r;

	if (snprintf(dir, TAR_NAME_MAX, "%s/.", dst) >= TAR_NAME_MAX ||
	    !copy_base(src, top, TAR_NAME_MAX))
		return err_set(e, -ENAMETOOLONG, "the path is too long");
	/* A path through a directory follows links, as a write there does. */
	r = transfer_open(&c->t, WIRE_OP_STAT, dir, c->user, false, e);
	if (r == 0)
		return transfer_finish(&c->t, e);
	if (r != -EREMOTEIO)
		return r;
	if (transfer_code(&c->t) != WIRE_NOT_FOUND && transfer_code(&c->t) != WIRE_NOT_DIRECTORY)
		return r;
	if (dst[n - 1] == '/' || !copy_base(dst, top, TAR_NAME_MAX) || str_eq(top, "."))
		return err_set(e, -ENOTDIR, "'%.150s' is not a directory in the sandbox", dst);
	return path_parent(dst, dir, TAR_NAME_MAX);
}

static int send_tree(struct copy *c, const char *src, const char *top, struct err *e)
{
	_cleanup_free_ struct packing *p = calloc(1, sizeof(*p));
	struct err why = ERR_INIT;
	char path[TAR_NAME_MAX + 3];
	size_t n = strlen(src);
	int r;

	if (!p)
		return err_oom(e);
	*p = (struct packing){
		.pack = { .write = send_pack, .arg = p, .pipe = -EBADF, .tick = tick },
		.copy = c,
		.e = &why
	};
	/* A trailing slash refers to the target of a link. */
	(void)snprintf(path, sizeof(path), "%s%s", src, src[n - 1] == '/' ? "." : "");
	r = pack_tree(&p->pack, AT_FDCWD, path, top, e);
	if (r < 0 && why.num < 0)
		*e = why;
	c->entries = p->pack.entries;
	c->bytes = p->pack.bytes;
	pack_note(&p->pack, c->note, sizeof(c->note));
	return r;
}

static int send_archive(struct copy *c, struct err *e)
{
	_cleanup_free_ char *chunk = malloc(PACK_BUFFER);
	ssize_t n = -1;
	int r = chunk ? 0 : err_oom(e);

	while (r == 0 && (r = transfer_wait(&c->t, STDIN_FILENO, e)) == 0 &&
	       (n = RETRY_EINTR(read(STDIN_FILENO, chunk, PACK_BUFFER))) > 0) {
		r = transfer_write(&c->t, chunk, (size_t)n, e);
		c->bytes += (uint64_t)n;
		copy_tick(c, 0, c->bytes);
	}
	return r == 0 && n < 0 ? err_errno(e, "cannot read standard input") : r;
}

int copy_in(struct copy *c, const char *src, const char *dst, struct err *e)
{
	char dir[TAR_NAME_MAX], top[TAR_NAME_MAX];
	bool archive = str_eq(src, "-");
	struct stat st;
	int r;

	if (!archive && (strlen(src) >= TAR_NAME_MAX || lstat(src, &st) < 0))
		return err_errno(e, "cannot read '%.150s'", src);
	r = archive ? 0 : place(c, src, dst, dir, top, e);
	if (r == 0)
		r = transfer_open(&c->t, WIRE_OP_UNPACK, archive ? dst : dir, c->user, false, e);
	if (r == 0)
		r = archive ? send_archive(c, e) : send_tree(c, src, top, e);
	return r < 0 ? r : transfer_finish(&c->t, e);
}
