/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Remembers that the files of a snapshot match meta.json, so that they are hashed once after each
 * boot of the host and not for each clone. The file `verified` in the snapshot's directory has the
 * boot's id, the checksum of meta.json and, for each file, its inode, size and times: every change
 * of a file also changes its time of status change (ctime). A process that can write `verified` can
 * write meta.json, too.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "snapshot/snapshot.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

enum {
	BOOT_ID_MAX = 64,
	STEP_MS = 20, /* twice the longest tick of a kernel */
};

static int describe_file(int dir, const char *name, struct snapshot_seen *s)
{
	_cleanup_close_ int fd = path_open_nofollow(dir, name, O_PATH, 0);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	s->changed = MAX(s->changed, clock_of(st.st_ctim));
	return buf_printf(&s->text,
			  "%s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", name,
			  (uint64_t)st.st_dev, (uint64_t)st.st_ino, (uint64_t)st.st_size,
			  clock_of(st.st_mtim), clock_of(st.st_ctim));
}

int snapshot_look(int dir, const json_t *meta, struct snapshot_seen *ret)
{
	const char *name, *sum = json_string_value(json_object_get(meta, "sum"));
	char boot[BOOT_ID_MAX];
	json_t *row;
	int r = fd_read_line(AT_FDCWD, BOOT_ID, boot, sizeof(boot));

	if (r == 0)
		r = buf_printf(&ret->text, "%s %s\n", boot, sum ? sum : "");
	json_object_foreach(json_object_get(meta, "files"), name, row)
	{
		if (r == 0)
			r = describe_file(dir, name, ret);
	}
	return r;
}

bool snapshot_was_verified(int dir, const struct snapshot_seen *s)
{
	_cleanup_buf_ struct buf text = BUF_INIT(SNAPSHOT_SEEN_MAX);
	struct err none = ERR_INIT;

	return fd_read_file(dir, SNAPSHOT_SEEN, &text, &none) == 0 && text.len == s->text.len &&
	       memcmp(text.data, s->text.data, text.len) == 0;
}

/* Times of files advance in steps: a file that changed just now could change again without a trace.
 * If nothing is written, the next start verifies again. */
void snapshot_set_verified(int dir, const struct snapshot_seen *s)
{
	_cleanup_close_ int fd = -EBADF;

	if (s->changed + STEP_MS * NSEC_PER_MSEC >= clock_wall())
		return;
	fd = RETRY_EINTR(openat(dir, SNAPSHOT_SEEN ".new",
				O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
	/* Not synced: after a crash, a part of the file does not match, and the next start
	 * verifies. */
	if (fd >= 0 && RETRY_EINTR(write(fd, s->text.data, s->text.len)) == (ssize_t)s->text.len)
		(void)renameat(dir, SNAPSHOT_SEEN ".new", dir, SNAPSHOT_SEEN);
}
