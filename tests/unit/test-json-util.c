/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/json-util.h"
#include "base/str.h"
#include "fail.h"

/* Parses exactly the bytes of the text; NULL and `e` if refused. */
static json_t *read_n(const char *text, size_t n, struct err *e)
{
	_cleanup_free_ char *raw = unit_copy(text, n);
	json_t *j = NULL;
	int r = json_read(raw, n, &j, e);

	assert_true((r == 0) == (j != NULL));
	assert_int_equal(r, e->num);
	return j;
}

static json_t *read_text(const char *text)
{
	struct err e = ERR_INIT;
	json_t *j = read_n(text, strlen(text), &e);

	assert_non_null(j);
	return j;
}

TEST(values_of_all_kinds)
{
	static const char *const good[] = { "null",    "true", "0",
					    "-1",      "1.5",  "\"x\"",
					    " [ ] \n", "{}",   "9223372036854775807" };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		_cleanup_json_ json_t *j = read_text(good[i]);

		assert_non_null(j);
	}
}

TEST(refused)
{
	static const char *const bad[] = {
		"",
		" ",
		"{",
		"[1,]",
		"{\"a\":1,}",
		"'x'",
		"nul",
		"01",
		"1 2", /* behind the value */
		"{} x",
		"{\"a\":1,\"a\":2}", /* duplicate */
		"{\"a\":1,\"\\u0061\":2}",
		"\"\xff\"", /* not UTF-8 */
		"\"\xc0\x80\"",
		"\"\xed\xa0\x80\"",
		"\"\\ud800\"", /* half a pair */
		"\"\\u0000\"", /* NUL */
		"{\"\\u0000\":1}",
		"\"\n\"",	       /* raw control */
		"9223372036854775808", /* past 64 bits */
		"1e999",
		"// no comments\n1",
		"NaN",
		"\xef\xbb\xbf{}",
		"]]]]",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err e = ERR_INIT;

		assert_null(read_n(bad[i], strlen(bad[i]), &e));
		assert_int_equal(e.num, -EINVAL);
		assert_true(str_has_prefix(e.msg, "line "));
	}
}

TEST(a_nul_byte_is_no_end)
{
	struct err e = ERR_INIT;

	assert_null(read_n("{}\0", 3, &e));
	assert_int_equal(e.num, -EINVAL);
}

TEST(the_position_is_told)
{
	struct err e = ERR_INIT;

	assert_null(read_n("{\n \"a\": ?}", 10, &e));
	assert_true(str_has_prefix(e.msg, "line 2 column 7: "));
}

TEST(depth)
{
	char text[2 * JSON_DEPTH_MAX + 2];
	struct err e = ERR_INIT;
	json_t *j;

	memset(text, '[', JSON_DEPTH_MAX);
	memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	j = read_n(text, 2 * JSON_DEPTH_MAX, &e);
	assert_non_null(j);
	json_decref(j);
	memset(text, '[', JSON_DEPTH_MAX + 1);
	memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
	assert_null(read_n(text, 2 * JSON_DEPTH_MAX + 2, &e));
	assert_int_equal(e.num, -EINVAL);
	assert_string_equal(e.msg, "byte 32: JSON nested deeper than 32");
}

TEST(brackets_in_text_do_not_count)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1000);
	struct err e = ERR_INIT;
	json_t *j;

	(void)buf_puts(&b, "[\"\\\"");
	for (int i = 0; i < 100; i++)
		(void)buf_puts(&b, "[{");
	assert_int_equal(buf_puts(&b, "\\\\\", [], {}]"), 0);
	j = read_n(b.data, b.len, &e);
	assert_non_null(j);
	json_decref(j);
	/* Siblings do not count as depth. */
	buf_reset(&b);
	(void)buf_puts(&b, "[0");
	for (int i = 0; i < 100; i++)
		(void)buf_puts(&b, ",[],{}");
	assert_int_equal(buf_puts(&b, "]"), 0);
	j = read_n(b.data, b.len, &e);
	assert_non_null(j);
	json_decref(j);
}

TEST(size)
{
	_cleanup_free_ char *text = malloc(JSON_SIZE_MAX + 1);
	struct err e = ERR_INIT;
	json_t *j = NULL;

	memset(text, ' ', JSON_SIZE_MAX + 1);
	text[0] = '1';
	assert_int_equal(json_read(text, JSON_SIZE_MAX + 1, &j, &e), -EFBIG);
	assert_null(j);
	assert_int_equal(json_read(text, JSON_SIZE_MAX, &j, &e), 0);
	json_decref(j);
}

TEST(writing_is_canonical)
{
	_cleanup_json_ json_t *j =
		read_text("{\"b\":[1,{}],\"a\":\"\\u00fc\\ud83d\\udc30\",\"B\":null,\"aa\":1.5}");
	_cleanup_free_ char *text = json_write_canonical(j), *line = json_write_line(j);

	assert_string_equal(text, "{\n  \"B\": null,\n  \"a\": \"\\u00FC\\uD83D\\uDC30\",\n"
				  "  \"aa\": 1.5,\n  \"b\": [\n    1,\n    {}\n  ]\n}");
	assert_string_equal(line,
			    "{\"B\":null,\"a\":\"\\u00FC\\uD83D\\uDC30\",\"aa\":1.5,\"b\":[1,{}]}");
}

