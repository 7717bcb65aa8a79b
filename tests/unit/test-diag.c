/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/diag.h"

#include <string.h>

#include "base/str.h"
#include "fail.h"
#include "unit.h"

static const struct source file_a = { "a.yaml", "", 0 }, file_b = { "b.yaml", "", 0 };

static void assert_format(const struct diag *g, const char *want)
{
	_cleanup_buf_ struct buf b = BUF_INIT(4096);

	assert_int_equal(diag_format(g, &b), 0);
	assert_string_equal(buf_text(&b), want);
}

TEST(formats)
{
	_cleanup_diags_ struct diags d = { 0 };

	diag_add(&d, DIAG_ERROR, (struct pos){ &file_a, 3, 7 }, "egress.domains[2]",
		 "did you mean 'x'?", "%s is %d", "what", 5);
	diag_add(&d, DIAG_WARNING, (struct pos){ &file_b, 1, 1 }, "", NULL, "odd");
	assert_format(&d.list[0],
		      "a.yaml:3:7: error: egress.domains[2]: what is 5; did you mean 'x'?");
	assert_format(&d.list[1], "b.yaml:1:1: warning: odd");
}

TEST(one_line_whatever_is_in_it)
{
	static const struct source evil = { "e\x1b[2J\n.yaml", "", 0 };
	_cleanup_diags_ struct diags d = { 0 };

	diag_add(&d, DIAG_ERROR, (struct pos){ &evil, 1, 1 }, "a\nb", "\xe2\x80\xae", "%s",
		 "back\\slash \xff\t");
	assert_format(&d.list[0], "e\\x1b[2J\\n.yaml:1:1: error: a\\nb: back\\\\slash ?\\t; "
				  "\\u{202e}");
}

TEST(a_full_buffer_is_an_error)
{
	_cleanup_diags_ struct diags d = { 0 };
	_cleanup_buf_ struct buf b = BUF_INIT(20);

	diag_add(&d, DIAG_ERROR, (struct pos){ &file_a, 1, 1 }, "", NULL, "text");
	assert_int_equal(diag_format(&d.list[0], &b), -ENOBUFS);
}

TEST(text_is_copied_and_cut)
{
	_cleanup_diags_ struct diags d = { 0 };
	char text[600], key[] = "key", hint[] = "hint";

	memset(text, 'x', sizeof(text));
	memcpy(text + 510, "\xc3\xa4", 2); /* truncated in the middle */
	text[sizeof(text) - 1] = '\0';
	diag_add(&d, DIAG_ERROR, (struct pos){ &file_a, 1, 1 }, key, hint, "%s", text);
	memset(text, 'y', 20);
	key[0] = hint[0] = '?';
	assert_int_equal(strlen(d.list[0].text), 511);
	assert_int_equal(strspn(d.list[0].text, "x"), 510);
	assert_int_equal(d.list[0].text[510], '?');
	assert_string_equal(d.list[0].key, "key");
	assert_string_equal(d.list[0].hint, "hint");
}

TEST(sorts_as_one_reads)
{
	static const struct {
		const struct source *src;
		uint32_t line, column;
		const char *text;
	} in[] = {
		{ &file_b, 1, 1, "6" },	 { &file_a, 2, 1, "4" },  { &file_a, 1, 9, "2" },
		{ &file_a, 1, 10, "3" }, { &file_a, 10, 1, "5" }, { &file_b, 1, 1, "7" },
		{ &file_a, 1, 1, "1" },
	};
	_cleanup_diags_ struct diags d = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(in); i++)
		diag_add(&d, DIAG_WARNING, (struct pos){ in[i].src, in[i].line, in[i].column }, "",
			 NULL, "%s", in[i].text);
	diags_sort(&d);
	for (size_t i = 0; i < d.n; i++)
		assert_int_equal(d.list[i].text[0], '1' + (int)i);
}

TEST(results)
{
	_cleanup_diags_ struct diags d = { 0 };

	assert_int_equal(diags_result(&d), 0);
	diag_add(&d, DIAG_WARNING, (struct pos){ &file_a, 1, 1 }, "", NULL, "w");
	assert_int_equal(diags_result(&d), 0);
	diag_add(&d, DIAG_ERROR, (struct pos){ &file_a, 1, 1 }, "", NULL, "e");
	assert_int_equal(diags_result(&d), -EINVAL);
	assert_int_equal(d.errors, 1);
	d.oom = true;
	assert_int_equal(diags_result(&d), -ENOMEM);
	diags_done(&d);
	assert_int_equal(d.n, 0);
	assert_int_equal(diags_result(&d), 0);
}

TEST(the_list_is_bounded_and_counts_on)
{
	_cleanup_diags_ struct diags d = { 0 };

	for (uint32_t i = 0; i < DIAG_MAX; i++)
		diag_add(&d, DIAG_WARNING, (struct pos){ &file_a, i + 1, 1 }, "", NULL, "w");
	assert_int_equal(d.dropped, 0);
	diag_add(&d, DIAG_WARNING, (struct pos){ &file_a, 900, 1 }, "", NULL, "w");
	assert_int_equal(diags_result(&d), 0);
	/* An error beyond the limit still counts. */
	diag_add(&d, DIAG_ERROR, (struct pos){ &file_a, 901, 1 }, "", NULL, "e");
	assert_int_equal(d.n, DIAG_MAX);
	assert_int_equal(d.dropped, 2);
	assert_int_equal(d.errors, 1);
	assert_int_equal(diags_result(&d), -EINVAL);
	diags_sort(&d);
	assert_int_equal(d.list[DIAG_MAX - 1].pos.line, DIAG_MAX);
}

TEST(what_cannot_be_noted_is_not_forgotten)
{
	_cleanup_diags_ struct diags d = { 0 };

	fail_arm(1, EIO);
	diag_add(&d, DIAG_ERROR, (struct pos){ &file_a, 1, 1 }, "k", "h", "e");
	fail_off();
	assert_true(fail_reached());
	assert_true(d.oom);
	assert_int_equal(d.n, 0);
	assert_int_equal(d.errors, 1);
	assert_int_equal(diags_result(&d), -ENOMEM);
}
