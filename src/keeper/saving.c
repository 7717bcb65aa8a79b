/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden's part in a snapshot: the directory, the disk, and the files of the sandbox that
 * belong to it. QEMU writes the state into a file that the keeper got from here; nobody reads it
 * but to hash it. The guest sleeps meanwhile, and its disk does not change.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "disk-copy.h"
#include "fault.h"
#include "fd.h"
#include "log.h"
#include "str.h"
#include "warden.h"

/* What a sandbox that is made of the snapshot begins with: the rest is of this run. */
static const char *const kept[] = { "spec.json", "policy.json", "api.json" };

static int make_file(int dir, const char *name, int *ret, struct err *e)
{
	int fd = RETRY_EINTR(
		openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));

	if (fd < 0)
		return err_errno(e, "cannot make '%s' of the snapshot", name);
	*ret = fd;
	return 0;
}

static int begin(struct warden *w, int *ret_state, struct err *e)
{
	int r = w->saving ? err_set(e, -EBUSY, "a snapshot is being made") : 0;

	if (r == 0)
		r = snapshot_begin_at(w->snapshots, &w->snapshot, e);
	if (r < 0)
		return r;
	w->saving = true;
	r = FAULT_ERR("save-begun", e);
	return r < 0 ? r : make_file(w->snapshot.dir, "state", ret_state, e);
}

void warden_save_begin(struct warden *w, bool suspend)
{
	_cleanup_close_ int state = -EBADF;
	struct err e = ERR_INIT;

	w->suspend = suspend;
	if (begin(w, &state, &e) < 0) {
		log_error("no snapshot: %s", e.msg);
		warden_save_drop(w);
		(void)note_send(w->note, NOTE_SAVE, 0, NULL, 0);
		return;
	}
	(void)note_send(w->note, NOTE_SAVE, 0, &state, 1);
}

void warden_save_drop(struct warden *w)
{
	if (w->saving)
		snapshot_drop(&w->snapshot);
	w->saving = false;
}

static int copy_box(const struct warden *w, struct err *e)
{
	_cleanup_close_ int box = -EBADF;

	if (mkdirat(w->snapshot.dir, "box", 0700) < 0)
		return err_errno(e, "cannot make a directory of the snapshot");
	box = openat(w->snapshot.dir, "box", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (box < 0)
		return err_errno(e, "cannot open a directory of the snapshot");
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(SPEC_FILE_MAX);
		int r = fd_read_file(w->dir, kept[i], &b, e);

		if (r == 0)
			r = fd_replace_file(box, kept[i], 0600, b.data, b.len, e);
		if (r < 0 && r != -ENOENT)
			return r;
	}
	return 0;
}

static int copy_rest(struct warden *w, struct err *e)
{
	_cleanup_close_ int disk = -EBADF;
	int r = make_file(w->snapshot.dir, "disk", &disk, e);

	if (r == 0)
		r = disk_copy(w->disk, disk, e);
	if (r == 0)
		r = FAULT_ERR("save-disk", e);
	return r < 0 ? r : copy_box(w, e);
}

static json_t *describe(const struct warden *w)
{
	return JSON_OBJECT(
		{ "sandbox", json_string(w->spec.id) }, { "suspended", json_boolean(w->suspend) },
		{ "agent", json_string(w->spec.agent) }, { "image", json_string(w->spec.image) },
		{ "policy", json_string(w->spec.policy) });
}

static int finish(struct warden *w, uint64_t *ret, struct err *e)
{
	_cleanup_json_ json_t *info = describe(w);
	char name[SAVE_NAME];
	int r;

	/* 0 means that there is none. */
	if (!info || getrandom(ret, sizeof(*ret), 0) != (ssize_t)sizeof(*ret))
		return err_oom(e);
	*ret |= 1;
	save_name(*ret, name);
	r = copy_rest(w, e);
	if (r == 0)
		r = snapshot_finish(&w->snapshot, SNAPSHOT_SAVED, name, info, e);
	if (r == 0 && w->suspend)
		r = state_write(w->dir, STATE_SUSPENDED, name, strlen(name), e);
	return r < 0 ? r : FAULT_ERR("save-finished", e);
}

bool warden_saved(struct warden *w, bool failed)
{
	struct err e = ERR_INIT;
	uint64_t number = 0;
	int r;

	if (!w->saving)
		return false;
	r = failed ? err_set(&e, -EIO, "QEMU could not write its state") : finish(w, &number, &e);
	if (r < 0) {
		log_error("no snapshot: %s", e.msg);
		number = 0;
	}
	warden_save_drop(w); /* lets go of one that is whole */
	(void)note_send(w->note, NOTE_SAVE_END, number, NULL, 0);
	return r == 0 && w->suspend;
}