TEST(what_is_written_reads_back)
{
	_cleanup_json_ json_t *j = read_text("{\"x\":[true,null,-7,0.1,\"\\\"\\\\\\n\"],\"\":{}}");
	_cleanup_free_ char *text = json_write_canonical(j), *again = NULL;
	_cleanup_json_ json_t *back = read_text(text);

	assert_true(json_equal(j, back));
	again = json_write_canonical(back);
	assert_string_equal(text, again);
}

TEST(only_keys)
{
	static const char *const keys[] = { "a", "b", NULL }, *const none[] = { NULL };
	_cleanup_json_ json_t *j = read_text("{\"a\":1,\"c\":2}"), *array = read_text("[]"),
			      *empty = read_text("{}"), *good = read_text("{\"b\":1}");
	struct err e = ERR_INIT;

	assert_int_equal(json_only_keys(good, keys, &e), 0);
	assert_int_equal(json_only_keys(empty, none, &e), 0);
	assert_int_equal(json_only_keys(j, keys, &e), -EINVAL);
	assert_string_equal(e.msg, "unknown key 'c'");
	assert_int_equal(json_only_keys(array, keys, &e), -EINVAL);
	assert_int_equal(json_only_keys(NULL, keys, &e), -EINVAL);
}

TEST(strings)
{
	_cleanup_json_ json_t *j = read_text("{\"s\":\"four\",\"n\":1,\"e\":\"\"}");
	const char *s = "untouched";
	struct err e = ERR_INIT;

	assert_int_equal(json_get_string(j, "none", 10, &s, &e), -ENOENT);
	assert_string_equal(e.msg, "'none' is missing");
	assert_int_equal(json_get_string(j, "n", 10, &s, &e), -EINVAL);
	assert_int_equal(json_get_string(j, "s", 3, &s, &e), -EINVAL);
	assert_string_equal(e.msg, "'s' is longer than 3 bytes");
	assert_string_equal(s, "untouched");
	assert_int_equal(json_get_string(j, "s", 4, &s, &e), 0);
	assert_string_equal(s, "four");
	assert_int_equal(json_get_string(j, "e", 0, &s, &e), 0);
	assert_string_equal(s, "");
}

TEST(numbers)
{
	_cleanup_json_ json_t *j =
		read_text("{\"n\":5,\"m\":-1,\"r\":1.0,\"s\":\"5\",\"x\":9223372036854775807}");
	uint64_t v = 77;
	struct err e = ERR_INIT;

	assert_int_equal(json_get_u64(j, "none", 10, &v, &e), -ENOENT);
	assert_int_equal(json_get_u64(j, "m", 10, &v, &e), -EINVAL);
	assert_int_equal(json_get_u64(j, "r", 10, &v, &e), -EINVAL);
	assert_int_equal(json_get_u64(j, "s", 10, &v, &e), -EINVAL);
	assert_int_equal(json_get_u64(j, "n", 4, &v, &e), -EINVAL);
	assert_string_equal(e.msg, "'n' is more than 4");
	assert_int_equal(v, 77);
	assert_int_equal(json_get_u64(j, "n", 5, &v, &e), 0);
	assert_int_equal(v, 5);
	assert_int_equal(json_get_u64(j, "x", UINT64_MAX, &v, &e), 0);
	assert_true(v == INT64_MAX);
}

TEST(booleans)
{
	_cleanup_json_ json_t *j = read_text("{\"t\":true,\"f\":false,\"n\":0}");
	bool v = true;
	struct err e = ERR_INIT;

	assert_int_equal(json_get_bool(j, "none", &v, &e), -ENOENT);
	assert_int_equal(json_get_bool(j, "n", &v, &e), -EINVAL);
	assert_true(v);
	assert_int_equal(json_get_bool(j, "f", &v, &e), 0);
	assert_false(v);
	assert_int_equal(json_get_bool(j, "t", &v, &e), 0);
	assert_true(v);
}

TEST(building)
{
	_cleanup_json_ json_t *obj = json_object(), *list = json_array();

	assert_int_equal(json_put(obj, "a", json_integer(1)), 0);
	assert_int_equal(json_put(obj, "a", json_true()), 0); /* replaces */
	assert_int_equal(json_put(obj, "b", NULL), -ENOMEM);
	assert_int_equal(json_put(NULL, "b", json_integer(1)), -ENOMEM); /* still frees it */
	assert_int_equal(json_push(list, json_string("x")), 0);
	assert_int_equal(json_push(list, NULL), -ENOMEM);
	assert_int_equal(json_push(NULL, json_integer(1)), -ENOMEM);
	assert_int_equal(json_object_size(obj), 1);
	assert_int_equal(json_array_size(list), 1);
}

static int build_write_read(void)
{
	_cleanup_json_ json_t *obj = json_object(), *back = NULL;
	_cleanup_free_ char *text = NULL;
	json_t *list = json_array();
	struct err e = ERR_INIT;
	int r = 0;

	r |= json_push(list, json_string("some text"));
	/* 32 bytes with its quotes: jansson's buffer grows for the last quote. */
	r |= json_push(list, json_string("2026-11-15T20:10:56.106459942Z"));
	r |= json_push(list, json_pack("{s:i}", "k", 1));
	r |= json_put(obj, "list", list);
	r |= json_put(obj, "real", json_real(1.5));
	if (r < 0)
		return -ENOMEM;
	text = json_write_canonical(obj);
	if (!text)
		return -ENOMEM;
	r = json_read(text, strlen(text), &back, &e);
	assert_true(r == 0 || r == -ENOMEM);
	assert_true(r < 0 || json_equal(obj, back));
	return r;
}

TEST(no_memory)
{
	FAIL_SWEEP(build_write_read());
}
