/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden's part in the records of commands: it creates the files, passes them to the keeper and
 * removes those that the keeper drops. It never reads one. Whatever the keeper does, there are at
 * most RECORDS_MAX files and a few spare ones, each below the limit that keeper/confine.c sets.
 *
 * The keeper does not know the records of earlier runs, before a suspend. The warden keeps up to
 * half of RECORDS_MAX of them, together no larger than `limits.output`.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/str.h"
#include "state/record.h"
#include "warden/warden.h"

enum {
	FILES_MAX = RECORDS_MAX + 2 * NOTE_FILES_MAX,
};

static int make_file(struct warden *w)
{
	char name[RECORD_FILE_NAME];
	int fd;

	if (w->records.n >= FILES_MAX || w->records.last >= RECORD_NUMBER_MAX)
		return -EMFILE;
	record_file_name(w->records.last + 1, name);
	fd = RETRY_EINTR(
		openat(w->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0)
		return -errno;
	w->records.last++;
	w->records.n++;
	(void)FAULT("record-made");
	return fd;
}

void warden_give_records(struct warden *w, uint64_t wanted)
{
	const uint64_t first = w->records.last + 1;
	int files[NOTE_FILES_MAX], r = 0;
	size_t n = 0;

	while (n < MIN(wanted, (uint64_t)NOTE_FILES_MAX) && (r = make_file(w)) >= 0)
		files[n++] = r;
	if (n > 0)
		r = note_send(w->note, NOTE_RECORDS, first, files, n);
	else
		r = note_send(w->note, NOTE_NO_RECORDS, (uint64_t)-r, NULL, 0);
	while (n > 0)
		(void)fd_close(files[--n]);
	if (r < 0)
		log_error("cannot give records to the keeper: %s", strerror(-r));
}

struct old {
	uint64_t number, size;
};

static int newest_first(const void *a, const void *b)
{
	const struct old *x = a, *y = b;

	return (x->number < y->number) - (x->number > y->number);
}

/* Lists up to FILES_MAX records. */
static size_t list_records(const struct warden *w, struct old *v)
{
	DIR *d = fd_list(w->dir);
	struct dirent *entry;
	size_t n = 0;

	while (d && n < FILES_MAX && (entry = readdir(d))) {
		const char *number = entry->d_name + STRLEN("cmd-");
		struct stat st;

		if (!str_has_prefix(entry->d_name, "cmd-") ||
		    str_to_u64(number, strlen(number), RECORD_NUMBER_MAX, &v[n].number) < 0 ||
		    fstatat(w->dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		v[n++].size = (uint64_t)st.st_size;
	}
	if (d)
		(void)closedir(d);
	return n;
}

void warden_take_records(struct warden *w)
{
	_cleanup_free_ struct old *v = calloc(FILES_MAX, sizeof(*v));
	size_t n = v ? list_records(w, v) : 0;
	bool unused = true;
	uint64_t bytes = 0;

	if (n == 0)
		return;
	qsort(v, n, sizeof(*v), newest_first);
	w->records.last = v[0].number;
	w->records.n = n;
	for (size_t i = 0; i < n; i++) {
		bytes += v[i].size;
		/* Empty files were never used. */
		if (v[i].size == 0 || i >= RECORDS_MAX / 2 || bytes > w->spec.limits.output)
			warden_drop_record(w, v[i].number);
		/* Reuse the numbers of the newest spare files: a gap means that commands were
		 * dropped. */
		unused = unused && v[i].size == 0;
		if (unused)
			w->records.last = v[i].number - 1;
	}
}

void warden_drop_record(struct warden *w, uint64_t number)
{
	char name[RECORD_FILE_NAME];

	if (number < 1 || number > w->records.last)
		return;
	record_file_name(number, name);
	if (unlinkat(w->dir, name, 0) == 0)
		w->records.n--;
	(void)FAULT("record-dropped");
}
