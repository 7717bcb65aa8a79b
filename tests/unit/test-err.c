/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/err.h"
#include "base/str.h"

TEST(sets_number_and_message)
{
	struct err e = ERR_INIT;

	assert_int_equal(e.num, 0);
	assert_string_equal(e.msg, "");
	assert_int_equal(err_set(&e, -EINVAL, "bad %s %d", "thing", 7), -EINVAL);
	assert_int_equal(e.num, -EINVAL);
	assert_string_equal(e.msg, "bad thing 7");
}

TEST(the_old_message_may_be_an_argument)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, -EIO, "QEMU exited");
	assert_int_equal(err_set(&e, e.num, "%.*s: %s", 100, e.msg, "no memory"), -EIO);
	assert_string_equal(e.msg, "QEMU exited: no memory");
	(void)err_set(&e, e.num, "start: %s", e.msg);
	assert_string_equal(e.msg, "start: QEMU exited: no memory");
	errno = ENOENT;
	(void)err_errno(&e, "again: %s", e.msg);
	assert_string_equal(e.msg,
			    "again: start: QEMU exited: no memory: No such file or directory");
	(void)err_wrap(&e, "'%.5s'", e.msg);
	assert_string_equal(
		e.msg, "'again': again: start: QEMU exited: no memory: No such file or directory");
}

TEST(a_message_that_just_fits_is_whole)
{
	struct err e = ERR_INIT;
	char text[ERR_MSG_MAX];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_set(&e, -EIO, "%s", text);
	assert_string_equal(e.msg, text);
}

TEST(a_long_message_ends_in_dots)
{
	struct err e = ERR_INIT;
	char text[2 * ERR_MSG_MAX];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_set(&e, -EIO, "%s", text);
	assert_int_equal(strlen(e.msg), ERR_MSG_MAX - 1);
	assert_string_equal(e.msg + ERR_MSG_MAX - 5, "x...");
}

TEST(a_cut_does_not_split_a_character)
{
	/* Every offset of a four-byte character at the end of the buffer. */
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

TEST(bytes_that_are_no_text_are_cut_too)
{
	struct err e = ERR_INIT;
	char text[2 * ERR_MSG_MAX];

	memset(text, 0x80, sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	(void)err_set(&e, -EIO, "%s", text);
	assert_string_equal(e.msg, "...");
}

TEST(errno_is_added)
{
	struct err e = ERR_INIT;

	errno = ENOENT;
	assert_int_equal(err_errno(&e, "cannot open '%s'", "x"), -ENOENT);
	assert_int_equal(e.num, -ENOENT);
	assert_string_equal(e.msg, "cannot open 'x': No such file or directory");
}

TEST(no_errno_is_still_an_error)
{
	struct err e = ERR_INIT;

	errno = 0;
	assert_int_equal(err_errno(&e, "odd"), -EIO);
}

TEST(wrapping_keeps_the_number)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, -EPERM, "not allowed");
	assert_int_equal(err_wrap(&e, "starting '%s'", "a"), -EPERM);
	assert_int_equal(err_wrap(&e, "run"), -EPERM);
	assert_int_equal(e.num, -EPERM);
	assert_string_equal(e.msg, "run: starting 'a': not allowed");
}

TEST(wrapping_a_full_message_keeps_its_beginning)
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

TEST(out_of_memory)
{
	struct err e = ERR_INIT;

	assert_int_equal(err_oom(&e), -ENOMEM);
	assert_string_equal(e.msg, "out of memory");
}

TEST(a_format_that_fails_gives_no_text)
{
	static const wchar_t lone[] = { 0xd800, 0 }; /* a surrogate, which no locale can write */
	struct err e = ERR_INIT;

	assert_int_equal(err_set(&e, -EIO, "%ls", lone), -EIO);
	assert_string_equal(e.msg, "");
}
