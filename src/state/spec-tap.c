/* SPDX-License-Identifier: Apache-2.0 */
/* Validates the part of spec.json that is for hutch-tap. */
#include <string.h>

#include "base/json-util.h"
#include "base/str.h"
#include "state/spec-inner.h"

/* Each secret of `tap` has its name in the list, in the same order. */
static int check_tap_names(const struct spec *s, const json_t *j, struct err *e)
{
	const json_t *all = json_object_get(j, "secrets");

	if (!json_is_array(all) || !json_is_array(json_object_get(j, "http")))
		return err_set(e, -EINVAL, "'tap' has no lists 'secrets' and 'http'");
	if (json_array_size(all) != s->tap_secrets.n)
		return err_set(e, -EINVAL,
			       "'tap_secrets' has another number of secrets than 'tap'");
	for (size_t i = 0; i < s->tap_secrets.n; i++) {
		const char *name =
			json_string_value(json_object_get(json_array_get(all, i), "name"));

		if (!name || !str_eq(name, s->tap_secrets.v[i]))
			return err_set(e, -EINVAL, "'tap_secrets' and 'tap' differ");
	}
	return 0;
}

/* hutch-tap checks the rest, when it reads it. */
int spec_check_tap(const struct spec *s, struct err *e)
{
	static const char *const keys[] = { "secrets", "http", "llm", NULL };
	_cleanup_json_ json_t *j = NULL;
	int r;

	if (!s->tap[0])
		return s->tap_roots[0] || s->tap_hosts.n > 0 || s->tap_secrets.n > 0
			       ? err_set(e, -EINVAL, "'tap' is empty")
			       : 0;
	r = json_read(s->tap, strlen(s->tap), &j, e);
	if (r == 0)
		r = json_only_keys(j, keys, e);
	if (r < 0)
		return err_wrap(e, "tap");
	if (s->tap_roots[0] && !spec_is_path(s->tap_roots))
		return err_set(e, -EINVAL, "'tap_roots' is not an absolute path");
	if (s->ledger[0] && !spec_id_valid(s->ledger))
		return err_set(e, -EINVAL, "'ledger' is not the id of a sandbox");
	if (s->tap_hosts.n == 0)
		return err_set(e, -EINVAL, "'tap_hosts' is empty");
	return check_tap_names(s, j, e);
}
