/* SPDX-License-Identifier: Apache-2.0 */
/* Starts QEMU with hutch-ram.so: ram.h. */
#include <inttypes.h>
#include <string.h>

#include "base/util.h"
#include "engine/engine.h"
#include "engine/qemu.h"

int qemu_ram_library(char ret[static PATH_MAX], struct err *e)
{
	if (engine_own_file(RAM_LIBRARY, "../ram", ret) ||
	    engine_own_file(RAM_LIBRARY, "../../src/ram", ret))
		return 0;
	return err_set(e, -ENOENT,
		       "there is no " RAM_LIBRARY
		       ", which VMs need: is hutch installed as a whole?");
}

/* One variable after another, each with its NUL. */
int qemu_ram_environment(const struct qemu_machine *m, const char *library, struct buf *text,
			 const char *env[static QEMU_ENVIRONMENT_MAX])
{
	const size_t n = m->start == VM_RESTORE ? 3 : 2;
	size_t at = 0;

	(void)buf_printf(text, "LD_PRELOAD=%s%c" RAM_SIZE "=%" PRIu64 "%c" RAM_SNAPSHOT "=1%c",
			 library, '\0', m->memory, '\0', '\0');
	if (text->err)
		return text->err;
	for (size_t i = 0; i < n; i++) {
		env[i] = text->data + at;
		at += strlen(env[i]) + 1;
	}
	env[n] = NULL;
	return 0;
}

int qemu_ram_report(int pipe, struct ram_report *ret, struct err *e)
{
	struct ram_report at = { 0 };

	if (RETRY_EINTR(read(pipe, &at, sizeof(at))) != (ssize_t)sizeof(at))
		return err_set(e, -EPROTO,
			       "QEMU did not load " RAM_LIBRARY ", which maps the VM's memory; a "
			       "QEMU that is linked statically cannot");
	*ret = at;
	return 0;
}
