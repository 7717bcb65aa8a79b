/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden's part in a snapshot: it creates the directory, copies the disk and adds the sandbox's
 * files. A child without privileges saves the VM's state, which the hypervisor writes into a pipe,
 * and its memory (ram-save.h). The guest sleeps meanwhile, so its memory and disk do not change.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/oci.h"
#include "snapshot/disk-copy.h"
#include "snapshot/snapshot-room.h"
#include "warden/warden.h"

#define SAVED_COMMANDS "box/commands"
#define SAVED_RULES    "box/egress"

enum {
	SAVING_S = 600, /* how long a deadline waits for a snapshot */
};

/* Files that a sandbox started from the snapshot needs; the others belong to this run. */
static const char *const box_files[] = { "spec.json", "policy.json", "api.json", STATE_WIDENED };

/* Opens a file of the snapshot for the keeper, which reads it. -ENOENT is no error. */
static int open_saved(const struct warden *w, const char *name, int *ret, struct err *e)
{
	*ret = path_open_nofollow(w->origin.from.dir, name, O_RDONLY, 0);
	if (*ret < 0 && *ret != -ENOENT)
		return err_set(e, *ret, "cannot open '%s' of the snapshot: %s", name,
			       strerror(-*ret));
	return 0;
}

int warden_take_snapshots(struct warden *w, struct err *e)
{
	if (!engine_has(w->engine, ENGINE_SNAPSHOTS))
		return 0;
	warden_take_records(w);
	w->saving.dir = open(w->spec.machine.snapshots, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->saving.dir < 0)
		return err_errno(e, "cannot open '%s'", w->spec.machine.snapshots);
	if (fd_read_line(w->dir, STATE_SUSPENDED, w->saving.suspended,
			 sizeof(w->saving.suspended)) < 0 ||
	    !snapshot_key_valid(w->saving.suspended))
		w->saving.suspended[0] = '\0';
	if (w->spec.machine.snapshot[0] &&
	    snapshot_open(w->spec.machine.snapshot, &w->origin.from, e) < 0)
		return e->num;
	if (w->origin.from.kind == SNAPSHOT_SAVED &&
	    (open_saved(w, SAVED_COMMANDS, &w->origin.commands, e) < 0 ||
	     open_saved(w, SAVED_RULES, &w->origin.rules, e) < 0))
		return e->num;
	return FAULT_ERR("warden-snapshot", e);
}

static int make_file(int dir, const char *name, int *ret, struct err *e)
{
	int fd = RETRY_EINTR(
		openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));

	if (fd < 0)
		return err_errno(e, "cannot make '%s' of the snapshot", name);
	*ret = fd;
	return 0;
}

/* *ret: the pipe for the VM's state. */
static int start_saver(struct warden *w, int *ret, struct err *e)
{
	_cleanup_close_ int state = -EBADF, memory = -EBADF;
	const struct ram_source from = {
		.pid = w->box.init.pid,
		.address = w->box.ram,
		.size = w->box.ram_size,
		.base = w->origin.memory,
		.id = w->ids + OCI_KEEPER_OFFSET,
	};

	if (make_file(w->saving.made.dir, "state", &state, e) < 0 ||
	    make_file(w->saving.made.dir, "memory", &memory, e) < 0)
		return e->num;
	return ram_save_start(&from, state, memory, &w->saving.ram, ret, e);
}

/* Creates the `n` files that the keeper and the VM fill. */
static int begin(struct warden *w, int files[static 3], size_t *n, struct err *e)
{
	if (w->life.paused) /* a stopped VM would never write its state */
		return err_set(e, -EBUSY, "the sandbox has been paused");
	/* Clients check the room too, but the warden does not trust the keeper that passes
	 * requests on. */
	if (snapshot_room(w->saving.dir, w->spec.snapshot_space, spec_snapshot_max(&w->spec), e) <
		    0 ||
	    snapshot_begin_at(w->saving.dir, &w->saving.made, e) < 0)
		return e->num;
	w->saving.active = true;
	w->saving.until = clock_mono() + (SAVING_S + spec_transfer_s(&w->spec)) * NSEC_PER_SEC;
	if (FAULT_ERR("save-begun", e) < 0 || start_saver(w, &files[0], e) < 0)
		return e->num;
	if (mkdirat(w->saving.made.dir, "box", 0700) < 0)
		return err_errno(e, "cannot make a directory of the snapshot");
	if (make_file(w->saving.made.dir, SAVED_COMMANDS, &files[1], e) < 0)
		return e->num;
	*n = 2;
	/* A sandbox started from a kept snapshot follows its own policy's rules. */
	if (w->saving.what_for == WIRE_SAVE_KEEP)
		return 0;
	return make_file(w->saving.made.dir, SAVED_RULES, &files[(*n)++], e);
}

void warden_save_begin(struct warden *w, enum wire_save what_for)
{
	int files[3] = { -EBADF, -EBADF, -EBADF };
	struct err e = ERR_INIT;
	size_t n = 0;

	w->saving.what_for = what_for;
	w->budgets.is_shared = true;
	if (begin(w, files, &n, &e) < 0) {
		log_error("no snapshot: %s", e.msg);
		warden_save_drop(w);
		n = 0;
	}
	(void)note_send(w->note, NOTE_SAVE, 0, files, n);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++)
		(void)fd_close(files[i]);
}

