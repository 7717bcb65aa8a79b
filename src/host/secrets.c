/* SPDX-License-Identifier: Apache-2.0 */
/* Requirements of secrets and of rules on HTTP requests: the store, the programs, the CAs of the
 * host. Sandboxes without them start anyway. */
#include "host/probe.h"

static bool probe_store(const struct probe_ctx *x, struct host_check *c)
{
	const struct host_secrets *s = x->secrets;

	if (!s)
		return false;
	if (s->store == 0) {
		check_value(c, HOST_OK, "%ld secret%s", s->count, s->count == 1 ? "" : "s");
		return true;
	}
	check_value(c, HOST_FAIL, "cannot be used");
	check_detail(c, "%s", s->store_why);
	if (s->store == -EBADMSG)
		check_advice(c, "set that secret again: hutch secret set --replace NAME");
	else
		check_advice(c, "make the directory 'secrets' of the state directory yours, with "
				"mode 0700");
	return true;
}

static void judge_program(struct host_check *c, int r, const char *why)
{
	if (r == 0) {
		check_value(c, HOST_OK, "installed");
		return;
	}
	check_value(c, HOST_FAIL, r == -ENOENT ? "missing" : "does not run");
	check_detail(c, "%s", why);
	check_advice(c, "install hutch again, as a whole");
}

static bool probe_tap(const struct probe_ctx *x, struct host_check *c)
{
	if (x->secrets)
		judge_program(c, x->secrets->tap, x->secrets->tap_why);
	return x->secrets;
}

static bool probe_token(const struct probe_ctx *x, struct host_check *c)
{
	if (x->secrets)
		judge_program(c, x->secrets->token, x->secrets->token_why);
	return x->secrets;
}

static bool probe_roots(const struct probe_ctx *x, struct host_check *c)
{
	if (!x->secrets || x->secrets->tap < 0)
		return false;
	if (x->secrets->roots > 0) {
		check_value(c, HOST_OK, "%ld", x->secrets->roots);
		return true;
	}
	check_value(c, HOST_WARN, "none that this user can read");
	check_detail(c, "no server is trusted with a secret, but those of tap_roots in host.yaml");
	check_advice(c, "apt-get install ca-certificates");
	return true;
}

const struct probe probe_secrets[] = {
	{ "secret.store", "secret store", probe_store },
	{ "secret.tap", "hutch-tap", probe_tap },
	{ "secret.token", "hutch-token", probe_token },
	{ "secret.roots", "CA certificates", probe_roots },
	{ NULL, NULL, NULL },
};
