/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The warden's part in the records of commands: it makes the files, hands them to the keeper and
 * removes those that the keeper gives up. It never reads one. However the keeper behaves, there are
 * no more than RECORDS_MAX and a few spare ones, each below the limit that isolate.c sets.
 */
#include <fcntl.h>
#include <string.h>

#include "fault.h"
#include "log.h"
#include "record.h"
#include "warden.h"

enum {
	FILES_MAX = RECORDS_MAX + 2 * NOTE_FILES_MAX,
};

static int make_file(struct warden *w)
{
	char name[RECORD_FILE_NAME];
	int fd;

	if (w->records >= FILES_MAX || w->last_record >= RECORD_NUMBER_MAX)
		return -EMFILE;
	record_file_name(w->last_record + 1, name);
	fd = RETRY_EINTR(
		openat(w->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (fd < 0)
		return -errno;
	w->last_record++;
	w->records++;
	(void)FAULT("record-made");
	return fd;
}

void warden_give_records(struct warden *w, uint64_t wanted)
{
	const uint64_t first = w->last_record + 1;
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

void warden_drop_record(struct warden *w, uint64_t number)
{
	char name[RECORD_FILE_NAME];

	if (number < 1 || number > w->last_record)
		return;
	record_file_name(number, name);
	if (unlinkat(w->dir, name, 0) == 0)
		w->records--;
	(void)FAULT("record-dropped");
}
