/* SPDX-License-Identifier: Apache-2.0 */
/* Finds sandboxes. */
#include "sandbox/sandbox.h"
#include "state/kept.h"

int sandbox_find(const struct state_root *root, const char *prefix, struct sandbox *ret,
		 struct err *e)
{
	struct err ignored = ERR_INIT;
	int r = state_find(root, prefix, ret->id, &ret->dir, e);

	/* After a restart of the host, a suspended sandbox exists only as a snapshot. */
	if (r == -ENOENT && sandbox_restore(root, &ignored) == 0)
		r = state_find(root, prefix, ret->id, &ret->dir, e);
	ret->ended = r == -ENOENT;
	return ret->ended ? kept_find(root, prefix, ret->id, &ret->dir, e) : r;
}

void sandbox_close(struct sandbox *s)
{
	s->dir = fd_close(s->dir);
}
