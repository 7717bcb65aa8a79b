/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of the log: its path, its owner and mode, its lock. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "audit/audit-inner.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/str.h"

bool audit_id_valid(const char *id)
{
	size_t n = strlen(id);

	for (size_t i = 0; i < n; i++)
		if (!ascii_is_lower(id[i]) && !ascii_is_digit(id[i]))
			return false;
	return n > 0 && n <= AUDIT_ID_MAX && !str_eq(id, "host");
}

static int place(char *out, size_t n, struct err *e)
{
	const char *own = getenv("HUTCH_AUDIT_DIR"), *xdg = getenv("XDG_STATE_HOME");
	const char *home = getenv("HOME");
	int k;

	if (own && own[0])
		k = snprintf(out, n, "%s", own);
	else if (geteuid() == 0)
		k = snprintf(out, n, "/var/lib/hutch/audit");
	else if (xdg && xdg[0] == '/')
		k = snprintf(out, n, "%s/hutch/audit", xdg);
	else if (home && home[0] == '/')
		k = snprintf(out, n, "%s/.local/state/hutch/audit", home);
	else
		return err_set(e, -ENOENT,
			       "no directory for the audit log: set HOME or HUTCH_AUDIT_DIR");
	if (out[0] != '/')
		return err_set(e, -EINVAL, "HUTCH_AUDIT_DIR is not an absolute path: '%.80s'", own);
	if (k < 0 || (size_t)k >= n)
		return err_set(e, -ENAMETOOLONG, "the path of the audit log is too long");
	return 0;
}

static int read_max(uint64_t *ret, struct err *e)
{
	const char *s = getenv("HUTCH_AUDIT_MAX");

	*ret = AUDIT_DIR_MAX;
	if (s && s[0] && str_to_u64(s, strlen(s), UINT64_MAX / 2, ret) < 0)
		return err_set(e, -EINVAL, "HUTCH_AUDIT_MAX is not a number of bytes: '%.40s'", s);
	return 0;
}

/* Converts "3f1c..-.." to 16 bytes. */
static int read_boot(uint8_t out[static AUDIT_BOOT], struct err *e)
{
	char text[64];
	size_t n = 0;
	int r = fd_read_line(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof(text));

	for (const char *p = text; r == 0 && *p; p++) {
		int digit = ascii_is_digit(*p)	     ? *p - '0'
			    : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10
						     : -1;

		if (digit < 0)
			continue;
		if (n < 2 * (size_t)AUDIT_BOOT)
			out[n / 2] = (uint8_t)(out[n / 2] << 4 | digit);
		n++;
	}
	if (r == 0 && n != 2 * (size_t)AUDIT_BOOT)
		r = -EINVAL;
	return r < 0 ? err_set(e, r, "cannot read the boot id: %s", strerror(-r)) : 0;
}

static int check_ours(int fd, const char *path, struct err *e)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return err_errno(e, "cannot stat '%s'", path);
	if (st.st_uid != geteuid())
		return err_set(e, -EPERM, "the audit log '%s' belongs to uid %u: refused", path,
			       (unsigned int)st.st_uid);
	if (st.st_mode & (S_IRWXG | S_IRWXO))
		return err_set(
			e, -EPERM,
			"other users have access to the audit log '%s': set its mode to 0700",
			path);
	return 0;
}

/* Links in the path are trusted: the administrator or the user made them. */
static int open_dir(const char *path, int *ret_fd, struct err *e)
{
	_cleanup_close_ int top = -EBADF, fd = -EBADF;
	int r = 0;

	fd = RETRY_EINTR(openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (fd < 0 && errno == ENOENT) {
		top = RETRY_EINTR(openat(AT_FDCWD, "/", O_PATH | O_DIRECTORY | O_CLOEXEC));
		r = top < 0 ? -errno : path_mkdirs(top, path + strspn(path, "/"), 0700);
		if (r < 0)
			return err_set(e, r, "cannot create the audit log '%s': %s", path,
				       strerror(-r));
		fd = RETRY_EINTR(openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	}
	if (fd < 0)
		return err_errno(e, "cannot open the audit log '%s'", path);
	r = check_ours(fd, path, e);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

/* Falls back to read-only: a log on a read-only file system can still be shown and verified. */
static int open_lock(int dir)
{
	int fd = path_open_nofollow(dir, "lock", O_RDWR | O_CREAT, 0600);

	return fd == -EROFS ? path_open_nofollow(dir, "lock", O_RDONLY, 0) : fd;
}

static int open_inside(struct audit_log *l, struct err *e)
{
	int r = path_mkdirs(l->dir, "sandbox", 0700);

	if (r == 0)
		r = l->sandboxes = path_open_nofollow(l->dir, "sandbox", O_RDONLY | O_DIRECTORY, 0);
	if (r >= 0)
		r = l->lock = open_lock(l->dir);
	if (r < 0)
		return err_set(e, r, "cannot open the audit log '%s': %s", l->path, strerror(-r));
	return check_ours(l->sandboxes, l->path, e);
}

int audit_open(struct audit_log *ret, struct err *e)
{
	_cleanup_audit_log_ struct audit_log l = AUDIT_LOG_INIT;
	const char *off = getenv("HUTCH_AUDIT");
	int r;

	if (off && str_eq(off, "off")) {
		*ret = l;
		return 0;
	}
	l.off = false;
	r = place(l.path, sizeof(l.path), e);
	if (r == 0)
		r = read_max(&l.max, e);
	if (r == 0)
		r = read_boot(l.boot, e);
	if (r == 0)
		r = open_dir(l.path, &l.dir, e);
	if (r == 0)
		r = open_inside(&l, e);
	if (r == 0)
		r = audit_key_make(&l, e);
	if (r < 0)
		return r;
	*ret = l;
	l = (struct audit_log)AUDIT_LOG_INIT;
	return 0;
}

void audit_close(struct audit_log *l)
{
	l->dir = fd_close(l->dir);
	l->sandboxes = fd_close(l->sandboxes);
	l->lock = fd_close(l->lock);
}
