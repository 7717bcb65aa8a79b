/* SPDX-License-Identifier: Apache-2.0 */
#include "envd/multipart.h"

#include <string.h>

#include "base/str.h"
#include "fail.h"
#include "unit.h"

#define TYPE "multipart/form-data; boundary=----b0"
#define B    "------b0"

static bool faults; /* faults are armed: the test itself allocates nothing */

/* Renders a body as text: "<name|filename>contents</>" for each part, "." for the end, "!" for
 * an error, "?" if it is incomplete. The body is fed in pieces of `step` after a first one of
 * `first`. */
static int render(const char *type, const char *body, size_t n, size_t first, size_t step,
		  struct buf *out)
{
	struct multipart m;
	struct err e = ERR_INIT;
	size_t at = 0;
	int r = multipart_init(&m, type, &e);

	if (r < 0)
		return r;
	while (at < n && r >= 0) {
		size_t len = MIN(n - at, at == 0 && first ? first : step);
		_cleanup_free_ char *copy = faults ? NULL : unit_copy(body + at, len);
		const char *data = copy ? copy : body + at, *part = NULL;
		size_t left = len, k = 0;

		while ((r = multipart_next(&m, &data, &left, &part, &k, &e)) > 0) {
			if (r == MULTIPART_PART)
				(void)buf_printf(out, "<%s|%s>", m.name,
						 m.filename ? m.filename : "-");
			else if (r == MULTIPART_DATA)
				(void)buf_put(out, part, k);
			else
				(void)buf_puts(out, r == MULTIPART_END ? "." : "</>");
			assert_true(r != MULTIPART_DATA || k > 0);
		}
		assert_true(r < 0 || left == 0);
		at += len;
	}
	if (r == -EBADMSG)
		(void)buf_puts(out, "!");
	else if (r >= 0 && !multipart_whole(&m))
		(void)buf_puts(out, "?");
	multipart_done(&m);
	return r == -ENOMEM || out->err == -ENOMEM ? -ENOMEM : 0;
}

/* Whole, byte by byte, and cut once at each place: always the same result. */
static void expect_n(const char *type, const char *body, size_t n, const char *want)
{
	for (size_t cut = 0; cut <= n; cut++) {
		_cleanup_buf_ struct buf out = BUF_INIT(1 << 20);

		assert_int_equal(render(type, body, n, cut, cut == 0 ? 1 : n, &out), 0);
		assert_string_equal(buf_text(&out), want);
	}
}

static void expect(const char *body, const char *want)
{
	expect_n(TYPE, body, strlen(body), want);
}

#define HEAD(disposition) B "\r\nContent-Disposition: " disposition "\r\n\r\n"
#define FILE_HEAD(name)	  HEAD("form-data; name=\"file\"; filename=\"" name "\"")
#define END		  "\r\n" B "--\r\n"

TEST(test_parts)
{
	expect(FILE_HEAD("/a/b.txt") "hello" END, "<file|/a/b.txt>hello</>.");
	expect(FILE_HEAD("a") "" END, "<file|a></>.");
	expect(FILE_HEAD("a") "1\r\n" FILE_HEAD("b") "2" END, "<file|a>1</><file|b>2</>.");
	expect(FILE_HEAD("a") "x\r\n" B "--", "<file|a>x</>.");
	expect(HEAD("form-data; name=\"other\"") "v" END, "<other|->v</>.");
	expect(B "--\r\n", ".");
	expect(B "\r\nContent-Type: text/plain\r\ncontent-disposition:form-data;name=file;"
		 "filename=x\r\nContent-Transfer-Encoding: binary\r\n\r\n" END,
	       "<file|x></>.");
}

/* Contents that begin like a delimiter. */
TEST(test_almost)
{
	expect(FILE_HEAD("a") "\r\n-----\r\n------b\r\r\n------b1\r\n\r\r\n" END,
	       "<file|a>\r\n-----\r\n------b\r\r\n------b1\r\n\r\r\n</>.");
	expect(FILE_HEAD("a") "\r\r\n" END, "<file|a>\r\r\n</>.");
	expect(FILE_HEAD("a") "------b0\r\n" END, "<file|a>------b0\r\n</>.");
}

TEST(test_all_bytes)
{
	_cleanup_buf_ struct buf body = BUF_INIT(4096), want = BUF_INIT(4096);
	_cleanup_buf_ struct buf out = BUF_INIT(4096);
	char all[512];

	for (size_t i = 0; i < sizeof(all); i++)
		all[i] = (char)i;
	(void)buf_puts(&body, FILE_HEAD("a"));
	(void)buf_put(&body, all, sizeof(all));
	(void)buf_puts(&body, END);
	(void)buf_puts(&want, "<file|a>");
	(void)buf_put(&want, all, sizeof(all));
	(void)buf_puts(&want, "</>.");
	for (size_t step = 1; step < body.len; step += 7) {
		buf_reset(&out);
		assert_int_equal(render(TYPE, body.data, body.len, 0, step, &out), 0);
		assert_int_equal(out.len, want.len);
		assert_memory_equal(out.data, want.data, want.len);
	}
}

TEST(test_names)
{
	expect(FILE_HEAD("/m/2 \xc3\xbc.txt") END, "<file|/m/2 \xc3\xbc.txt></>.");
	expect(FILE_HEAD("a%22b%0D%0ac%25") END, "<file|a\"b\r\nc%25></>.");
	expect(FILE_HEAD("a\\\"b\\\\c\\d") END, "<file|a\"b\\c\\d></>.");
	expect(FILE_HEAD("") END, "<file|></>.");
	expect(HEAD("form-data; name=file;filename=\"a;b=c\"") END, "<file|a;b=c></>.");
}

