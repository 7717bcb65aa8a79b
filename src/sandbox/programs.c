/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/programs.h"

#include <string.h>

#include "base/proc.h"
#include "base/str.h"
#include "sandbox/sandbox.h"

int programs_find(struct programs *ret, struct err *e)
{
	const char *set = getenv("HUTCH_LIBEXEC_DIR");
	char own[PATH_MAX];
	int r;

	if (set && set[0]) {
		if (set[0] == '/' && proc_find_in(set, ".", "hutch-keeper", ret->keeper) &&
		    proc_find_in(set, ".", "hutch-guest", ret->guest))
			return 0;
		return err_set(e, -ENOENT,
			       "no hutch-keeper and hutch-guest in HUTCH_LIBEXEC_DIR, '%.100s'",
			       set);
	}
	r = proc_own_directory(own);
	if (r < 0)
		return err_set(e, r, "cannot find the directory of hutch: %s", strerror(-r));
	if (proc_find_in(own, "../libexec/hutch", "hutch-keeper", ret->keeper) &&
	    proc_find_in(own, "../libexec/hutch", "hutch-guest", ret->guest))
		return 0;
	if (proc_find_in(own, ".", "hutch-keeper", ret->keeper) &&
	    proc_find_in(own, ".", "hutch-guest", ret->guest)) /* hutch-preparer */
		return 0;
	if (proc_find_in(own, "../warden", "hutch-keeper", ret->keeper) &&
	    proc_find_in(own, "../guest", "hutch-guest", ret->guest))
		return 0;
	return err_set(e, -ENOENT,
		       "no hutch-keeper and hutch-guest in '%.100s/../libexec/hutch': is hutch "
		       "installed as a whole?",
		       own);
}

int sandbox_find_guest(char ret[static PATH_MAX], struct err *e)
{
	struct programs p;
	int r = programs_find(&p, e);

	if (r == 0)
		(void)snprintf(ret, PATH_MAX, "%s", p.guest);
	return r;
}

int sandbox_find_program(const char *name, char ret[static PATH_MAX], struct err *e)
{
	const char *set = getenv("HUTCH_LIBEXEC_DIR");
	char own[PATH_MAX], build[32];

	if (set && set[0]) {
		if (set[0] == '/' && proc_find_in(set, ".", name, ret))
			return 0;
		return err_set(e, -ENOENT, "no %s in HUTCH_LIBEXEC_DIR, '%.100s'", name, set);
	}
	(void)snprintf(build, sizeof(build), "../%s", name + STRLEN("hutch-"));
	if (proc_own_directory(own) == 0 && (proc_find_in(own, "../libexec/hutch", name, ret) ||
					     proc_find_in(own, build, name, ret)))
		return 0;
	return err_set(e, -ENOENT, "no %s beside hutch: is hutch installed as a whole?", name);
}
