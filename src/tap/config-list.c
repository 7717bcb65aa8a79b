/* SPDX-License-Identifier: Apache-2.0 */
#include "tap/config-list.h"

#include <string.h>

int tap_config_list(const json_t *o, const char *key, size_t max, struct l7_list *ret,
		    struct err *e)
{
	const json_t *a = json_object_get(o, key);
	const size_t n = json_array_size(a);
	const char **v;

	if (!json_is_array(a) || n > max)
		return err_set(e, -EINVAL, "'%s' is not a list of at most %zu", key, max);
	for (size_t i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(a, i));

		if (!s || strlen(s) > L7_PATTERN_MAX)
			return err_set(e, -EINVAL, "'%s' does not hold texts", key);
	}
	if (n == 0)
		return 0;
	v = calloc(n, sizeof(*v));
	if (!v)
		return err_oom(e);
	for (size_t i = 0; i < n; i++)
		v[i] = json_string_value(json_array_get(a, i));
	*ret = (struct l7_list){ v, n };
	return 0;
}
