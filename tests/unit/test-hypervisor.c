/* SPDX-License-Identifier: Apache-2.0 */
/* The hypervisor's version: the program runs once, until its file changes. And known.h, which keeps
 * the version and other facts about files. */
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"
#include "unit.h"
#include "vm/hypervisor.h"
#include "vm/known.h"

/* A program that prints this and counts its runs in the file `runs`. */
static void install(const struct unit_dir *d, const char *output)
{
	char script[512];

	(void)snprintf(script, sizeof(script), "#!/bin/sh\necho >> %s/runs\necho '%s'\necho more\n",
		       d->path, output);
	unit_dir_write(d, "new", script, strlen(script));
	assert_int_equal(fchmodat(d->fd, "new", 0755, 0), 0);
	assert_int_equal(renameat(d->fd, "new", d->fd, "qemu"), 0);
}

static long runs(const struct unit_dir *d)
{
	struct stat st;

	return fstatat(d->fd, "runs", &st, 0) == 0 ? (long)st.st_size : 0;
}

static int ask(const struct unit_dir *d, char ret[static HYPERVISOR_MAX], struct err *e)
{
	char path[UNIT_PATH_MAX + 8];

	(void)snprintf(path, sizeof(path), "%s/qemu", d->path);
	return hypervisor_version_at(d->fd, path, ret, e);
}

TEST_IN_DIR(is_asked_once)
{
	const struct unit_dir *d = *state;
	char version[HYPERVISOR_MAX];
	struct err e = ERR_INIT;

	assert_int_equal(ask(d, version, &e), -ENOENT);
	install(d, "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)");
	for (int i = 0; i < 3; i++) {
		assert_int_equal(ask(d, version, &e), 0);
		assert_string_equal(version, "QEMU 7.2.22 (Debian 1:7.2+dfsg-7)");
		assert_int_equal(runs(d), 1);
	}
	/* An update. */
	install(d, "QEMU emulator version 8.0.0");
	assert_int_equal(ask(d, version, &e), 0);
	assert_string_equal(version, "QEMU 8.0.0");
	assert_int_equal(runs(d), 2);
	/* A damaged file is ignored and replaced. */
	unit_dir_write(d, "hypervisor.json", "{", 1);
	assert_int_equal(ask(d, version, &e), 0);
	assert_int_equal(ask(d, version, &e), 0);
	assert_int_equal(runs(d), 3);
}

TEST_IN_DIR(is_no_version)
{
	const struct unit_dir *d = *state;
	char version[HYPERVISOR_MAX];
	struct err e = ERR_INIT;

	install(d, "command not found");
	assert_int_equal(ask(d, version, &e), -EINVAL);
	assert_non_null(strstr(e.msg, "printed no version"));
}

TEST_IN_DIR(is_shown_as_text)
{
	const struct unit_dir *d = *state;
	char version[HYPERVISOR_MAX];
	struct err e = ERR_INIT;

	install(d, "QEMU emulator version 1\033[31m");
	assert_int_equal(ask(d, version, &e), 0);
	assert_null(strchr(version, '\033'));
}

/* Another change within the same time stamp would not show. */
TEST_IN_DIR(does_not_trust_a_new_file)
{
	const struct unit_dir *d = *state;
	char path[UNIT_PATH_MAX + 8], key[KNOWN_KEY_MAX], value[KNOWN_MAX];
	struct err e = ERR_INIT;
	bool settled = true;

	(void)snprintf(path, sizeof(path), "%s/f", d->path);
	unit_dir_write(d, "f", "1", 1);
	assert_int_equal(known_key(path, key, &settled, &e), 0);
	assert_false(settled);
	assert_int_equal(known_key("/proc/self/exe", key, &settled, &e), 0);
	assert_true(settled);
	known_store(d->fd, "k.json", key, "value");
	assert_true(known_load(d->fd, "k.json", key, value));
	assert_string_equal(value, "value");
	assert_false(known_load(d->fd, "k.json", "another key", value));
	assert_false(known_load(d->fd, "none.json", key, value));
}