/* Tried once for each deadline: if it fails, the sandbox is paused in memory. */
bool warden_suspend(struct warden *w)
{
	if (!engine_has(w->engine, ENGINE_SNAPSHOTS) || w->saving.tried == w->life.deadline)
		return false;
	w->saving.tried = w->life.deadline;
	return note_send(w->note, NOTE_SUSPEND, 0, NULL, 0) == 0;
}

void warden_save_drop(struct warden *w)
{
	if (w->saving.active) {
		ram_save_done(&w->saving.ram);
		snapshot_drop(&w->saving.made);
	}
	w->saving.active = false;
}

static int copy_box(const struct warden *w, struct err *e)
{
	_cleanup_close_ int box = -EBADF;

	box = openat(w->saving.made.dir, "box", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (box < 0)
		return err_errno(e, "cannot open a directory of the snapshot");
	for (size_t i = 0; i < ARRAY_SIZE(box_files); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(SPEC_FILE_MAX);
		const char *name = box_files[i];
		int r;

		/* A sandbox started from a kept snapshot follows its own policy's rules. */
		if (w->saving.what_for == WIRE_SAVE_KEEP && str_eq(name, STATE_WIDENED))
			continue;
		r = fd_read_file(w->dir, name, &b, e);
		if (r == 0)
			r = fd_replace_file(box, name, 0600, b.data, b.len, e);
		if (r < 0 && r != -ENOENT)
			return r;
	}
	return tapping_save(w, box, e);
}

static int copy_rest(struct warden *w, struct err *e)
{
	_cleanup_close_ int disk = -EBADF;

	if (make_file(w->saving.made.dir, "disk", &disk, e) < 0 ||
	    disk_copy(w->disk, disk, e) < 0 || FAULT_ERR("save-disk", e) < 0)
		return e->num;
	return copy_box(w, e);
}

static json_t *describe(const struct warden *w)
{
	return JSON_OBJECT({ "sandbox", json_string(w->spec.id) },
			   { "suspended", json_boolean(w->saving.what_for == WIRE_SAVE_SUSPEND) },
			   { "fork", json_boolean(w->saving.what_for == WIRE_SAVE_FORK) },
			   { "agent", json_string(w->spec.agent) },
			   { "image", json_string(w->spec.image) },
			   { "policy", json_string(w->spec.policy) });
}

/*
 * Suspend writes the snapshot's name first. If the warden is killed in between, the name leads
 * nowhere and the sandbox is dead. In the other order there would be a snapshot without a sandbox,
 * which would come back as a sandbox after a restart.
 */
static int put_in_place(struct warden *w, const char *name, const char *memory, const json_t *info,
			struct err *e)
{
	const bool suspend = w->saving.what_for == WIRE_SAVE_SUSPEND;
	int r = 0;

	if (suspend) {
		warden_forget_suspended(w);
		if (w->saving.suspended[0])
			return err_set(e, -EBUSY,
				       "snapshot '%s', which it was resumed from, is in use",
				       w->saving.suspended);
		r = state_write(w->dir, STATE_SUSPENDED, name, strlen(name), e);
		(void)FAULT("suspend-named");
	}
	if (r == 0)
		r = snapshot_finish(&w->saving.made, SNAPSHOT_SAVED, name, memory, info, e);
	if (r < 0 && suspend)
		(void)unlinkat(w->dir, STATE_SUSPENDED, 0);
	return r;
}

/* Removes the snapshot before its name, for the same reason. */
void warden_forget_suspended(struct warden *w)
{
	int r;

	if (!w->saving.suspended[0])
		return;
	r = snapshot_remove_at(w->saving.dir, w->saving.suspended);
	if (r < 0 && r != -ENOENT) {
		log_error("snapshot '%s' of the suspended sandbox cannot be removed: %s",
			  w->saving.suspended, strerror(-r));
		return;
	}
	(void)FAULT("resume-removed");
	(void)unlinkat(w->dir, STATE_SUSPENDED, 0);
	w->saving.suspended[0] = '\0';
}

/* Saves the rest of the deadline and ttl for the resumed sandbox. */
static int write_rest(const struct warden *w, struct err *e)
{
	struct spec next = w->spec;

	lifetime_rest(&w->life, &next);
	return spec_store(w->dir, &next, e);
}

static int finish(struct warden *w, uint64_t *ret, struct err *e)
{
	_cleanup_json_ json_t *info = describe(w);
	char name[SAVE_NAME], memory[PAGES_HEX];

	/* 0 means no snapshot, so the number is made odd. */
	if (!info || getrandom(ret, sizeof(*ret), 0) != (ssize_t)sizeof(*ret))
		return err_oom(e);
	*ret |= 1;
	save_name(*ret, name);
	if ((w->saving.what_for == WIRE_SAVE_SUSPEND && write_rest(w, e) < 0) ||
	    ram_save_result(&w->saving.ram, memory, e) < 0 || FAULT_ERR("save-memory", e) < 0 ||
	    copy_rest(w, e) < 0 || put_in_place(w, name, memory, info, e) < 0)
		return e->num;
	(void)FAULT("save-finished");
	return 0;
}

bool warden_saved(struct warden *w, bool failed)
{
	struct err e = ERR_INIT;
	uint64_t number = 0;
	int r;

	r = failed ? err_set(&e, -EIO, "the VM's state could not be written")
		   : finish(w, &number, &e);
	if (r < 0) {
		log_error("no snapshot: %s", e.msg);
		number = 0;
	}
	warden_save_drop(w); /* releases a complete snapshot too */
	(void)note_send(w->note, NOTE_SAVE_END, number, NULL, 0);
	return r == 0 && w->saving.what_for == WIRE_SAVE_SUSPEND;
}