/* Texts that two readers could parse differently. */
TEST(test_refused)
{
	static const char with_nul[] = HEAD("form-data; name=\"file\0\"");
	static const char *const bodies[] = {
		"preamble\r\n" FILE_HEAD("a") END,
		"\r\n" FILE_HEAD("a") END,
		B " \r\n",
		B "-x",
		B "\nx",
		B "\r\n\r\n", /* no head at all */
		B "\r\nContent-Type: text/plain\r\n\r\n",
		HEAD("attachment; name=\"file\""),
		HEAD("form-data"),
		HEAD("form-data; name=\"file"),
		HEAD("form-data; name="),
		HEAD("form-data; =\"x\""),
		HEAD("form-data name=\"file\""),
		HEAD("form-data; name=\"file\" filename=\"x\""),
		HEAD("form-data; name=\"file\"; name=\"file\""),
		HEAD("form-data; name=\"file\"; filename=\"a\"; filename=\"b\""),
		HEAD("form-data; name=\"file\"; filename=\"a\"; filename*=UTF-8''b"),
		HEAD("form-data; name=\"file\"; filename=\"\xff\""),
		HEAD("form-data; name=\"file\"; filename=\"\x01\""),
		HEAD("form-data; name=\"file\"; filename=\"a\n\""),
		HEAD("form-data; name=\"file\";\r\n filename=\"a\""), /* folded */
		B "\r\nContent-Disposition : form-data; name=\"file\"\r\n\r\n",
		B "\r\nContent-Disposition: form-data; name=\"a\"\r\n"
		  "Content-Disposition: form-data; name=\"file\"\r\n\r\n",
		B "\r\nContent-Disposition: form-data; name=\"file\"\r\n"
		  "Content-Transfer-Encoding: base64\r\n\r\n",
		B "\r\nno field\r\n\r\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++)
		expect(bodies[i], "!");
	expect(FILE_HEAD("a") "x" END "more", "<file|a>x</>.!");
	expect(FILE_HEAD("a") "x" END "\r\n", "<file|a>x</>.!");
	expect(FILE_HEAD("a") "x\r\n" B "\r\r\n", "<file|a>x</>!");
	expect_n(TYPE, with_nul, sizeof(with_nul) - 1, "!");
}

TEST(test_cut_off)
{
	const char *body = FILE_HEAD("a") "hello" END;

	for (size_t n = 0; n < strlen(body); n++) {
		_cleanup_buf_ struct buf out = BUF_INIT(4096);
		bool whole = n == strlen(body) - 2; /* without the last line break */

		assert_int_equal(render(TYPE, body, n, 0, n + 1, &out), 0);
		assert_int_equal(n > 0 && out.len > 0 && out.data[out.len - 1] == '?',
				 n > 0 && !whole);
	}
}

TEST(test_boundary)
{
	static const char *const good[] = {
		"multipart/form-data; boundary=x",
		"Multipart/Form-Data;boundary=\"a b\"",
		"multipart/form-data; charset=utf-8; BOUNDARY=\"(:)\"",
	};
	static const char *const bad[] = {
		"multipart/form-data",
		"multipart/form-data; boundary=",
		"multipart/form-data; boundary=\"\"",
		"multipart/form-data; boundary=\"a \"",
		"multipart/form-data; boundary=\"a\rb\"",
		"multipart/form-data; boundary=\"a",
		"multipart/form-data; boundary=a; boundary=b",
		"multipart/form-data; boundary=a b",
		"multipart/form-data boundary=a",
		"multipart/mixed; boundary=a",
		"text/plain; boundary=a",
		"multipart",
		"",
		("multipart/form-data; boundary="
		 "00000000001111111111222222222233333333334444444444555555555566666666660"),
	};
	struct multipart m;
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(multipart_init(&m, good[i], &e), 0);
		assert_true(multipart_is(good[i]));
		multipart_done(&m);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(multipart_init(&m, bad[i], &e), -EINVAL);
	assert_false(multipart_is("multipart/mixed; boundary=a"));
	assert_false(multipart_is("application/octet-stream"));
}

TEST(test_limits)
{
	_cleanup_buf_ struct buf body = BUF_INIT(1 << 20), out = BUF_INIT(1 << 20);

	(void)buf_puts(&body, B "\r\nX: ");
	for (size_t i = 0; i < MULTIPART_HEAD_MAX; i++)
		(void)buf_putc(&body, 'x');
	assert_int_equal(render(TYPE, body.data, body.len, 0, body.len, &out), 0);
	assert_string_equal(buf_text(&out), "!");
	buf_reset(&body);
	buf_reset(&out);
	for (size_t i = 0; i <= MULTIPART_PARTS_MAX; i++)
		(void)buf_puts(&body, HEAD("form-data; name=\"a\"") "\r\n");
	assert_int_equal(render(TYPE, body.data, body.len, 0, body.len, &out), 0);
	assert_true(str_has_suffix(buf_text(&out), "</>!"));
	assert_int_equal(out.len, MULTIPART_PARTS_MAX * strlen("<a|-></>") + 1);
}

static int all_of_it(void)
{
	static const char body[] = FILE_HEAD("a") "1\r\n" FILE_HEAD("b") "2" END;
	_cleanup_buf_ struct buf out = BUF_INIT(4096);

	return render(TYPE, body, sizeof(body) - 1, 0, 3, &out);
}

TEST(test_faults)
{
	faults = true;
	FAIL_SWEEP(all_of_it());
	faults = false;
}
