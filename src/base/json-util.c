/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json-util.h"

#include <string.h>

#include "base/buf.h"
#include "base/json-memory.h"

/*
 * jansson's own depth limit is 2048 and fixed, so nesting is counted before it parses. Brackets
 * inside strings do not count. Returns the offset of the bracket that is too deep, or `n`.
 */
static size_t too_deep(const char *text, size_t n)
{
	bool in_string = false;
	int depth = 0;

	for (size_t i = 0; i < n; i++) {
		char c = text[i];

		if (in_string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				in_string = false;
		} else if (c == '"') {
			in_string = true;
		} else if (c == '[' || c == '{') {
			if (++depth > JSON_DEPTH_MAX)
				return i;
		} else if (c == ']' || c == '}') {
			depth--;
		}
	}
	return n;
}

int json_read(const char *text, size_t n, json_t **ret, struct err *e)
{
	json_error_t error;
	size_t deep;
	json_t *j;

	if (n > JSON_SIZE_MAX)
		return err_set(e, -EFBIG, "JSON of %zu bytes, at most %d are read", n,
			       JSON_SIZE_MAX);
	deep = too_deep(text, n);
	if (deep < n)
		return err_set(e, -EINVAL, "byte %zu: JSON nested deeper than %d", deep,
			       JSON_DEPTH_MAX);
	j = json_memory_load(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
	if (!j && errno == ENOMEM)
		return err_oom(e);
	if (!j)
		return err_set(e, -EINVAL, "line %d column %d: %s", error.line, error.column,
			       error.text);
	*ret = j;
	return 0;
}

static int append(const char *text, size_t n, void *arg)
{
	return buf_put(arg, text, n);
}

/*
 * json_dumps() of jansson 2.14 does not check every result of its own buffer: after a transient
 * allocation failure it omits a key and continues. Our buffer keeps the error.
 */
static char *write_json(const json_t *j, size_t flags)
{
	_cleanup_buf_ struct buf b = BUF_INIT(JSON_SIZE_MAX);

	if (json_dump_callback(j, append, &b,
			       flags | JSON_SORT_KEYS | JSON_ENSURE_ASCII | JSON_ENCODE_ANY) < 0)
		return NULL;
	return buf_take(&b);
}

char *json_write_canonical(const json_t *j)
{
	return write_json(j, JSON_INDENT(2));
}

char *json_write_line(const json_t *j)
{
	return write_json(j, JSON_COMPACT);
}

static bool listed(const char *key, const char *const *keys)
{
	for (; *keys; keys++)
		if (strcmp(key, *keys) == 0)
			return true;
	return false;
}

int json_only_keys(const json_t *obj, const char *const *keys, struct err *e)
{
	if (!json_is_object(obj))
		return err_set(e, -EINVAL, "expected a JSON object");
	for (void *i = json_object_iter((json_t *)obj); i;
	     i = json_object_iter_next((json_t *)obj, i))
		if (!listed(json_object_iter_key(i), keys))
			return err_set(e, -EINVAL, "unknown key '%s'", json_object_iter_key(i));
	return 0;
}

static const json_t *get(const json_t *obj, const char *key, struct err *e)
{
	const json_t *j = json_object_get(obj, key);

	if (!j)
		(void)err_set(e, -ENOENT, "'%s' is missing", key);
	return j;
}

int json_get_string(const json_t *obj, const char *key, size_t max, const char **ret, struct err *e)
{
	const json_t *j = get(obj, key, e);

	if (!j)
		return e->num;
	if (!json_is_string(j))
		return err_set(e, -EINVAL, "'%s' is not a string", key);
	if (json_string_length(j) > max)
		return err_set(e, -EINVAL, "'%s' is longer than %zu bytes", key, max);
	*ret = json_string_value(j);
	return 0;
}

int json_get_u64(const json_t *obj, const char *key, uint64_t max, uint64_t *ret, struct err *e)
{
	const json_t *j = get(obj, key, e);

	if (!j)
		return e->num;
	if (!json_is_integer(j) || json_integer_value(j) < 0)
		return err_set(e, -EINVAL, "'%s' is not a whole number from 0 on", key);
	if ((uint64_t)json_integer_value(j) > max)
		return err_set(e, -EINVAL, "'%s' is more than %llu", key, (unsigned long long)max);
	*ret = (uint64_t)json_integer_value(j);
	return 0;
}

int json_get_bool(const json_t *obj, const char *key, bool *ret, struct err *e)
{
	const json_t *j = get(obj, key, e);

	if (!j)
		return e->num;
	if (!json_is_boolean(j))
		return err_set(e, -EINVAL, "'%s' is neither true nor false", key);
	*ret = json_is_true(j);
	return 0;
}

int json_put(json_t *obj, const char *key, json_t *value)
{
	return json_object_set_new(obj, key, value) < 0 ? -ENOMEM : 0;
}

int json_push(json_t *array, json_t *value)
{
	return json_array_append_new(array, value) < 0 ? -ENOMEM : 0;
}

json_t *json_object_from(const struct json_member *members, size_t n)
{
	json_t *o = json_object();
	int r = 0;

	for (size_t i = 0; i < n; i++)
		r |= json_put(o, members[i].key, members[i].value);
	if (r == 0)
		return o;
	json_decref(o);
	return NULL;
}

json_t *json_texts(const char *const *list, size_t n)
{
	_cleanup_json_ json_t *a = json_array();

	for (size_t i = 0; a && i < n; i++)
		if (json_push(a, json_string(list[i])) < 0)
			return NULL;
	return TAKE_PTR(a);
}

json_t *json_number(uint64_t n)
{
	assert(n <= INT64_MAX);
	return json_integer((json_int_t)n);
}
