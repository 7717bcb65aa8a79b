/* SPDX-License-Identifier: Apache-2.0 */
#include "confine/stages.h"

#include <string.h>

#include "confine/caps.h"
#include "confine/landlock.h"
#include "confine/self.h"

int confine_run(const struct confine_stage *stages, void *arg, const char **ret_at)
{
	for (const struct confine_stage *s = stages; s->name; s++) {
		int r = s->run(arg);

		if (r == 0 && s->check)
			r = s->check(arg);
		if (r == 0)
			continue;
		assert(r < 0);
		if (ret_at)
			*ret_at = s->name;
		return r;
	}
	return 0;
}

int confine_run_err(const struct confine_stage *stages, void *arg, const char *what, struct err *e)
{
	const char *at = NULL;
	int r = confine_run(stages, arg, &at);

	return r < 0 ? err_set(e, r, "%s, %s: %s", what, at, strerror(-r)) : 0;
}

int confine_drop_privileges(uint64_t kept)
{
	int r;

	(void)caps_bound(0); /* -EPERM: this process has no capability that could change it */
	r = caps_only(kept);
	if (r == 0)
		r = self_no_new_privileges();
	return r < 0 ? r : self_not_dumpable();
}

int stage_drop_privileges(void *arg)
{
	int r = caps_only(0);

	return r < 0 ? r : self_no_new_privileges();
}

int stage_has_no_privileges(void *arg)
{
	int r = caps_check(0);

	return r < 0 ? r : self_check_privileges();
}

int stage_die_with_parent(void *arg)
{
	return self_die_with_parent();
}

int stage_has_no_files(void *arg)
{
	return landlock_check();
}
