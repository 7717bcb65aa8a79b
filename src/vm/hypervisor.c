/* SPDX-License-Identifier: Apache-2.0 */
#include "vm/hypervisor.h"

#include <limits.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/proc.h"
#include "base/str.h"
#include "engine/engine.h"
#include "engine/qemu.h"
#include "vm/home.h"
#include "vm/known.h"

enum {
	OUTPUT_MAX = 4096,
	VERSION_S = 20,
};

static const char file[] = "hypervisor.json";

static_assert((int)HYPERVISOR_MAX == (int)KNOWN_MAX, "a version is a known value");

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
	char key[KNOWN_KEY_MAX];
	int r = known_key(path, key, NULL, e);

	if (r < 0 || known_load(dir, file, key, ret))
		return r;
	r = ask(path, ret, e);
	if (r == 0)
		known_store(dir, file, key, ret);
	return r;
}

int hypervisor_version(char ret[static HYPERVISOR_MAX], struct err *e)
{
	_cleanup_close_ int dir = -EBADF;
	char home[IMAGE_HOME_MAX], path[PATH_MAX];
	int r = image_home_open(MACHINE_HOME, true, home, &dir, e);

	if (r == 0)
		r = engine_program(&engine_qemu, path, e);
	return r < 0 ? r : hypervisor_version_at(dir, path, ret, e);
}
