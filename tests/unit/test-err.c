/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "err.h"
#include "str.h"

static void sets_number_and_message(void **state)
{
	struct err e = ERR_INIT;

	assert_int_equal(e.num, 0);
	assert_string_equal(e.msg, "");
	assert_int_equal(err_set(&e, -EINVAL, "bad %s %d", "thing", 7), -EINVAL);
	assert_int_equal(e.num, -EINVAL);
	assert_string_equal(e.msg, "bad thing 7");
}

static void a_message_that_just_fits_is_whole(void **state)
{
	struct err e = ERR_INIT;
	char text[ERR_MSG_MAX];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_set(&e, -EIO, "%s", text);
	assert_string_equal(e.msg, text);
}

static void a_long_message_ends_in_dots(void **state)
{
	struct err e = ERR_INIT;
	char text[2 * ERR_MSG_MAX];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_set(&e, -EIO, "%s", text);
	assert_int_equal(strlen(e.msg), ERR_MSG_MAX - 1);
	assert_string_equal(e.msg + ERR_MSG_MAX - 5, "x...");
}

static void a_cut_does_not_split_a_character(void **state)
{
	/* All offsets of a four-byte character against the end. */
	for (int shift = 0; shift < 4; shift++) {
		char text[2 * ERR_MSG_MAX] = "";
		struct err e = ERR_INIT;

		memset(text, 'x', (size_t)shift);
		while (strlen(text) + 5 < sizeof(text))
			strncat(text, "\xf0\x9f\x90\xb0", 5);
		(void)err_set(&e, -EIO, "%s", text);
		assert_true(utf8_valid(e.msg, strlen(e.msg)));
		assert_true(str_has_suffix(e.msg, "\x9f\x90\xb0..."));
		assert_in_range(strlen(e.msg), ERR_MSG_MAX - 4, ERR_MSG_MAX - 1);
	}
}

static void bytes_that_are_no_text_are_cut_too(void **state)
{
	struct err e = ERR_INIT;
	char text[2 * ERR_MSG_MAX];

	memset(text, 0x80, sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_set(&e, -EIO, "%s", text);
	assert_string_equal(e.msg, "...");
}

static void errno_is_added(void **state)
{
	struct err e = ERR_INIT;

	errno = ENOENT;
	assert_int_equal(err_errno(&e, "cannot open '%s'", "x"), -ENOENT);
	assert_int_equal(e.num, -ENOENT);
	assert_string_equal(e.msg, "cannot open 'x': No such file or directory");
}

static void no_errno_is_still_an_error(void **state)
{
	struct err e = ERR_INIT;

	errno = 0;
	assert_int_equal(err_errno(&e, "odd"), -EIO);
}

static void wrapping_keeps_the_number(void **state)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, -EPERM, "not allowed");
	assert_int_equal(err_wrap(&e, "starting '%s'", "a"), -EPERM);
	assert_int_equal(err_wrap(&e, "run"), -EPERM);
	assert_int_equal(e.num, -EPERM);
	assert_string_equal(e.msg, "run: starting 'a': not allowed");
}

static void wrapping_a_full_message_keeps_its_beginning(void **state)
{
	struct err e = ERR_INIT;
	char text[ERR_MSG_MAX];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_set(&e, -EIO, "%s", text);
	(void)err_wrap(&e, "context");
	assert_true(str_has_prefix(e.msg, "context: xxx"));
	assert_true(str_has_suffix(e.msg, "x..."));
}

static void out_of_memory(void **state)
{
	struct err e = ERR_INIT;

	assert_int_equal(err_oom(&e), -ENOMEM);
	assert_string_equal(e.msg, "out of memory");
}

static void a_format_that_fails_gives_no_text(void **state)
{
	static const wchar_t lone[] = { 0xd800, 0 }; /* a surrogate: no locale can write it */
	struct err e = ERR_INIT;

	assert_int_equal(err_set(&e, -EIO, "%ls", lone), -EIO);
	assert_string_equal(e.msg, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sets_number_and_message),
		cmocka_unit_test(a_message_that_just_fits_is_whole),
		cmocka_unit_test(a_long_message_ends_in_dots),
		cmocka_unit_test(a_cut_does_not_split_a_character),
		cmocka_unit_test(bytes_that_are_no_text_are_cut_too),
		cmocka_unit_test(errno_is_added),
		cmocka_unit_test(no_errno_is_still_an_error),
		cmocka_unit_test(wrapping_keeps_the_number),
		cmocka_unit_test(wrapping_a_full_message_keeps_its_beginning),
		cmocka_unit_test(out_of_memory),
		cmocka_unit_test(a_format_that_fails_gives_no_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
