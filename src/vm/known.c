/* SPDX-License-Identifier: Apache-2.0 */
#include "vm/known.h"

#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "base/str.h"

enum {
	FILE_MAX = 16 * 1024,
};

/* Time stamps advance in steps of at most 10 ms (CONFIG_HZ=100). */
#define STAMP_STEP (UINT64_C(50) * NSEC_PER_MSEC)

int known_key(const char *path, char ret[static KNOWN_KEY_MAX], bool *settled, struct err *e)
{
	const uint64_t now = clock_wall();
	struct stat st;

	if (stat(path, &st) < 0)
		return err_errno(e, "cannot stat '%s'", path);
	(void)snprintf(ret, KNOWN_KEY_MAX, "%s:%llu:%llu:%llu:%lld.%09ld:%lld.%09ld", path,
		       (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
		       (unsigned long long)st.st_size, (long long)st.st_mtim.tv_sec,
		       st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
	if (settled)
		*settled = clock_of(st.st_ctim) + STAMP_STEP < now;
	return 0;
}

/* A missing or damaged file is no answer. */
bool known_load(int dir, const char *name, const char *key, char ret[static KNOWN_MAX])
{
	static const char *const keys[] = { "file", "value", NULL };
	_cleanup_buf_ struct buf b = BUF_INIT(FILE_MAX);
	const char *stored, *value;
	_cleanup_json_ json_t *j = NULL;
	struct err e = ERR_INIT;

	if (fd_read_file(dir, name, &b, &e) < 0 || json_read(buf_text(&b), b.len, &j, &e) < 0 ||
	    json_only_keys(j, keys, &e) < 0 ||
	    json_get_string(j, "file", KNOWN_KEY_MAX - 1, &stored, &e) < 0 ||
	    json_get_string(j, "value", KNOWN_MAX - 1, &value, &e) < 0 || !str_eq(stored, key))
		return false;
	(void)snprintf(ret, KNOWN_MAX, "%s", value);
	return true;
}

void known_store(int dir, const char *name, const char *key, const char *value)
{
	_cleanup_json_ json_t *j =
		JSON_OBJECT({ "file", json_string(key) }, { "value", json_string(value) });
	_cleanup_free_ char *text = j ? json_write_canonical(j) : NULL;
	struct err ignored = ERR_INIT;

	if (text)
		(void)fd_replace_file(dir, name, 0600, text, strlen(text), &ignored);
}
