/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "engine/dial-guard.h"
#include "sandbox/sandbox.h"

/* A sandbox that uses the host's proxy can reach nothing else, whatever is added. */
static int goes_by_proxy(const struct sandbox *s, bool *ret, struct err *e)
{
	_cleanup_spec_ struct spec spec = { 0 };
	int r = spec_read(s->dir, &spec, e);

	if (r == 0)
		*ret = spec.egress.proxy && spec.egress.proxy[0];
	return r;
}

/* One write, so that two concurrent processes write two lines. */
static int write_down(const struct sandbox *s, const struct rule *rule, struct err *e)
{
	_cleanup_close_ int fd =
		RETRY_EINTR(openat(s->dir, STATE_WIDENED,
				   O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
	char text[RULE_TEXT_MAX], line[RULE_TEXT_MAX + 1];
	struct stat st;
	int n, r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(e, "cannot open '%s'", STATE_WIDENED);
	n = snprintf(line, sizeof(line), "%s\n", rule_format(rule, text));
	if (st.st_size + n > STATE_WIDENED_MAX)
		return err_set(
			e, -EFBIG,
			"too many rules were added to sandbox %s: '%s' has at most %d bytes; put "
			"them into the agent's policy",
			s->id, STATE_WIDENED, STATE_WIDENED_MAX);
	r = fd_write_all(fd, line, (size_t)n);
	return r < 0 ? err_set(e, r, "cannot write '%s': %s", STATE_WIDENED, strerror(-r)) : 0;
}

int sandbox_widen(const struct state_root *root, const struct sandbox *s, const struct rule *rule,
		  struct err *e)
{
	char group[STATE_GROUP_MAX];
	bool proxy = false;
	int r = goes_by_proxy(s, &proxy, e);

	if (r < 0 || proxy)
		return r;
	r = dial_guard_allow(state_group(root, s->id, group), rule, e);
	if (r <= 0)
		return r;
	r = write_down(s, rule, e);
	/* The rule is already in the kernel. */
	return r < 0 ? err_wrap(e, "the rule could not be saved: it is lost when the sandbox is "
				   "suspended")
		     : 0;
}
