/* SPDX-License-Identifier: Apache-2.0 */
#include "image/ids.h"

#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "image/image.h"

enum {
	SUBID_FILE_MAX = 1024 * 1024,
	MAP_TIMEOUT_S = 20,
	USER_MAX = 256,
};

static bool is_one_of(const char *s, size_t n, const char *const *names)
{
	for (; *names; names++)
		if (strlen(*names) == n && memcmp(*names, s, n) == 0)
			return true;
	return false;
}

/* "name:start:count" */
static int parse_line(const char *line, size_t n, const char *const *names, uint32_t *ret)
{
	const char *first = memchr(line, ':', n), *second, *end = line + n;
	uint64_t start, count;

	if (!first || !is_one_of(line, (size_t)(first - line), names))
		return -ENOENT;
	first++;
	second = memchr(first, ':', (size_t)(end - first));
	if (!second || str_to_u64(first, (size_t)(second - first), UINT32_MAX, &start) < 0 ||
	    str_to_u64(second + 1, (size_t)(end - second - 1), UINT32_MAX, &count) < 0)
		return -ENOENT;
	/* 2^32 - 1 means "no id". */
	if (start == 0 || count < IMAGE_ID_RANGE || start + count > UINT32_MAX)
		return -ENOENT;
	*ret = (uint32_t)start;
	return 0;
}

int ids_parse(const char *text, const char *const *names, uint32_t *ret)
{
	while (*text) {
		size_t n = strcspn(text, "\n");

		if (parse_line(text, n, names, ret) == 0)
			return 0;
		text += n + (text[n] == '\n');
	}
	return -ENOENT;
}

static int find_in(const char *path, const char *const *names, uint32_t *ret, struct err *e)
{
	_cleanup_buf_ struct buf b = BUF_INIT(SUBID_FILE_MAX);
	int r = fd_read_file(AT_FDCWD, path, &b, e);

	if (r < 0 && r != -ENOENT)
		return r;
	return r < 0 ? r : ids_parse(buf_text(&b), names, ret);
}

static int find_own(struct id_ranges *ret, struct err *e)
{
	char name[USER_MAX], number[16];
	const char *const names[] = { name, number, NULL };
	const struct passwd *pw = getpwuid(getuid());
	int r;

	(void)snprintf(number, sizeof(number), "%u", (unsigned int)getuid());
	(void)snprintf(name, sizeof(name), "%s", pw ? pw->pw_name : number);
	r = find_in("/etc/subuid", names, &ret->uid, e);
	if (r == 0)
		r = find_in("/etc/subgid", names, &ret->gid, e);
	if (r == -ENOENT)
		return err_set(e, -ENOENT,
			       "no %d subordinate ids for '%s': as root, usermod --add-subuids "
			       "100000-165535 --add-subgids 100000-165535 %s",
			       IMAGE_ID_RANGE, name, name);
	return r;
}

int ids_find(struct id_ranges *ret, struct err *e)
{
	static const char *const names[] = { "hutch", "root", "0", NULL };
	int r, s;

	if (geteuid() != 0)
		return find_own(ret, e);
	r = find_in("/etc/subuid", names, &ret->uid, e);
	s = find_in("/etc/subgid", names, &ret->gid, e);
	if ((r < 0 && r != -ENOENT) || (s < 0 && s != -ENOENT))
		return r < 0 && r != -ENOENT ? r : s;
	if (r < 0 || s < 0)
		*ret = (struct id_ranges){ IDS_DEFAULT, IDS_DEFAULT };
	return 0;
}

static int write_map(pid_t pid, const char *file, uint32_t start, struct err *e)
{
	_cleanup_close_ int fd = -EBADF;
	char path[64], text[64];
	int n, r;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	n = snprintf(text, sizeof(text), "0 %u %d\n", start, IMAGE_ID_COUNT);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return err_errno(e, "cannot open '%s'", path);
	r = fd_write_all(fd, text, (size_t)n);
	return r < 0 ? err_set(e, r, "cannot write '%s': %s", path, strerror(-r)) : 0;
}

static int run_helper(const char *program, pid_t pid, uint32_t start, struct err *e)
{
	_cleanup_buf_ struct buf out = BUF_INIT(4096);
	char path[PATH_MAX], pid_text[16], start_text[16], count_text[16];
	const char *const argv[] = { program, pid_text, "0", start_text, count_text, NULL };
	int status = 0, r;

	if (proc_find(program, path, sizeof(path)) < 0)
		return err_set(e, -ENOENT, "%s is needed: apt-get install uidmap", program);
	(void)snprintf(pid_text, sizeof(pid_text), "%d", (int)pid);
	(void)snprintf(start_text, sizeof(start_text), "%u", start);
	(void)snprintf(count_text, sizeof(count_text), "%d", IMAGE_ID_COUNT);
	r = proc_capture(path, argv, true, clock_mono() + MAP_TIMEOUT_S * NSEC_PER_SEC, &out,
			 &status, e);
	if (r < 0)
		return r;
	if (status != 0)
		return err_set(e, -EPERM, "%.*s", (int)strcspn(buf_text(&out), "\n"),
			       buf_text(&out));
	return 0;
}

int ids_map(pid_t pid, const struct id_ranges *ids, struct err *e)
{
	int r;

	if (geteuid() == 0) {
		r = write_map(pid, "gid_map", ids->gid, e);
		return r < 0 ? r : write_map(pid, "uid_map", ids->uid, e);
	}
	r = run_helper("newgidmap", pid, ids->gid, e);
	return r < 0 ? r : run_helper("newuidmap", pid, ids->uid, e);
}
