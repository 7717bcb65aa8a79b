/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts an image's tree to an EROFS, stored beside the tree and removed with it. mkfs.erofs
 * reads untrusted files, and takes owners as it sees them: it runs in a confined worker whose ids 0
 * to 65534 are those of the image, so the file system gets them unshifted.
 *
 * The worker writes to an unnamed file in its work directory; the master then gives exactly that
 * file its name. The output is reproducible: UUID and creation time are fixed. Files keep their
 * times, which Python compares with those in its compiled files. Nothing is compressed: all VMs of
 * the image read it through the host's page cache, and each would have to decompress it.
 */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/proc.h"
#include "base/str.h"
#include "image/image-confine.h"
#include "vm/home.h"

#define DISK	 "root.erofs"
#define DISK_NEW "root.erofs.new"

enum {
	SAID_MAX = 4096
};

/* ---- the worker ---- */

struct maker {
	const char *program; /* mkfs.erofs */
	int out;
};

/* Reports how it ended, with its own message. */
static int run_mkfs(const struct maker *m, int from, int to, struct err *e)
{
	/* Later times are cut to this; it becomes the file system's own time. */
	static const char *const env[] = { "SOURCE_DATE_EPOCH=4294967295", NULL };
	/* The output is descriptor 3. No extended attributes: an image's tree has none. */
	const char *const argv[] = { "mkfs.erofs",
				     "--quiet",
				     "--preserve-mtime",
				     "-x-1",
				     "-U00000000-0000-4000-8000-000000000003",
				     "/proc/self/fd/3",
				     CONFINE_INPUT,
				     NULL };
	_cleanup_buf_ struct buf said = BUF_INIT(SAID_MAX);
	_cleanup_proc_ struct proc p = PROC_INIT;
	siginfo_t info = { 0 };
	int r = proc_spawn(&(struct proc_spec){ .path = m->program,
						.argv = argv,
						.env = env,
						.in = STDIN_FILENO,
						.out = STDOUT_FILENO,
						.err = to,
						.more = &m->out,
						.n_more = 1 },
			   &p, e);

	(void)fd_close(to);
	if (r < 0)
		return r;
	(void)fd_read_all(from, &said); /* at most what a message shows; the rest may be cut off */
	(void)fd_close(from);
	r = proc_wait(&p, UINT64_MAX, &info);
	if (r == 0 && info.si_code == CLD_EXITED && info.si_status == 0)
		return 0;
	return err_set(e, -EIO, "mkfs.erofs failed: %.*s", (int)strcspn(buf_text(&said), "\n"),
		       buf_text(&said));
}

static int work(const struct confine_job *job, int sock, struct channel_msg *m, struct err *e)
{
	int from, to;

	(void)sock;
	(void)m;
	if (fd_pipe(0, &from, &to) < 0)
		return err_errno(e, "cannot create a pipe");
	return run_mkfs(job->arg, from, to, e);
}

/* ---- the master ---- */

static int await(int sock, struct err *e)
{
	struct pollfd p = { .fd = sock, .events = POLLIN };
	struct channel_msg m;
	int fd = -EBADF, r;

	r = RETRY_EINTR(poll(&p, 1, (int)(IMAGE_TIME_MAX * 1000)));
	if (r == 0)
		return err_set(e, -ETIME, "mkfs.erofs does not exit");
	r = channel_recv(sock, &m, &fd);
	(void)fd_close(fd);
	if (r < 0 || m.type != CHANNEL_RESULT)
		return err_set(e, -EIO, "the worker died");
	str_make_utf8(m.text);
	return m.num < 0 ? err_set(e, -EIO, "%s", m.text) : 0;
}

static int make_erofs(int tree, const struct id_ranges *ids, int dir, int out, struct err *e)
{
	_cleanup_proc_ struct proc p = PROC_INIT;
	_cleanup_close_ int sock = -EBADF;
	char program[PATH_MAX];
	struct maker m = { .program = program, .out = out };
	struct confine_job job = { .ids = ids, .work = dir, .input = tree, .run = work, .arg = &m };
	int r;

	if (proc_find("mkfs.erofs", program, sizeof(program)) < 0)
		return err_set(e, -ENOENT, "mkfs.erofs is needed: apt-get install erofs-utils");
	r = confine_start(&job, &p, &sock, e);
	return r < 0 ? r : await(sock, e);
}

/* Gives the file its name, unless the tree was removed meanwhile. */
static int keep(const struct image_store *s, int place, int file, struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	char path[64];
	int r = image_store_lock(s, &lock, e);

	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	if (unlinkat(place, DISK_NEW, 0) < 0 && errno != ENOENT)
		return err_errno(e, "cannot remove " DISK_NEW);
	if (fchmod(file, 0444) < 0 || fsync(file) < 0 ||
	    linkat(AT_FDCWD, path, place, DISK_NEW, AT_SYMLINK_FOLLOW) < 0 ||
	    renameat(place, DISK_NEW, place, DISK) < 0 || fsync(place) < 0)
		return err_errno(e, "cannot store the image as a disk");
	return 0;
}

static int make_in(const struct image_store *s, const struct image_work *w, int place, int tree,
		   const struct id_ranges *ids, struct err *e)
{
	_cleanup_close_ int file = openat(w->fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	int r;

	/* The worker opens it through /proc, under its own ids. */
	if (file < 0 || fchmod(file, 0666) < 0)
		return err_errno(e, "cannot create a file in '%s/tmp'", s->path);
	r = make_erofs(tree, ids, w->fd, file, e);
	return r < 0 ? r : keep(s, place, file, e);
}

static int make(int place, struct err *e)
{
	_cleanup_image_store_ struct image_store s = IMAGE_STORE_INIT;
	struct image_work w = IMAGE_WORK_INIT;
	_cleanup_close_ int tree = path_open_nofollow(place, "root", O_RDONLY | O_DIRECTORY, 0);
	struct err ignored = ERR_INIT;
	struct id_ranges ids;
	struct stat st;
	int r;

	if (tree < 0)
		return err_set(e, tree, "cannot open the tree: %s", strerror(-tree));
	if (fstat(tree, &st) < 0)
		return err_errno(e, "cannot stat the tree");
	/* The owner of the root is the image's id 0, whatever /etc/subuid says now. */
	ids = (struct id_ranges){ .uid = st.st_uid, .gid = st.st_gid };
	r = image_store_open(&s, false, e);
	if (r == 0)
		r = image_work_new(&s, &w, e);
	if (r < 0)
		return r;
	r = make_in(&s, &w, place, tree, &ids, e);
	(void)image_work_drop(&s, &w, &ids, &ignored);
	return r;
}

int machine_root(const char *tree_root, char ret[static 4096], struct err *e)
{
	_cleanup_close_ int place = -EBADF, lock = -EBADF;
	char dir[PATH_MAX];
	int r = path_parent(tree_root, dir, sizeof(dir)), n;

	if (r < 0)
		return err_set(e, r, "'%.150s' is not the path of a tree", tree_root);
	place = RETRY_EINTR(open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
	if (place < 0)
		return err_errno(e, "cannot open '%.150s'", dir);
	if (faccessat(place, DISK, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		/* One at a time: the second process finds it done. */
		r = machine_home_lock("roots", &lock, e);
		if (r == 0 && faccessat(place, DISK, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			r = make(place, e);
	}
	if (r < 0)
		return err_wrap(e, "cannot convert '%.100s' to a disk", dir);
	n = snprintf(ret, 4096, "%s/" DISK, dir);
	return n < 0 || n >= 4096 ? err_set(e, -ENAMETOOLONG, "the path is too long") : 0;
}
