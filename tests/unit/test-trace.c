/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/str.h"
#include "base/trace.h"
#include "fail.h"

enum {
	LINES_MAX = 64,
};

static struct {
	struct trace_line line[LINES_MAX];
	size_t n;
} seen;

static void keep(void *arg, const struct trace_line *line)
{
	assert_true(seen.n < LINES_MAX);
	seen.line[seen.n++] = *line;
	TRACE(TRACE_FRAME, "caused by a line"); /* would never end */
}

static int begin(void **state)
{
	memset(&seen, 0, sizeof(seen));
	trace_set_process("test");
	trace_set_sandbox("box");
	trace_set_request("");
	trace_to(keep, NULL);
	return 0;
}

static int end(void **state)
{
	trace_to(NULL, NULL);
	return 0;
}

#ifdef HUTCH_TRACE
TEST_WITH(a_line_says_who_and_when, begin, end)
{
	const struct trace_line *l = seen.line;

	TRACE(TRACE_STATE, "one %d", 1);
	trace_set_request("r1");
	TRACE(TRACE_NOTE, "two");
	TRACE_OF("r2", TRACE_NOTE, "three");
	assert_int_equal(seen.n, 3);
	assert_string_equal(l[0].process, "test");
	assert_string_equal(l[0].sandbox, "box");
	assert_string_equal(l[0].request, "");
	assert_string_equal(l[0].text, "one 1");
	assert_string_equal(l[1].request, "r1");
	assert_string_equal(l[2].request, "r2");
	assert_true(l[0].us > 0 && l[0].us <= l[1].us);
}

TEST_WITH(steps_are_timed, begin, end)
{
	assert_int_equal(trace_step("first"), 0);
	assert_int_equal(seen.line[0].kind, TRACE_TIME);
	assert_true(str_has_prefix(seen.line[0].text, "first, "));
	assert_true(str_has_suffix(seen.line[0].text, " us"));
}
#endif

static int evaluated(void)
{
	fail_msg("an argument of a line that nobody wants");
	return 0;
}

TEST_WITH(off_evaluates_nothing, begin, end)
{
	trace_to(NULL, NULL);
	TRACE(TRACE_STATE, "%d", evaluated());
	assert_int_equal(seen.n, 0);
}

TEST_WITH(errno_stays, begin, end)
{
	errno = ENOTTY;
	TRACE(TRACE_STATE, "x");
	assert_int_equal(errno, ENOTTY);
}

/* No newline, no escape sequence, no partial character. */
TEST(bytes_of_strangers_are_escaped_and_cut)
{
	char much[2 * TRACE_TEXT_MAX];
	struct trace_line l = { 0 };

	trace_fill(&l, TRACE_STATE, "a\nb\033[1m\xff\\", 9);
	assert_string_equal(l.text, "a\\nb\\x1b[1m\\xff\\\\");
	memset(much, 0xff, sizeof(much));
	trace_fill(&l, TRACE_STATE, much, sizeof(much));
	assert_int_equal(strlen(l.text), TRACE_TEXT_MAX / 4 * 4);
	memset(much, 'x', sizeof(much));
	trace_fill(&l, TRACE_STATE, much, sizeof(much));
	assert_int_equal(strlen(l.text), TRACE_TEXT_MAX);
}

TEST(text_and_back)
{
	struct trace_line l = { .us = 8123000042, .kind = TRACE_VERDICT, .process = "keeper" },
			  back;
	char text[TRACE_LINE_MAX];
	size_t n;

	memset(l.sandbox, 's', TRACE_ID_MAX);
	memset(l.text, 't', TRACE_TEXT_MAX);
	n = trace_format(&l, text);
	assert_int_equal(text[n - 1], '\n');
	assert_int_equal(trace_parse(text, n - 1, &back), 0);
	assert_memory_equal(&l, &back, sizeof(l));
	(void)snprintf(l.text, sizeof(l.text), "denied");
	l.sandbox[0] = '\0';
	(void)trace_format(&l, text);
	assert_string_equal(text, "8123.000042 keeper - - verdict denied\n");
}

TEST(what_is_no_line)
{
	static const char *const wrong[] = {
		"",
		"2026-11-15T08:00:00Z hutch-keeper[1] error: text",
		"1.000001 keeper - -",
		"1.000001 keeper - - unknown text",
		"1.00001 keeper - - state text",
		"1.0000x1 keeper - - state text",
		"1000001 keeper - - state text",
		"-1.000001 keeper - - state text",
		"1.000001 a-process-with-a-name - - state text",
		"1.000001 keeper 0123456789012345678901234567890123 - state text",
		"1.000001 kee\001r - - state text",
	};
	struct trace_line l;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		if (trace_parse(wrong[i], strlen(wrong[i]), &l) != -EINVAL)
			fail_msg("taken for a line: %s", wrong[i]);
	assert_int_equal(trace_parse("1.000001 keeper - - state ", 26, &l), 0);
	assert_int_equal(trace_parse("1.000001 keeper - - state a\0b", 29, &l), -EINVAL);
	assert_int_equal(trace_parse("1.000001 keeper - - state \033[2J", 30, &l), -EINVAL);
	assert_int_equal(trace_parse("1.000001 keeper - - state \xc2\x9b", 28, &l), -EINVAL);
	assert_int_equal(trace_parse("1.000001 keeper - - state \xc3\xa4", 28, &l), 0);
}

static void collect(void *arg, const char *line, size_t n)
{
	struct buf *b = arg;

	assert_true(n <= TRACE_LINE_MAX);
	(void)buf_printf(b, "[%.*s]", (int)MIN(n, (size_t)8), line);
}

TEST(lines_from_pieces)
{
	_cleanup_buf_ struct buf b = BUF_INIT(1000);
	struct trace_lines l = { 0 };
	char much[2 * TRACE_LINE_MAX];

	trace_feed(&l, "ab", 2, collect, &b);
	trace_feed(&l, "c\n\nd", 4, collect, &b);
	trace_feed(&l, "\n", 1, collect, &b);
	assert_string_equal(buf_text(&b), "[abc][][d]");
	memset(much, 'x', sizeof(much));
	trace_feed(&l, much, sizeof(much), collect, &b);
	trace_feed(&l, "\nlast\n", 6, collect, &b);
	assert_string_equal(buf_text(&b), "[abc][][d][xxxxxxxx][last]");
}

TEST(request_ids_differ)
{
	char a[TRACE_REQUEST + 1], b[TRACE_REQUEST + 1];

	trace_new_request(a);
	trace_new_request(b);
	assert_int_equal(strspn(a, "0123456789abcdef"), TRACE_REQUEST);
	assert_string_not_equal(a, b);
}
