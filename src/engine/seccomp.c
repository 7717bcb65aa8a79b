/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/seccomp.h"

#include <errno.h>

#include "base/json-util.h"
#include "confine/calls.h"

static json_t *compare_json(const struct call_compare *c)
{
	if (c->mask == 0)
		return JSON_OBJECT({ "index", json_integer(c->argument) },
				   { "op", json_string("SCMP_CMP_NE") },
				   { "value", json_number(0) });
	return JSON_OBJECT(
		{ "index", json_integer(c->argument) }, { "op", json_string("SCMP_CMP_MASKED_EQ") },
		{ "value", json_number(c->mask) }, { "valueTwo", json_number(c->value) });
}

/* NULL: out of memory. */
static json_t *comparisons(const struct call_compare *c, size_t n)
{
	_cleanup_json_ json_t *args = json_array();

	for (size_t i = 0; i < n; i++)
		if (json_push(args, compare_json(&c[i])) < 0)
			return NULL;
	return TAKE_PTR(args);
}

static int put_rule(const struct call_rule *rule, void *rules)
{
	_cleanup_json_ json_t *j = JSON_OBJECT(
		{ "names", json_texts(&rule->call.name, 1) },
		{ "action", json_string(rule->allow ? "SCMP_ACT_ALLOW" : "SCMP_ACT_ERRNO") },
		{ "args", comparisons(rule->compare, rule->n) });

	if (!j || (!rule->allow && json_put(j, "errnoRet", json_integer(0)) < 0))
		return -ENOMEM;
	return json_push(rules, TAKE_PTR(j));
}

/* Adds one rule for all calls of a list. */
static int put_list(json_t *rules, const struct call *list, const char *action, int number)
{
	_cleanup_json_ json_t *names = json_array(), *j = NULL;

	for (; list->name; list++)
		if (json_push(names, json_string(list->name)) < 0)
			return -ENOMEM;
	j = JSON_OBJECT({ "names", TAKE_PTR(names) }, { "action", json_string(action) });
	if (!j || (number >= 0 && json_put(j, "errnoRet", json_integer(number)) < 0))
		return -ENOMEM;
	return json_push(rules, TAKE_PTR(j));
}

static json_t *rules(void)
{
	_cleanup_json_ json_t *a = json_array();
	int r = put_list(a, calls_allowed, "SCMP_ACT_ALLOW", -1);

	if (r == 0)
		r = put_list(a, calls_absent, "SCMP_ACT_ERRNO", ENOSYS);
	if (r == 0)
		r = put_list(a, calls_ignored, "SCMP_ACT_ERRNO", 0);
	if (r == 0)
		r = calls_conditional(put_rule, a);
	return r < 0 ? NULL : TAKE_PTR(a);
}

json_t *seccomp_profile(void)
{
	/* One ABI: a call through another one (i386, x32) kills the process. */
#if defined(__x86_64__)
	static const char *const architectures[] = { "SCMP_ARCH_X86_64" };
#elif defined(__aarch64__)
	static const char *const architectures[] = { "SCMP_ARCH_AARCH64" };
#else
#error "name the system call ABI of this architecture here"
#endif
	return JSON_OBJECT(
		{ "defaultAction", json_string("SCMP_ACT_ERRNO") },
		{ "defaultErrnoRet", json_integer(EPERM) },
		{ "architectures", json_texts(architectures, ARRAY_SIZE(architectures)) },
		{ "syscalls", rules() });
}
