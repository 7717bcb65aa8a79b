/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Packs and unpacks directory trees in a worker. The user's permissions and Landlock limit which
 * files it reaches; src/tar checks the archive's contents.
 */
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/str.h"
#include "guest/vm.h"
#include "guest/worker.h"
#include "tar/pack.h"

static int write_pipe(void *arg, const void *data, size_t n)
{
	const struct worker *w = arg;

	return fd_write_all(w->pipe, data, n);
}

static int64_t read_pipe(void *arg, void *buf, size_t n, struct err *e)
{
	const struct worker *w = arg;
	ssize_t k = RETRY_EINTR(read(w->pipe, buf, n));

	return k < 0 ? err_errno(e, "cannot read the archive") : k;
}

static int fail_err(struct worker *w, const struct err *e)
{
	return fail_with(&w->fail, code_of_errno(-e->num), "%s", e->msg);
}

/*
 * Returns the name of the archive's top entry: the last component of the path, or "." if the path
 * names the contents of a directory ("/", "/a/."). Cuts off a trailing slash, which means: follow
 * the last component.
 */
static const char *split(char *path, bool *ret_follow)
{
	size_t n = strlen(path);
	const char *base;

	*ret_follow = path[n - 1] == '/' || str_has_suffix(path, "/.");
	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	base = strrchr(path, '/') + 1;
	return base[0] == '\0' || str_eq(base, "..") ? "." : base;
}

int worker_pack(struct worker *w)
{
	static struct pack p;
	struct err e = ERR_INIT;
	char path[WORKER_PATH_MAX + 2];
	struct stat st;
	bool follow;
	const char *top;

	if (fields_has(w->fields, TAG_OWNERS) && !str_eq(w->path, "/"))
		return fail_with(&w->fail, WIRE_INVALID, "an image is packed from '/'");
	top = split(w->path, &follow);
	(void)snprintf(path, sizeof(path), "%s%s", w->path, follow ? "/." : "");
	if (lstat(path, &st) < 0)
		return worker_fail(w, "read");
	if (worker_send(w, PACKET_ACCEPT, AT_FDCWD, path, w->path, &st) < 0)
		return -1;
	p.write = write_pipe;
	p.arg = w;
	p.pipe = w->pipe;
	p.owners = fields_has(w->fields, TAG_OWNERS);
	/* An image's machine-id must be empty: machine-id(5). */
	p.blank = p.owners && vm_is_running() ? "etc/machine-id" : NULL;
	if (pack_tree(&p, AT_FDCWD, path, top, &e) < 0)
		return fail_err(w, &e);
	/* An incomplete image is an error. */
	if (p.owners && p.failed > 0)
		return fail_with(&w->fail, WIRE_IO, "cannot read %s", p.first);
	pack_note(&p, w->note, sizeof(w->note));
	return 0;
}

int worker_unpack(struct worker *w)
{
	static struct extract x;
	_cleanup_close_ int root = open(w->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
	struct err e = ERR_INIT;
	struct stat st;

	if (root < 0 || fstat(root, &st) < 0)
		return worker_fail(w, "write to");
	if (worker_send(w, PACKET_ACCEPT, AT_FDCWD, w->path, w->path, &st) < 0)
		return -1;
	x.root = root;
	x.read = read_pipe;
	x.arg = w;
	x.pipe = w->pipe;
	x.max_entries = x.max_bytes = UINT64_MAX; /* the sandbox's own limits apply */
	return extract_archive(&x, &e) < 0 ? fail_err(w, &e) : 0;
}
