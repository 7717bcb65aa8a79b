/* SPDX-License-Identifier: Apache-2.0 */
/* Valid names of images, and names that a received image claims. */
#include "unit.h"

#include <string.h>

#include "fail.h"
#include "image/image-make.h"

#define LONG63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

TEST(names)
{
	static const char *const good[] = {
		"a",	       "0",
		"my-template", "my_template",
		"a-",	       "ubuntu:22.04",
		"a:b",	       "a:B",
		"a:0",	       "a:b.json",
		"a:b..c",      "a:x_-.",
		LONG63,	       LONG63 ":" LONG63,
	};
	static const char *const bad[] = {
		"",	      ":",	  "a:",
		":a",	      "-a",	  "_a",
		".a",	      "a.b",	  "A",
		"a:b:c",      "a::b",	  "a:.",
		"a:..",	      "a:.b",	  "a:-b",
		"a:_b",	      "a/b",	  "a:b/c",
		"../a",	      "a:../b",	  "a b",
		"a\n",	      "a:b\n",	  "\xc3\xa4",
		"a:\xc3\xa4", LONG63 "a", "a:" LONG63 "a",
	};

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_true(image_name_valid(good[i]));
		assert_true(strlen(good[i]) <= IMAGE_NAME_MAX);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(image_name_valid(bad[i]));
}

static int ended(void *arg, int r, struct err *e)
{
	return 0;
}

/* Refused before anything is read or created; the pipe is closed nevertheless. */
TEST(what_is_said_is_checked)
{
	static char large[IMAGE_TEXT_MAX + 10];
	static const char *const no_value[] = { "A", NULL }, *const no_name[] = { "=a", NULL },
				 *const not_utf8[] = { "A=\xff", NULL };
	const struct {
		const char *name, *says;
		struct image_config config;
	} cases[] = {
		{ "a/b", "is not a name", { 0 } },
		{ "a", "NAME=value", { .env = no_value } },
		{ "a", "NAME=value", { .env = no_name } },
		{ "a", "not UTF-8", { .env = not_utf8 } },
		{ "a", "not absolute", { .workdir = "x" } },
		{ "a", "user has more than 4096 bytes", { .user = large } },
		{ "a", "start has more than 4096 bytes", { .start = large } },
		{ "a", "ready is not UTF-8", { .ready = "\xc3" } },
	};
	const struct image_store store = IMAGE_STORE_INIT;

	memset(large, 'x', sizeof(large) - 1);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t fds = fail_count_fds();
		struct err e = ERR_INIT;
		struct image_done done;
		struct image_stream s = { .store = &store,
					  .name = cases[i].name,
					  .sandbox = "x",
					  .config = cases[i].config,
					  .ended = ended };
		int p[2];

		assert_int_equal(pipe(p), 0);
		s.input = p[0];
		assert_int_equal(image_import_stream(&s, &done, &e), -EINVAL);
		assert_non_null(strstr(e.msg, cases[i].says));
		(void)close(p[1]);
		assert_int_equal(fail_count_fds(), fds);
	}
}
