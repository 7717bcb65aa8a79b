/* SPDX-License-Identifier: Apache-2.0 */
#include "vm/hypervisor.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "base/proc.h"
#include "base/str.h"
#include "engine/qemu.h"
#include "vm/home.h"

enum {
	FILE_MAX = 16 * 1024,
	OUTPUT_MAX = 4096,
	KEY_MAX = PATH_MAX + 256,
	VERSION_S = 20,
};

static const char file[] = "hypervisor.json";

/* An update changes at least one of these, even if it keeps the modification time. */
static int identify(const char *path, char ret[static KEY_MAX], struct err *e)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return err_errno(e, "cannot stat '%s'", path);
	(void)snprintf(ret, KEY_MAX, "%s:%llu:%llu:%llu:%lld.%09ld:%lld.%09ld", path,
		       (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
		       (unsigned long long)st.st_size, (long long)st.st_mtim.tv_sec,
		       st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
	return 0;
}

/* A missing or damaged file is no answer. */
static bool load(int dir, const char *key, char ret[static HYPERVISOR_MAX])
{
	static const char *const keys[] = { "program", "version", NULL };
	_cleanup_buf_ struct buf b = BUF_INIT(FILE_MAX);
	const char *stored, *version;
	_cleanup_json_ json_t *j = NULL;
	struct err e = ERR_INIT;

	if (fd_read_file(dir, file, &b, &e) < 0 || json_read(buf_text(&b), b.len, &j, &e) < 0 ||
	    json_only_keys(j, keys, &e) < 0 ||
	    json_get_string(j, "program", KEY_MAX - 1, &stored, &e) < 0 ||
	    json_get_string(j, "version", HYPERVISOR_MAX - 1, &version, &e) < 0 ||
	    !str_eq(stored, key))
		return false;
	(void)snprintf(ret, HYPERVISOR_MAX, "%s", version);
	return true;
}

/* A failure costs the next start a run of the program. */
static void store(int dir, const char *key, const char *version)
{
	_cleanup_json_ json_t *j =
		JSON_OBJECT({ "program", json_string(key) }, { "version", json_string(version) });
	_cleanup_free_ char *text = j ? json_write_canonical(j) : NULL;
	struct err ignored = ERR_INIT;

	if (text)
		(void)fd_replace_file(dir, file, 0600, text, strlen(text), &ignored);
}

/* "QEMU emulator version 7.2.22 (Debian ...)", and lines about the copyright. */
static int ask(const char *path, char ret[static HYPERVISOR_MAX], struct err *e)
{
	static const char begin[] = "QEMU emulator version ";
	const char *const argv[] = { path, "--version", NULL };
	_cleanup_buf_ struct buf out = BUF_INIT(OUTPUT_MAX), shown = BUF_INIT(4 * OUTPUT_MAX);
	int status, r = proc_capture(path, argv, false, clock_mono() + VERSION_S * NSEC_PER_SEC,
				     &out, &status, e);
	const char *line;

	if (r < 0)
		return r;
	line = buf_text(&out);
	if (!str_has_prefix(line, begin))
		return err_set(e, -EINVAL, "'%s --version' printed no version", path);
	line += sizeof(begin) - 1;
	if (str_escape(&shown, line, strcspn(line, "\n")) < 0)
		return err_oom(e);
	(void)snprintf(ret, HYPERVISOR_MAX, "QEMU %s", buf_text(&shown));
	str_make_utf8(ret);
	return 0;
}

int hypervisor_version_at(int dir, const char *path, char ret[static HYPERVISOR_MAX], struct err *e)
{
	char key[KEY_MAX];
	int r = identify(path, key, e);

	if (r < 0 || load(dir, key, ret))
		return r;
	r = ask(path, ret, e);
	if (r == 0)
		store(dir, key, ret);
	return r;
}

int hypervisor_version(char ret[static HYPERVISOR_MAX], struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	char home[IMAGE_HOME_MAX], path[PATH_MAX];
	int r = image_home_open(MACHINE_HOME, true, home, &dir, e);

	if (r == 0 && proc_find(QEMU_PROGRAM, path, sizeof(path)) < 0)
		r = err_set(e, -ENOENT,
			    QEMU_PROGRAM " is not installed: apt-get install qemu-system-x86");
	return r < 0 ? r : hypervisor_version_at(dir, path, ret, e);
}
