/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/json-util.h"
#include "base/str.h"
#include "fail.h"
#include "secret/change.h"

#define VALUE "ghp_0123456789abcdef"

static const struct secret_origin piped = { .source = SECRET_STDIN };
static const char *const command[] = { "pass", "show", "a b", "\xc3\xa9" };
static const struct secret_origin run = { .source = SECRET_EXEC,
					  .command = command,
					  .n = ARRAY_SIZE(command) };

static int setup(void **state)
{
	struct unit_dir *d;

	if (unit_dir_setup(state) < 0)
		return -1;
	d = *state;
	return setenv("HUTCH_STATE_DIR", d->path, 1);
}

static struct secret_store opened(void)
{
	struct secret_store s = SECRET_STORE_INIT;
	struct err e = ERR_INIT;

	assert_int_equal(secret_store_open(true, &s, &e), 0);
	return s;
}

static int set_with(const struct secret_store *s, const char *name, const char *value,
		    const struct secret_origin *o, enum secret_how how, struct err *e)
{
	_cleanup_secret_ struct buf b = BUF_INIT(SECRET_VALUE_MAX + 1);

	*e = (struct err)ERR_INIT;
	if (buf_puts(&b, value) < 0)
		return b.err;
	return secret_set(s, name, &b, o, how, e);
}

static void set(const struct secret_store *s, const char *name, const char *value)
{
	struct err e;

	assert_int_equal(set_with(s, name, value, &piped, SECRET_REPLACE, &e), 0);
}

/* Returns 0 and compares, or the error. */
static int check_value(const struct secret_store *s, const char *name, const char *value,
		       struct err *e)
{
	_cleanup_secret_ struct buf b = BUF_INIT(SECRET_VALUE_MAX);
	int r;

	*e = (struct err)ERR_INIT;
	r = secret_get(s, name, &b, e);
	if (r == 0)
		assert_string_equal(buf_text(&b), value);
	else
		assert_int_equal(b.len, 0);
	return r;
}

static void assert_value(const struct secret_store *s, const char *name, const char *value)
{
	struct err e;

	assert_int_equal(check_value(s, name, value, &e), 0);
}

static size_t read_text(const struct secret_store *s, const char *file, char *out, size_t n)
{
	struct buf b = BUF_INIT(n - 1);
	struct err e = ERR_INIT;
	size_t len;

	assert_int_equal(fd_read_file(s->dir, file, &b, &e), 0);
	len = b.len;
	memcpy(out, buf_text(&b), len + 1);
	buf_done(&b);
	return len;
}

static void write_text(const struct secret_store *s, const char *file, const char *text)
{
	struct err e = ERR_INIT;

	assert_int_equal(fd_replace_file(s->dir, file, 0600, text, strlen(text), &e), 0);
}

