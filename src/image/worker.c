/* SPDX-License-Identifier: Apache-2.0 */
#include "image/worker.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "ca-store/ca-store.h"
#include "image/archive.h"
#include "image/layout.h"
#include "image/stream.h"
#include "image/tree.h"
#include "image/unpack.h"

static void tick_unpack(void *arg, const struct image_counts *counts)
{
	worker_tell(arg, PHASE_UNPACK, counts);
}

static void tick_digest(void *arg, uint64_t files, uint64_t bytes)
{
	const struct image_counts counts = { .entries = files, .bytes = bytes };

	worker_tell(arg, PHASE_DIGEST, &counts);
}

/* Reads the input to its last byte, so that the writer of a pipe does not block. */
static int unpack_input(struct unpack *u, int input, struct err *e)
{
	_cleanup_stream_ struct stream s = STREAM_INIT;
	uint8_t digest[IMAGE_DIGEST];
	int fd = fcntl(input, F_DUPFD_CLOEXEC, 3), r;

	if (fd < 0)
		return err_errno(e, "cannot duplicate the input descriptor");
	r = stream_open(&s, fd, e);
	if (r == 0)
		r = unpack_archive(u, UNPACK_TAR, stream_read, &s, e);
	return r < 0 ? r : stream_finish(&s, digest, e);
}

static int unpack_image(const struct confine_job *job, struct worker *w, struct unpack *u,
			enum archive_kind kind, struct err *e)
{
	const struct work_spec *spec = job->arg;
	_cleanup_archive_ struct archive a = ARCHIVE_INIT;
	int r = worker_config(w, "archive",
			      kind == ARCHIVE_DOCKER ? "docker-archive" : "oci-archive", e),
	    k;

	if (r == 0)
		r = archive_read(&a, job->work, job->input, w, e);
	w->archive = &a;
	if (r == 0)
		r = kind == ARCHIVE_DOCKER ? docker_unpack(w, u, spec->tag, e)
					   : oci_unpack(w, u, spec->tag, e);
	w->archive = NULL;
	k = tree_remove(job->work, ARCHIVE_PARTS);
	if (r == 0 && k < 0)
		return err_set(e, k, "cannot remove the archive's files: %s", strerror(-k));
	return r;
}

/* A file may be an image or a root tree; a pipe always carries a root tree. */
static int unpack_file(const struct confine_job *job, struct worker *w, struct unpack *u,
		       struct err *e)
{
	const struct work_spec *spec = job->arg;
	enum archive_kind kind = ARCHIVE_ROOT;
	struct stat st;
	int r = 0;

	if (fstat(job->input, &st) < 0)
		return err_errno(e, "cannot stat the input");
	if (S_ISREG(st.st_mode))
		r = archive_look(job->input, &kind, e);
	if (r < 0)
		return r;
	if (kind != ARCHIVE_ROOT)
		return unpack_image(job, w, u, kind, e);
	if (spec->tag)
		return err_set(e, -EINVAL, "the file is a root tree, which has no image '%.80s'",
			       spec->tag);
	return unpack_input(u, job->input, e);
}

static int make_tree(const struct confine_job *job, struct worker *w, int root,
		     struct channel_msg *m, struct err *e)
{
	const struct work_spec *spec = job->arg;
	struct unpack u = { .root = root, .tick = tick_unpack, .arg = w };
	int r = spec->kind == WORK_OCI ? oci_unpack(w, &u, spec->tag, e)
				       : unpack_file(job, w, &u, e);

	if (r == 0)
		r = unpack_mount_points(root, e);
	if (r == 0 && spec->from_sandbox)
		r = ca_store_remove(root, e);
	if (r == 0 && spec->finish)
		r = finish_tree(root, spec->finish, e);
	if (r == 0)
		r = tree_digest(root, tick_digest, w, &m->tree, e);
	m->counts = u.counts;
	if (r < 0)
		return r;
	worker_tell(w, PHASE_KEEP, &u.counts);
	return syncfs(root) < 0 ? err_errno(e, "cannot write the tree to disk") : 0;
}

int worker_run(const struct confine_job *job, int sock, struct channel_msg *m, struct err *e)
{
	const struct work_spec *spec = job->arg;
	_cleanup_close_ int root = -EBADF;
	struct worker w = { .sock = sock };
	int r;

	if (spec->kind == WORK_EMPTY) {
		r = tree_remove(job->work, ARCHIVE_PARTS);
		if (r == 0 || r == -ENOENT)
			r = tree_remove(job->work, "root");
		/* The directory above belongs to the master, which removes it once empty. */
		return r == 0 || r == -EACCES || r == -EPERM
			       ? 0
			       : err_set(e, r, "cannot remove the tree: %s", strerror(-r));
	}
	if (mkdirat(job->work, "root", 0755) < 0)
		return err_errno(e, "cannot create the root of the tree");
	root = RETRY_EINTR(
		openat(job->work, "root", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (root < 0)
		return err_errno(e, "cannot open the root of the tree");
	return make_tree(job, &w, root, m, e);
}
