/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/proc.h"
#include "engine/engine.h"

bool engine_own_file(const char *name, const char *built, char ret[static PATH_MAX])
{
	/* In this order hutch and hutch-keeper find the same file, also if hutch is in /usr/bin,
	 * beside other programs. */
	const char *const places[] = { "../libexec/hutch", ".", built };
	const char *set = getenv("HUTCH_LIBEXEC_DIR");
	char own[PATH_MAX];

	if (set && set[0] == '/' && proc_find_in(set, ".", name, ret))
		return true;
	if (proc_own_directory(own) < 0)
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (places[i] && proc_find_in(own, places[i], name, ret))
			return true;
	return false;
}

int engine_program(const struct engine *row, char ret[static PATH_MAX], struct err *e)
{
	char path[PATH_MAX];

	if (engine_own_file(row->program, NULL, ret) ||
	    (proc_find(row->program, path, sizeof(path)) == 0 && realpath(path, ret)))
		return 0;
	return err_set(e, -ENOENT, "%s is not installed: apt-get install %s", row->program,
		       row->package);
}