static bool exists(const struct secret_store *s, const char *file)
{
	return faccessat(s->dir, file, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- text ---- */

TEST(names)
{
	static const char *const good[] = { "A", "_", "a1", "GITHUB_TOKEN", "__", "key", "lock" };
	static const char *const bad[] = { "",	  "1A", "a-b",	"a.b",	    "a b",
					   "a/b", "..", "a\nb", "\xc3\xa9", "A=b" };
	char longest[SECRET_NAME_MAX + 2] = "";
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(secret_name_check(good[i], &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(secret_name_check(bad[i], &e), -EINVAL);
	memset(longest, 'x', SECRET_NAME_MAX);
	assert_int_equal(secret_name_check(longest, &e), 0);
	longest[SECRET_NAME_MAX] = 'x';
	assert_int_equal(secret_name_check(longest, &e), -EINVAL);
}

TEST(values)
{
	static const struct unit_row bad[] = {
		{ "", "empty" },
		{ "1234567", "shorter than 8 bytes" },
		{ "12345678\n", "more than one line" },
		{ "1234\r5678", "more than one line" },
		{ "1234\t5678", "control character (0x09)" },
		{ "1234\x7f"
		  "5678",
		  "control character (0x7f)" },
		{ "1234\xc2\x80"
		  "5678",
		  "control character (0x80)" },
		{ "1234\xff"
		  "5678",
		  "not UTF-8" },
		{ " 12345678", "begins or ends with a space" },
		{ "12345678 ", "begins or ends with a space" },
	};
	_cleanup_free_ char *longest = calloc(1, SECRET_VALUE_MAX + 2);
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(secret_value_check(bad[i].given, strlen(bad[i].given), &e),
				 -EINVAL);
		assert_non_null(strstr(e.msg, bad[i].wanted));
		assert_null(strstr(e.msg, "1234"));
	}
	assert_int_equal(secret_value_check("1234\0"
					    "5678",
					    9, &e),
			 -EINVAL);
	assert_int_equal(secret_value_check("12345678", 8, &e), 0);
	assert_int_equal(secret_value_check("p\xc3\xa4ss word!", 11, &e), 0);
	assert_non_null(longest);
	memset(longest, 'x', SECRET_VALUE_MAX + 1);
	assert_int_equal(secret_value_check(longest, SECRET_VALUE_MAX, &e), 0);
	assert_int_equal(secret_value_check(longest, SECRET_VALUE_MAX + 1, &e), -EINVAL);
}

TEST(one_newline_is_removed)
{
	static const struct unit_row rows[] = { { "", "" },	    { "\n", "" },
						{ "\r\n", "" },	    { "a\n", "a" },
						{ "a\n\n", "a\n" }, { "a\r\n", "a" },
						{ "a\r", "a\r" },   { "a", "a" } };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_buf_ struct buf b = BUF_INIT(16);

		assert_int_equal(buf_puts(&b, rows[i].given), 0);
		secret_value_trim(&b);
		assert_string_equal(buf_text(&b), rows[i].wanted);
		assert_int_equal(b.len, strlen(rows[i].wanted));
	}
}

TEST(commands)
{
	static const char *const relative[] = { "./x" }, *const empty[] = { "" };
	const char *many[SECRET_ARGS_MAX + 1], *big[2] = { "x" };
	_cleanup_free_ char *text = calloc(1, SECRET_COMMAND_MAX + 1);
	struct err e = ERR_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = "x";
	assert_int_equal(secret_command_check(command, ARRAY_SIZE(command), &e), 0);
	assert_int_equal(secret_command_check(many, SECRET_ARGS_MAX, &e), 0);
	assert_int_equal(secret_command_check(many, SECRET_ARGS_MAX + 1, &e), -EINVAL);
	assert_int_equal(secret_command_check(many, 0, &e), -EINVAL);
	assert_int_equal(secret_command_check(empty, 1, &e), -EINVAL);
	assert_int_equal(secret_command_check(relative, 1, &e), -EINVAL);
	assert_non_null(text);
	memset(text, 'x', SECRET_COMMAND_MAX);
	big[1] = text;
	assert_int_equal(secret_command_check(big, 2, &e), -EINVAL);
	text[SECRET_COMMAND_MAX - 3] = '\0';
	assert_int_equal(secret_command_check(big, 2, &e), 0);
	text[0] = '\xff';
	assert_int_equal(secret_command_check(big, 2, &e), -EINVAL);
}

/* ---- the store ---- */

TEST_WITH(an_empty_store, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	struct secret_info *list = NULL;
	struct err e = ERR_INIT;
	size_t n = 1;

	assert_int_equal(secret_store_open(false, &s, &e), 0);
	assert_int_equal(s.dir, -EBADF);
	assert_int_equal(secret_has(&s, "A", &e), 0);
	assert_int_equal(check_value(&s, "A", "", &e), -ENOENT);
	assert_string_equal(e.msg, "no secret 'A': set it with 'hutch secret set A'");
	assert_int_equal(secret_remove(&s, "A", &e), -ENOENT);
	assert_int_equal(secret_store_list(&s, &list, &n, &e), 0);
	assert_int_equal(n, 0);
	secret_infos_free(list, n);
	secret_note_use(&s, "A");
	secret_note_host(&s, "A", "example.com");
	assert_int_equal(unit_dir_entries(d), 0);
}

TEST_WITH(set_get_remove, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	_cleanup_secret_info_ struct secret_info i = { 0 };
	struct err e;

	assert_int_equal(set_with(&s, "TOKEN", VALUE, &run, SECRET_ROTATE, &e), -ENOENT);
	assert_int_equal(set_with(&s, "TOKEN", VALUE, &run, SECRET_NEW, &e), 0);
	assert_int_equal(set_with(&s, "TOKEN", "other value", &piped, SECRET_NEW, &e), -EEXIST);
	assert_value(&s, "TOKEN", VALUE);
	assert_int_equal(secret_has(&s, "TOKEN", &e), 1);
	assert_int_equal(secret_has(&s, "TOKE", &e), 0);
	assert_int_equal(secret_has(&s, "../TOKEN", &e), -EINVAL);
	assert_int_equal(check_value(&s, "TOKE", "", &e), -ENOENT);
	assert_string_equal(e.msg, "no secret 'TOKE'; did you mean 'TOKEN'?");
	assert_int_equal(secret_find(&s, "TOKEN", &i, &e), 0);
	assert_int_equal(i.source, SECRET_EXEC);
	assert_int_equal(json_array_size(i.command), ARRAY_SIZE(command));
	assert_string_equal(json_string_value(json_array_get(i.command, 3)), "\xc3\xa9");
	assert_true(i.set > 0 && i.used == 0 && !i.hosts);
	assert_int_equal(set_with(&s, "TOKEN", "second value", &piped, SECRET_ROTATE, &e), 0);
	assert_value(&s, "TOKEN", "second value");
	assert_int_equal(secret_remove(&s, "TOKEN", &e), 0);
	assert_int_equal(secret_has(&s, "TOKEN", &e), 0);
	assert_int_equal(secret_remove(&s, "TOKEN", &e), -ENOENT);
}

TEST_WITH(modes_despite_the_umask, setup, unit_dir_teardown)
{
	static const char *const files[] = { "key", "A.value", "A.json" };
	mode_t before = umask(0);
	_cleanup_secret_store_ struct secret_store s = opened();
	struct stat st;

	set(&s, "A", VALUE);
	secret_note_use(&s, "A");
	(void)umask(before);
	assert_int_equal(fstat(s.dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		assert_int_equal(fstatat(s.dir, files[i], &st, AT_SYMLINK_NOFOLLOW), 0);
		assert_int_equal(st.st_mode & 07777, 0600);
	}
}

TEST_WITH(the_file_contains_no_value, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	char a[4096], b[4096];

	set(&s, "A", VALUE);
	(void)read_text(&s, "A.value", a, sizeof(a));
	assert_null(strstr(a, "ghp_"));
	set(&s, "A", VALUE);
	(void)read_text(&s, "A.value", b, sizeof(b));
	assert_string_not_equal(strstr(a, "sealed"), strstr(b, "sealed")); /* a nonce per file */
}

TEST_WITH(the_list, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	struct secret_info *list = NULL;
	struct err e;
	size_t n = 0;

	set(&s, "B", VALUE);
	set(&s, "A", VALUE);
	set(&s, "C", VALUE);
	secret_note_host(&s, "B", "api.example.com");
	write_text(&s, "C.value", "{}");
	write_text(&s, "not-a-name.value", "{}");
	write_text(&s, "D.json", "{}");
	assert_int_equal(secret_store_list(&s, &list, &n, &e), 0);
	assert_int_equal(n, 3);
	assert_string_equal(list[0].name, "A");
	assert_string_equal(list[1].name, "B");
	assert_int_equal(json_array_size(list[1].hosts), 1);
	assert_int_equal(list[1].trouble.num, 0);
	assert_string_equal(list[2].name, "C");
	assert_int_equal(list[2].trouble.num, -EBADMSG);
	secret_infos_free(list, n);
}

TEST_WITH(a_full_store, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	struct secret_info *list = NULL;
	char file[64];
	struct err e;
	size_t n = 0;

	set(&s, "FIRST", VALUE);
	for (int i = 1; i < SECRET_STORE_MAX; i++) {
		(void)snprintf(file, sizeof(file), "N%d.value", i);
		assert_int_equal(linkat(s.dir, "FIRST.value", s.dir, file, 0), 0);
	}
	assert_int_equal(set_with(&s, "ONE_MORE", VALUE, &piped, SECRET_NEW, &e), -E2BIG);
	set(&s, "FIRST", "other value");
	assert_int_equal(linkat(s.dir, "N1.value", s.dir, "ONE_MORE.value", 0), 0);
	assert_int_equal(secret_store_list(&s, &list, &n, &e), -E2BIG);
	assert_int_equal(secret_remove(&s, "N1", &e), 0);
	assert_int_equal(secret_store_list(&s, &list, &n, &e), 0);
	assert_int_equal(n, SECRET_STORE_MAX);
	secret_infos_free(list, n);
}

/* ---- damage ---- */

TEST_WITH(exchanged_and_changed_files, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	char a[4096], b[4096], *at;
	struct err e;

	set(&s, "A", VALUE);
	assert_int_equal(set_with(&s, "B", VALUE, &run, SECRET_NEW, &e), 0);
	(void)read_text(&s, "A.value", a, sizeof(a));
	(void)read_text(&s, "B.value", b, sizeof(b));
	write_text(&s, "C.value", a); /* another name */
	assert_int_equal(check_value(&s, "C", VALUE, &e), -EBADMSG);
	assert_non_null(strstr(e.msg, "hutch secret set --replace C"));
	at = strstr(b, "pass"); /* another command */
	assert_non_null(at);
	memcpy(at, "evil", 4);
	write_text(&s, "B.value", b);
	assert_int_equal(check_value(&s, "B", VALUE, &e), -EBADMSG);
	at = strstr(a, "stdin"); /* another source */
	assert_non_null(at);
	memcpy(at, "file\"", 5);
	write_text(&s, "A.value", a);
	assert_int_equal(check_value(&s, "A", VALUE, &e), -EBADMSG);
	set(&s, "A", VALUE);
	assert_value(&s, "A", VALUE);
}

/* Each byte of the file matters, and none reveals the value. */
TEST_WITH(each_bit_flipped, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	char text[4096];
	struct err e;
	size_t n;

	assert_int_equal(set_with(&s, "A", VALUE, &run, SECRET_NEW, &e), 0);
	n = read_text(&s, "A.value", text, sizeof(text));
	for (size_t i = 0; i < n; i++) {
		_cleanup_free_ char *bad = strdup(text);

		assert_non_null(bad);
		bad[i] = (char)(bad[i] ^ 1);
		write_text(&s, "A.value", bad);
		assert_true(check_value(&s, "A", VALUE, &e) < 0);
		assert_null(strstr(e.msg, "ghp_"));
	}
}

TEST_WITH(strict_reading, setup, unit_dir_teardown)
{
	static const struct unit_row rows[] = {
		{ "", "A.value" },
		{ "[]", "A.value" },
		{ "{}", "'version'" },
		{ "{\"version\": 2}", "supports 1" },
		{ "{\"version\": 1, \"extra\": 1}", "'extra'" },
		{ "{\"version\": 1, \"set\": \"yesterday\"}", "not a time" },
		{ "{\"version\": 1, \"set\": \"2026-01-01T00:00:00Z\", \"source\": \"magic\"}",
		  "not a source" },
		{ "{\"version\": 1, \"set\": \"2026-01-01T00:00:00Z\", \"source\": \"exec\", "
		  "\"sealed\": \"\"}",
		  "'command'" },
		{ "{\"version\": 1, \"set\": \"2026-01-01T00:00:00Z\", \"source\": \"exec\", "
		  "\"sealed\": \"\", \"command\": []}",
		  "empty" },
		{ "{\"version\": 1, \"set\": \"2026-01-01T00:00:00Z\", \"source\": \"exec\", "
		  "\"sealed\": \"\", \"command\": [1]}",
		  "'command'" },
		{ "{\"version\": 1, \"set\": \"2026-01-01T00:00:00Z\", \"source\": \"stdin\", "
		  "\"sealed\": \"!\"}",
		  "base64" },
		{ "{\"version\": 1, \"set\": \"2026-01-01T00:00:00Z\", \"source\": \"stdin\", "
		  "\"sealed\": \"AAAA\"}",
		  "length" },
	};
	_cleanup_secret_store_ struct secret_store s = opened();
	struct err e;

	set(&s, "A", VALUE);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		write_text(&s, "A.value", rows[i].given);
		assert_int_equal(check_value(&s, "A", VALUE, &e), -EBADMSG);
		assert_non_null(strstr(e.msg, rows[i].wanted));
	}
}

TEST_WITH(the_host_key, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	struct err e;

	set(&s, "A", VALUE);
	write_text(&s, "key", "0123456789abcdef0123456789abcdef");
	assert_int_equal(check_value(&s, "A", VALUE, &e), -EBADMSG);
	write_text(&s, "key", "short");
	assert_int_equal(check_value(&s, "A", VALUE, &e), -EBADMSG);
	assert_non_null(strstr(e.msg, "is damaged"));
	assert_int_equal(unlinkat(s.dir, "key", 0), 0);
	assert_int_equal(check_value(&s, "A", VALUE, &e), -EBADMSG);
	assert_non_null(strstr(e.msg, "is missing"));
	/* No new key while values are sealed with the old one. */
	assert_int_equal(set_with(&s, "B", VALUE, &piped, SECRET_NEW, &e), -EBADMSG);
	assert_false(exists(&s, "key"));
	assert_int_equal(secret_remove(&s, "A", &e), 0);
	set(&s, "B", VALUE);
	assert_value(&s, "B", VALUE);
}

TEST_WITH(files_of_others, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	char text[4096];
	struct err e;

	set(&s, "A", VALUE);
	set(&s, "B", VALUE);
	(void)read_text(&s, "A.value", text, sizeof(text));
	assert_int_equal(fchmodat(s.dir, "A.value", 0640, 0), 0);
	assert_int_equal(check_value(&s, "A", VALUE, &e), -EPERM);
	assert_non_null(strstr(e.msg, "others have access"));
	assert_int_equal(unlinkat(s.dir, "A.value", 0), 0);
	assert_int_equal(symlinkat("B.value", s.dir, "A.value"), 0);
	assert_int_equal(check_value(&s, "A", VALUE, &e), -ELOOP);
	set(&s, "A", VALUE); /* replaces the link, not B */
	assert_value(&s, "A", VALUE);
	assert_value(&s, "B", VALUE);
	assert_int_equal(unlinkat(s.dir, "A.value", 0), 0);
	assert_int_equal(mkfifoat(s.dir, "A.value", 0600), 0);
	assert_int_equal(check_value(&s, "A", VALUE, &e), -EINVAL);
	assert_int_equal(secret_remove(&s, "A", &e), 0);
	assert_int_equal(fchmodat(s.dir, "key", 0644, 0), 0);
	assert_int_equal(check_value(&s, "B", VALUE, &e), -EPERM);
	assert_int_equal(set_with(&s, "C", VALUE, &piped, SECRET_NEW, &e), -EPERM);
}

TEST_WITH(directories_of_others, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	struct secret_store s = SECRET_STORE_INIT;
	struct err e = ERR_INIT;

	assert_int_equal(mkdirat(d->fd, "secrets", 0750), 0);
	assert_int_equal(fchmodat(d->fd, "secrets", 0750, 0), 0);
	assert_int_equal(secret_store_open(true, &s, &e), -EPERM);
	assert_int_equal(secret_store_open(false, &s, &e), -EPERM);
	assert_int_equal(fchmodat(d->fd, "secrets", 0700, 0), 0);
	assert_int_equal(fchmodat(d->fd, ".", 0770, 0), 0);
	assert_int_equal(secret_store_open(true, &s, &e), -EPERM);
	assert_int_equal(fchmodat(d->fd, ".", 0700, 0), 0);
	assert_int_equal(renameat(d->fd, "secrets", d->fd, "elsewhere"), 0);
	assert_int_equal(symlinkat("elsewhere", d->fd, "secrets"), 0);
	assert_true(secret_store_open(true, &s, &e) < 0);
	assert_true(secret_store_open(false, &s, &e) < 0);
	assert_int_equal(s.dir, -EBADF);
}

TEST_WITH(left_over_files_are_removed, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	struct err e;

	write_text(&s, "A.value.0123456789abcdef.tmp", "half");
	write_text(&s, "A.json.tmp", "half");
	write_text(&s, "A.json", "{\"version\": 1, \"hosts\": [\"old.example\"]}");
	set(&s, "A", VALUE);
	assert_false(exists(&s, "A.value.0123456789abcdef.tmp"));
	assert_false(exists(&s, "A.json.tmp"));
	assert_false(exists(&s, "A.json")); /* notes of an earlier secret */
	assert_int_equal(secret_remove(&s, "A", &e), 0);
}

/* ---- notes ---- */

static struct secret_info found(const struct secret_store *s, const char *name)
{
	struct secret_info i = { 0 };
	struct err e = ERR_INIT;

	assert_int_equal(secret_find(s, name, &i, &e), 0);
	return i;
}

TEST_WITH(notes, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	_cleanup_secret_info_ struct secret_info i = { 0 }, j = { 0 };
	struct stat st, later;

	set(&s, "A", VALUE);
	secret_note_host(&s, "A", "a.example");
	secret_note_host(&s, "A", "b.example");
	secret_note_host(&s, "A", "");
	secret_note_host(&s, "A", "bad host");
	secret_note_use(&s, "A");
	i = found(&s, "A");
	assert_int_equal(json_array_size(i.hosts), 2);
	assert_string_equal(json_string_value(json_array_get(i.hosts, 1)), "b.example");
	assert_true(i.used > 0 && clock_wall() - i.used < 60 * NSEC_PER_SEC);
	/* Known hosts and a use within a minute change nothing. */
	assert_int_equal(fstatat(s.dir, "A.json", &st, 0), 0);
	secret_note_host(&s, "A", "a.example");
	secret_note_use(&s, "A");
	assert_int_equal(fstatat(s.dir, "A.json", &later, 0), 0);
	assert_int_equal(st.st_ino, later.st_ino);
	/* A new value keeps the notes. */
	set(&s, "A", "other value");
	j = found(&s, "A");
	assert_int_equal(json_array_size(j.hosts), 2);
	assert_int_equal(i.used, j.used);
	secret_note_host(&s, "NONE", "a.example");
	secret_note_use(&s, "NONE");
	assert_false(exists(&s, "NONE.json"));
}

TEST_WITH(a_use_long_ago, setup, unit_dir_teardown)
{
	static const char *const before[] = {
		"{\"version\": 1, \"hosts\": [\"a.example\"], \"used\": \"2020-01-01T00:00:00Z\"}",
		"{\"version\": 1, \"hosts\": [\"a.example\"], \"used\": \"2100-01-01T00:00:00Z\"}",
		"{\"version\": 1, \"hosts\": [\"a.example\"]}",
	};
	_cleanup_secret_store_ struct secret_store s = opened();

	set(&s, "A", VALUE);
	for (size_t k = 0; k < ARRAY_SIZE(before); k++) {
		_cleanup_secret_info_ struct secret_info i = { 0 };

		write_text(&s, "A.json", before[k]);
		secret_note_use(&s, "A");
		i = found(&s, "A");
		assert_true(i.used > 0 && i.used <= clock_wall());
		assert_true(clock_wall() - i.used < 60 * NSEC_PER_SEC);
		assert_int_equal(json_array_size(i.hosts), 1);
	}
}

TEST_WITH(the_oldest_host_is_forgotten, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	_cleanup_secret_info_ struct secret_info i = { 0 };
	char host[32];

	set(&s, "A", VALUE);
	for (int k = 0; k <= 64; k++) {
		(void)snprintf(host, sizeof(host), "h%d.example", k);
		secret_note_host(&s, "A", host);
	}
	i = found(&s, "A");
	assert_int_equal(json_array_size(i.hosts), 64);
	assert_string_equal(json_string_value(json_array_get(i.hosts, 0)), "h1.example");
	assert_string_equal(json_string_value(json_array_get(i.hosts, 63)), "h64.example");
}

TEST_WITH(notes_that_are_damaged, setup, unit_dir_teardown)
{
	static const char *const bad[] = {
		"{",
		"{\"version\": 1}",
		"{\"version\": 1, \"hosts\": [1]}",
		"{\"version\": 1, \"hosts\": [\"a\\u001b[0m\"]}",
		"{\"version\": 1, \"hosts\": [], \"used\": \"soon\"}",
		"{\"version\": 1, \"hosts\": [], \"more\": 1}",
		"{\"version\": 2, \"hosts\": []}",
	};
	_cleanup_secret_store_ struct secret_store s = opened();
	struct err e;

	set(&s, "A", VALUE);
	write_text(&s, "A.json", "");
	assert_int_equal(found(&s, "A").used, 0); /* empty: no notes */
	for (size_t k = 0; k < ARRAY_SIZE(bad); k++) {
		_cleanup_secret_info_ struct secret_info i = { 0 };

		e = (struct err)ERR_INIT;
		write_text(&s, "A.json", bad[k]);
		assert_true(secret_find(&s, "A", &i, &e) < 0);
		assert_non_null(strstr(e.msg, "A.json"));
		assert_value(&s, "A", VALUE); /* they do not matter to its use */
		secret_note_use(&s, "A");
		i = found(&s, "A");
		assert_true(i.used > 0);
	}
}

/* A stopped process that holds the lock must not stop a warden. */
TEST_WITH(a_lock_is_not_waited_for, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	_cleanup_close_ int fd = -EBADF;

	set(&s, "A", VALUE);
	fd = openat(s.dir, "lock", O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	secret_note_use(&s, "A");
	secret_note_host(&s, "A", "a.example");
	assert_false(exists(&s, "A.json"));
	assert_value(&s, "A", VALUE);
}

/* ---- many at once ---- */

static void busy(int k)
{
	_cleanup_secret_store_ struct secret_store s = opened();
	char name[32], value[32];
	struct err e;

	(void)snprintf(name, sizeof(name), "OWN_%d", k);
	(void)snprintf(value, sizeof(value), "value of %d", k);
	for (int i = 0; i < 20; i++) {
		set(&s, name, value);
		assert_value(&s, name, value);
		set(&s, "SHARED", value);
		assert_int_equal(secret_has(&s, "SHARED", &e), 1);
		secret_note_host(&s, "SHARED", name);
		secret_note_use(&s, "SHARED");
	}
}

TEST_WITH(processes_at_once, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	_cleanup_secret_ struct buf b = BUF_INIT(SECRET_VALUE_MAX);
	struct err e = ERR_INIT;
	pid_t pids[4];

	for (int k = 0; k < 4; k++) {
		pids[k] = fork();
		assert_true(pids[k] >= 0);
		if (pids[k] == 0) {
			busy(k);
			_exit(0);
		}
	}
	for (int k = 0; k < 4; k++) {
		int status = -1;

		assert_int_equal(waitpid(pids[k], &status, 0), pids[k]);
		assert_int_equal(status, 0);
	}
	s = opened();
	for (int k = 0; k < 4; k++) {
		char name[32], value[32];

		(void)snprintf(name, sizeof(name), "OWN_%d", k);
		(void)snprintf(value, sizeof(value), "value of %d", k);
		assert_value(&s, name, value);
	}
	assert_int_equal(secret_get(&s, "SHARED", &b, &e), 0);
	assert_true(str_has_prefix(buf_text(&b), "value of "));
}

/* ---- each call failing once ---- */

static int cycle(void)
{
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	_cleanup_secret_info_ struct secret_info i = { 0 };
	_cleanup_secret_ struct buf b = BUF_INIT(SECRET_VALUE_MAX);
	struct secret_info *list = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;
	int r = secret_store_open(true, &s, &e);

	if (r == 0)
		r = set_with(&s, "A", VALUE, &run, SECRET_REPLACE, &e);
	if (r == 0)
		r = secret_get(&s, "A", &b, &e);
	if (r == 0)
		r = secret_find(&s, "A", &i, &e);
	if (r == 0)
		r = secret_store_list(&s, &list, &n, &e);
	if (r == 0)
		secret_infos_free(list, n);
	return r == 0 ? secret_remove(&s, "A", &e) : r;
}

static int noted(void)
{
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	struct err e = ERR_INIT;
	int r = secret_store_open(false, &s, &e);

	secret_note_host(&s, "B", "a.example");
	(void)unlinkat(s.dir, "B.json", 0);
	return r;
}

static int replaced(void)
{
	_cleanup_secret_store_ struct secret_store s = SECRET_STORE_INIT;
	struct err e = ERR_INIT;
	int r = secret_store_open(true, &s, &e);

	if (r == 0)
		r = set_with(&s, "B", "new value", &piped, SECRET_ROTATE, &e);
	return r;
}

TEST_WITH(each_failure, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();

	FAIL_SWEEP(cycle());
	set(&s, "B", "old value");
	FAIL_SWEEP(noted());
	FAIL_SWEEP(replaced());
	assert_value(&s, "B", "new value");
}

/* After each failure the secret has its old or its new value. */
TEST_WITH(a_full_disk, setup, unit_dir_teardown)
{
	_cleanup_secret_store_ struct secret_store s = opened();

	set(&s, "B", "old value");
	for (unsigned int n = 1, more = 1; more; n++) {
		_cleanup_secret_ struct buf b = BUF_INIT(SECRET_VALUE_MAX);
		struct err e = ERR_INIT;

		fail_arm(n, ENOSPC);
		(void)replaced();
		more = fail_reached();
		fail_off();
		assert_int_equal(secret_get(&s, "B", &b, &e), 0);
		assert_true(str_eq(buf_text(&b), "old value") || str_eq(buf_text(&b), "new value"));
	}
}
