/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the files of a log, and scans the chains in them. */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "audit/audit-inner.h"
#include "base/path.h"
#include "base/str.h"

enum {
	FILES_MAX = 4 * 1024 * 1024,
	NUMBER_DIGITS = 8,
};

void audit_file_name(const char *id, uint32_t number, char out[static AUDIT_NAME_MAX])
{
	(void)snprintf(out, AUDIT_NAME_MAX, "%s-%08u.log", id[0] ? id : "host", number);
}

bool audit_file_parse(const char *name, struct audit_file *ret)
{
	const char *dash = strchr(name, '-');
	size_t n = dash ? (size_t)(dash - name) : 0;
	uint64_t number = 0;

	if (n == 0 || n > AUDIT_ID_MAX || strlen(dash + 1) != NUMBER_DIGITS + STRLEN(".log") ||
	    !str_eq(dash + 1 + NUMBER_DIGITS, ".log"))
		return false;
	for (size_t i = 1; i <= NUMBER_DIGITS; i++) {
		if (!ascii_is_digit(dash[i]))
			return false;
		number = number * 10 + (uint64_t)(dash[i] - '0');
	}
	*ret = (struct audit_file){ .number = (uint32_t)number };
	(void)snprintf(ret->name, sizeof(ret->name), "%s", name);
	memcpy(ret->id, name, n);
	if (str_eq(ret->id, "host"))
		ret->id[0] = '\0';
	return !ret->id[0] || audit_id_valid(ret->id);
}

static int by_chain(const void *a, const void *b)
{
	const struct audit_file *x = a, *y = b;
	int order = strcmp(x->id, y->id);

	return order ? order : x->number == y->number ? 0 : x->number < y->number ? -1 : 1;
}

static int push(struct audit_set *s, size_t *cap, const struct audit_file *f, struct err *e)
{
	if (s->n == *cap) {
		size_t more = *cap ? 2 * *cap : 64;
		struct audit_file *p =
			more > FILES_MAX ? NULL : realloc(s->files, more * sizeof(*p));

		if (!p)
			return err_oom(e);
		s->files = p;
		*cap = more;
	}
	s->files[s->n++] = *f;
	return 0;
}

/* Ignores files with other names; rejects anything that is not a regular file. */
static int list_one(struct audit_set *s, size_t *cap, int dir, const char *name, bool host,
		    struct err *e)
{
	struct audit_file f;
	struct stat st;

	if (!audit_file_parse(name, &f) || host != !f.id[0])
		return 0;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : err_errno(e, "cannot stat '%s'", name);
	if (!S_ISREG(st.st_mode))
		return err_set(e, -EINVAL, "'%s' in the audit log is not a regular file", name);
	f.size = (uint64_t)st.st_size;
	return push(s, cap, &f, e);
}

DEFINE_CLEANUP(DIR *, cleanup_dir, closedir);

static int list_dir(struct audit_set *s, size_t *cap, int dir, bool host, struct err *e)
{
	_cleanup_close_ int fd = path_open_nofollow(dir, ".", O_RDONLY | O_DIRECTORY, 0);
	_cleanup_(cleanup_dir) DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;
	int r = 0;

	if (!d)
		return err_set(e, fd < 0 ? fd : -errno, "cannot list the audit log: %s",
			       strerror(fd < 0 ? -fd : errno));
	(void)TAKE_FD(fd);
	for (errno = 0; r == 0 && (entry = readdir(d)); errno = 0)
		r = list_one(s, cap, dir, entry->d_name, host, e);
	if (r == 0 && errno)
		r = err_errno(e, "cannot list the audit log");
	return r;
}

int audit_set_list(const struct audit_log *l, struct audit_set *ret, struct err *e)
{
	_cleanup_audit_set_ struct audit_set s = AUDIT_SET_INIT;
	size_t cap = 0;
	int r = list_dir(&s, &cap, l->dir, true, e);

	if (r == 0)
		r = list_dir(&s, &cap, l->sandboxes, false, e);
	if (r == 0)
		r = audit_public_key(l, s.key, e);
	if (r < 0 && r != -ENOENT)
		return r;
	s.has_key = r == 0;
	if (s.n > 0)
		qsort(s.files, s.n, sizeof(*s.files), by_chain);
	s.dir = l->dir;
	s.sandboxes = l->sandboxes;
	*ret = s;
	s = (struct audit_set)AUDIT_SET_INIT;
	return 0;
}

