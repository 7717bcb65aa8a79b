/* SPDX-License-Identifier: Apache-2.0 */
/* Reads members of a message in protobuf's JSON: null counts as absent, numbers may be text. */
#include <string.h>

#include "base/str.h"
#include "envd/process.h"

enum {
	COLS = 80,
	ROWS = 24,
};

const json_t *member(const json_t *object, const char *key)
{
	const json_t *j = json_object_get(object, key);

	return json_is_null(j) ? NULL : j;
}

int member_text(const json_t *object, const char *key, const char **ret, struct err *e)
{
	const json_t *j = member(object, key);

	if (j && !json_is_string(j))
		return err_set(e, -EINVAL, "'%s' is not a string", key);
	if (j)
		*ret = json_string_value(j);
	return 0;
}

int member_number(const json_t *object, const char *key, uint64_t max, uint64_t *ret, struct err *e)
{
	const json_t *j = member(object, key);
	uint64_t n = 0;
	int r = 0;

	if (!j)
		return 0;
	if (json_is_string(j))
		r = str_to_u64(json_string_value(j), json_string_length(j), max, &n);
	else if (json_is_integer(j) && json_integer_value(j) >= 0)
		n = (uint64_t)json_integer_value(j);
	else
		r = -EINVAL;
	if (r < 0 || n > max)
		return err_set(e, -EINVAL, "'%s' is not a whole number from 0 to %llu", key,
			       (unsigned long long)max);
	*ret = n;
	return 0;
}

int member_flag(const json_t *object, const char *key, bool *ret, struct err *e)
{
	const json_t *j = member(object, key);

	if (j && !json_is_boolean(j))
		return err_set(e, -EINVAL, "'%s' is neither true nor false", key);
	if (j)
		*ret = json_is_true(j);
	return 0;
}

int member_object(const json_t *object, const char *key, const json_t **ret, struct err *e)
{
	const json_t *j = member(object, key);

	if (j && !json_is_object(j))
		return err_set(e, -EINVAL, "'%s' is not an object", key);
	if (j)
		*ret = j;
	return 0;
}

int size_read(const json_t *message, unsigned int *ret_cols, unsigned int *ret_rows, struct err *e)
{
	const json_t *pty = NULL, *size = NULL;
	uint64_t cols = 0, rows = 0;

	if (member_object(message, "pty", &pty, e) < 0 ||
	    member_object(pty, "size", &size, e) < 0 ||
	    member_number(size, "cols", UINT16_MAX, &cols, e) < 0 ||
	    member_number(size, "rows", UINT16_MAX, &rows, e) < 0)
		return e->num;
	*ret_cols = cols > 0 ? (unsigned int)cols : COLS;
	*ret_rows = rows > 0 ? (unsigned int)rows : ROWS;
	return 0;
}
