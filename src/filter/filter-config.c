/* SPDX-License-Identifier: Apache-2.0 */
#include "filter/filter-config.h"

#include <string.h>

#include "base/json-util.h"
#include "base/str.h"

enum {
	ACTION_MAX = 16,
};

static int read_action(const json_t *j, enum filter_action *ret, struct err *e)
{
	const char *text = NULL;

	if (json_get_string(j, "action", ACTION_MAX, &text, e) < 0)
		return e->num;
	for (enum filter_action i = FILTER_REDACT; i < FILTER_ACTIONS; i++)
		if (str_eq(text, filter_action_name(i))) {
			*ret = i;
			return 0;
		}
	return err_set(e, -EINVAL, "'action' is unknown");
}

static int read_rules(const json_t *a, const struct filter_rules *rules, bool *on, struct err *e)
{
	if (!json_is_array(a))
		return err_set(e, -EINVAL, "'rules' is not a list");
	for (size_t i = 0; i < json_array_size(a); i++) {
		const char *name = json_string_value(json_array_get(a, i));

		if (!name || !filter_rules_select(rules, name, on))
			return err_set(e, -EINVAL, "'rules' has an unknown rule");
	}
	return 0;
}

static int read_values(json_t *o, struct filter_value *values, size_t *ret_n, struct err *e)
{
	const char *name;
	size_t n = 0;
	json_t *one;

	if (!json_is_object(o) || json_object_size(o) > FILTER_VALUES_MAX)
		return err_set(e, -EINVAL, "'values' is not an object of at most %d",
			       FILTER_VALUES_MAX);
	json_object_foreach(o, name, one)
	{
		if (!json_is_string(one) || json_string_length(one) > FILTER_VALUE_MAX)
			return err_set(e, -EINVAL, "'values' has an invalid value");
		values[n].name = name;
		values[n].data = json_string_value(one);
		values[n].n = json_string_length(one);
		n++;
	}
	*ret_n = n;
	return 0;
}

int filter_config_read(const struct filter_rules *rules, const char *text, size_t n,
		       struct filter_setup *ret, struct err *e)
{
	static const char *const keys[] = { "action", "rules", "values", NULL };
	struct filter_value values[FILTER_VALUES_MAX];
	_cleanup_json_ json_t *j = NULL;
	bool on[FILTER_RULES_MAX] = { false };
	struct filter_setup setup = { 0 };
	size_t n_values = 0;

	if (json_read(text, n, &j, e) < 0 || json_only_keys(j, keys, e) < 0 ||
	    read_action(j, &setup.action, e) < 0 ||
	    read_rules(json_object_get(j, "rules"), rules, on, e) < 0 ||
	    read_values(json_object_get(j, "values"), values, &n_values, e) < 0 ||
	    filter_new(rules, on, values, n_values, &setup.filter, e) < 0)
		return err_wrap(e, "the configuration of the output filter");
	*ret = setup;
	return 0;
}