int audit_set_open(const struct audit_log *l, struct audit_set *ret, struct err *e)
{
	int r;

	if (l->off)
		return err_set(e, -ENOENT, "the audit log is off: HUTCH_AUDIT=off");
	r = audit_lock(l, LOCK_SH, e);
	if (r < 0)
		return r;
	r = audit_set_list(l, ret, e);
	audit_unlock(l);
	return r;
}

void audit_set_done(struct audit_set *s)
{
	free(s->files);
	s->files = NULL;
	s->stream = fd_close(s->stream);
}

/* ---- scanning ---- */

void audit_scan_init(struct audit_scan *s, const struct audit_set *set, size_t first, size_t until)
{
	/* Ignores an empty last file: it was created for rotation and not used. */
	while (until > first + 1 && set->files[until - 1].size == 0)
		until--;
	s->set = set;
	s->file = first;
	s->until = until;
	s->fd = -EBADF;
	s->own_fd = false;
	s->offset = s->at = 0;
	s->have = 0;
	s->head = (struct audit_head){ 0 };
}

void audit_scan_done(struct audit_scan *s)
{
	if (s->own_fd)
		s->fd = fd_close(s->fd);
	s->own_fd = false;
	s->fd = -EBADF;
}

static int open_file(struct audit_scan *s)
{
	const struct audit_file *f = &s->set->files[s->file];

	if (s->set->stream >= 0) {
		s->fd = s->set->stream;
		return 0;
	}
	s->fd = path_open_nofollow(f->id[0] ? s->set->sandboxes : s->set->dir, f->name,
				   O_RDONLY | O_NONBLOCK, 0);
	s->own_fd = s->fd >= 0;
	return s->fd < 0 ? s->fd : 0;
}

/* Makes s->data start at s->offset and hold a whole record, or the rest of the file. */
static int fill(struct audit_scan *s)
{
	const struct audit_file *f = &s->set->files[s->file];
	size_t skip = (size_t)(s->offset - s->at);

	int r = s->fd < 0 ? open_file(s) : 0;

	if (r < 0)
		return r;
	if (s->have - skip >= AUDIT_RECORD_MAX || s->at + s->have >= f->size)
		return 0;
	memmove(s->data, s->data + skip, s->have - skip);
	s->have -= skip;
	s->at = s->offset;
	while (s->have < sizeof(s->data) && s->at + s->have < f->size) {
		size_t want = (size_t)MIN((uint64_t)(sizeof(s->data) - s->have),
					  f->size - s->at - s->have);
		ssize_t k = RETRY_EINTR(
			pread(s->fd, s->data + s->have, want, (off_t)(f->base + s->at + s->have)));

		if (k <= 0) /* the file has become shorter: the rest is missing */
			return k < 0 ? -errno : 0;
		s->have += (size_t)k;
	}
	return 0;
}

int audit_scan_adopt(struct audit_scan *s)
{
	int r = s->file < s->until ? fill(s) : 0;

	if (r == 0)
		(void)audit_record_before(s->data, s->have, &s->head);
	return r;
}

/* Moves to the next file at the end of one. */
static int next_file(struct audit_scan *s, const char **ret_why)
{
	const struct audit_file *f = &s->set->files[s->file];

	*ret_why = "a file is missing before this one";
	audit_scan_done(s);
	s->file++;
	s->offset = s->at = 0;
	s->have = 0;
	return s->file < s->until && f[1].number != f[0].number + 1 ? -EBADMSG : 0;
}

int audit_scan_next(struct audit_scan *s, struct audit_record *ret, uint64_t *ret_torn,
		    const char **ret_why)
{
	*ret_torn = 0;
	while (s->file < s->until) {
		size_t left;
		ssize_t k;
		int r = fill(s);

		if (r < 0)
			return r;
		left = s->have - (size_t)(s->offset - s->at);
		if (left > 0) {
			k = audit_record_read(&s->head, s->data + (s->offset - s->at), left, ret,
					      ret_why);
			if (k != 0) {
				s->offset += k > 0 ? (size_t)k : 0;
				return k > 0 ? 1 : (int)k;
			}
			*ret_torn = left;
			*ret_why = "the file ends in the middle of it";
			return s->file + 1 == s->until ? 0 : -EBADMSG;
		}
		/* The last file stays current, for messages. */
		if (s->file + 1 == s->until)
			return 0;
		r = next_file(s, ret_why);
		if (r < 0)
			return r;
	}
	return 0;
}
