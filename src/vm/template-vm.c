/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a template; if there is none, creates one under the makers' lock. */
#include "vm/template-vm.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "base/log.h"
#include "base/str.h"
#include "engine/engine.h"
#include "snapshot/disk-copy.h"
#include "snapshot/ram-save.h"
#include "vm/host-config.h"
#include "vm/machine.h"

#define LOCK ".make" /* not a valid snapshot name */

enum {
	FIND_TRIES = 3,
};

struct want {
	const struct spec *spec;
	struct state_root run;
	char key[SNAPSHOT_KEY + 1];
	char path[SNAPSHOT_PATH_MAX];
	json_t *info;
};

static void want_done(struct want *w)
{
	state_root_close(&w->run);
	json_decref(TAKE_PTR(w->info));
}

/* 1: a valid one exists. 0: there is none. */
static int find(const struct want *w, struct err *e)
{
	int r = -EBUSY;

	for (int i = 0; r == -EBUSY && i < FIND_TRIES; i++) {
		_cleanup_snapshot_ struct snapshot s = SNAPSHOT_INIT;

		*e = (struct err)ERR_INIT;
		r = snapshot_open(w->path, &s, e);
	}
	if (r == 0)
		return 1;
	if (r == -EBADMSG) {
		*e = (struct err)ERR_INIT;
		r = snapshot_remove(w->key, e);
	}
	if (r == 0 || r == -ENOENT) {
		*e = (struct err)ERR_INIT;
		return 0;
	}
	return r;
}

static int new_file(const struct snapshot_new *n, const char *name, int *ret_fd, struct err *e)
{
	int fd = RETRY_EINTR(openat(n->dir, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));

	if (fd < 0)
		return err_errno(e, "cannot create '%s' of a template", name);
	*ret_fd = fd;
	return 0;
}

/* A copy of the disk as it stopped: the VM has mounted it and caches its contents. */
static int write_disk(const struct snapshot_new *n, int disk, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	int r = new_file(n, "disk", &fd, e);

	return r < 0 ? r : disk_copy(disk, fd, e);
}

static int make(const struct want *w, struct err *e)
{
	_cleanup_snapshot_new_ struct snapshot_new n = SNAPSHOT_NEW_INIT;
	_cleanup_close_ int memory = -EBADF, state = -EBADF, disk = -EBADF;
	char digest[PAGES_HEX];
	int r = host_snapshot_room(spec_snapshot_max(w->spec), e);

	if (r == 0)
		r = snapshot_begin(&n, e);
	if (r == 0)
		r = new_file(&n, "state", &state, e);
	if (r == 0)
		r = new_file(&n, "memory", &memory, e);
	if (r == 0)
		r = disk_new_from(n.home, w->spec->machine.blank, &disk, e);
	if (r == 0)
		r = template_boot(w->spec, &w->run, disk, memory, state, digest, e);
	if (r == 0)
		r = write_disk(&n, disk, e);
	if (r == 0)
		r = snapshot_finish(&n, SNAPSHOT_TEMPLATE, w->key, digest, w->info, e);
	return r;
}

static int lock_makers(int *ret_fd, struct err *e)
{
	_cleanup_close_ int home = -EBADF, fd = -EBADF;
	int r = snapshot_home(&home, e);

	if (r < 0)
		return r;
	fd = RETRY_EINTR(openat(home, LOCK, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0 || RETRY_EINTR(flock(fd, LOCK_EX)) < 0)
		return err_errno(e, "cannot lock the creation of templates");
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* A process that waited for another finds the template that the other created. */
static int make_once(const struct want *w, void (*say)(const char *text, void *arg), void *arg,
		     struct err *e)
{
	_cleanup_close_ int lock = -EBADF;
	char text[256];
	int r = lock_makers(&lock, e);

	if (r == 0)
		r = find(w, e);
	if (r != 0)
		return r < 0 ? r : 0;
	(void)snprintf(text, sizeof(text),
		       "preparing a template of image '%.100s' for microVMs, once", w->spec->image);
	if (say)
		say(text, arg);
	r = make(w, e);
	/* On a busy host, one emulated kernel of some hundred hangs while it boots. */
	if (r == -ETIME && str_eq(w->spec->machine.accel, "tcg")) {
		log_warning("%s; trying once more", e->msg);
		*e = (struct err)ERR_INIT;
		r = make(w, e);
	}
	if (r < 0)
		return err_wrap(e, "cannot create a template of image '%.60s'", w->spec->image);
	r = find(w, e);
	return r == 0 ? err_set(e, -ENOENT, "the new template has disappeared") : MIN(r, 0);
}

int template_find_or_make(const struct spec *spec, char ret_path[static SNAPSHOT_PATH_MAX],
			  void (*say)(const char *text, void *arg), void *arg, struct err *e)
{
	_cleanup_(want_done) struct want w = { .spec = spec, .run = STATE_ROOT_INIT };
	int r = state_root_open(&w.run, e);

	if (r == 0)
		r = template_key(spec, w.key, &w.info, e);
	if (r == 0)
		r = snapshot_path(w.key, w.path, e);
	if (r == 0)
		r = find(&w, e);
	if (r == 0 && (r = ram_save_allowed(e)) == 0)
		r = make_once(&w, say, arg, e);
	if (r < 0)
		return r;
	(void)snprintf(ret_path, SNAPSHOT_PATH_MAX, "%s", w.path);
	return 0;
}
