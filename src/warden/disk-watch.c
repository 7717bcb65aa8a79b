/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notices that writes to a container's disk were lost. The disk is a file of the host behind a loop
 * device. If its room is not reserved (disk_overcommit) and the host's disk is full, the kernel's
 * write-back of that file fails. A program notices this only if it syncs its file, so the warden
 * reads the file system's own counters: from time to time if the disk is overcommitted, and once at
 * the end of every sandbox. The kernel has no event for a failed write of file contents.
 *
 * The sandbox continues: other files of it may be whole, and its owner may want them. `hutch ps`
 * and `hutch inspect` name the loss, and the audit log records it. On a full host, life.json and
 * the record may fail, too, so the warden tries again.
 */
#include <string.h>

#include "base/log.h"
#include "engine/scratch.h"
#include "warden/warden.h"

bool disk_watch_begin(struct warden *w)
{
	if (!engine_has(w->engine, ENGINE_SCRATCH) || w->spec.in_memory || w->rootless)
		return false;
	w->disk_watch.stats = scratch_disk_stats();
	if (w->disk_watch.stats < 0)
		log_warning("lost writes to the sandbox's disk will not be noticed: %s",
			    strerror(-w->disk_watch.stats));
	return w->disk_watch.stats >= 0 && w->spec.overcommit;
}

bool disk_watch_look(struct warden *w)
{
	struct disk_watch *d = &w->disk_watch;
	struct err e = ERR_INIT;

	if (!d->lost && d->stats >= 0 && scratch_disk_errors(d->stats) > 0) {
		d->lost = true;
		log_error("%s", LIFE_LOST_TEXT);
	}
	if (d->lost && !d->noted) {
		d->noted = lifetime_lost(w, &e) == 0 && witness_lost(w, &e) == 0;
		if (!d->noted)
			log_error("%s", e.msg);
	}
	return d->noted;
}
