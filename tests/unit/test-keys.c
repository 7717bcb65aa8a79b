/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "fail.h"
#include "keys/keys.h"

enum {
	TEXT_MAX = 8192
};

static int setup(void **state)
{
	struct unit_dir *d;

	if (unit_dir_setup(state) < 0)
		return -1;
	d = *state;
	return setenv("HUTCH_STATE_DIR", d->path, 1);
}

static struct keys opened(void)
{
	struct keys k;
	struct err e = ERR_INIT;

	assert_int_equal(keys_open(&k, true, &e), 0);
	return k;
}

static struct key_info added(struct keys *k, const char *name, enum key_role role, uint64_t expires,
			     char text[static KEY_TEXT + 1])
{
	struct err e = ERR_INIT;
	struct key_info info;

	assert_int_equal(key_draw(name, role, expires, text, &info, &e), 0);
	assert_int_equal(keys_add(k, &info, text, &e), 0);
	return info;
}

static void sleep_ms(long ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	(void)nanosleep(&t, NULL);
}

/* ---- keys ---- */

TEST(what_a_key_looks_like)
{
	char a[KEY_TEXT + 1], b[KEY_TEXT + 1];
	struct err e = ERR_INIT;
	struct key_info info;

	assert_int_equal(key_draw(NULL, KEY_USER, 0, a, &info, &e), 0);
	assert_int_equal(strlen(a), 44);
	assert_true(key_text_valid(a, strlen(a)));
	assert_memory_equal(info.prefix, a + 4, KEY_PREFIX);
	assert_true(str_has_prefix(info.name, "key-") && str_eq(info.name + 4, info.prefix));
	assert_int_equal(key_draw("x", KEY_USER, 0, b, &info, &e), 0);
	assert_string_not_equal(a, b);
	a[10] = 'A';
	assert_false(key_text_valid(a, strlen(a)));
	assert_false(key_text_valid(b, KEY_TEXT - 1));
	b[0] = 'x';
	assert_false(key_text_valid(b, KEY_TEXT));
}

TEST(names)
{
	static const char *const good[] = { "a", "key-1", "0", "deadbee", "deadbeef0", "deadbeeg" };
	static const char *const bad[] = { "",	  "-a",	      "a-",	  "A",	  "a_b",     "a b",
					   "a.b", "deadbeef", "\xc3\xa9", "a\nb", "12345678" };
	char text[KEY_TEXT + 1], longest[KEY_NAME_MAX + 2] = "";
	struct err e = ERR_INIT;
	struct key_info info;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(key_name_valid(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_false(key_name_valid(bad[i]));
		assert_int_equal(key_draw(bad[i], KEY_USER, 0, text, &info, &e), -EINVAL);
	}
	memset(longest, 'x', KEY_NAME_MAX);
	assert_true(key_name_valid(longest));
	longest[KEY_NAME_MAX] = 'x';
	assert_false(key_name_valid(longest));
}

TEST(roles)
{
	enum key_role role;

	for (int i = 0; i < KEY_ROLES; i++) {
		assert_int_equal(key_role_parse(key_role_names[i], &role), 0);
		assert_int_equal(role, i);
	}
	assert_int_equal(key_role_parse("root", &role), -EINVAL);
	assert_int_equal(key_role_parse("", &role), -EINVAL);
}

/* Python: blake2b(b"hutch-api-key-1\0" + b"e2b_" + b"0" * 40, digest_size=32).hexdigest() */
TEST(the_hash_is_as_the_page_says)
{
	static const uint8_t want[KEY_HASH] = { 0xbd, 0xa2, 0x6c, 0xc2, 0xb5, 0xe5, 0x2e, 0xfd,
						0xf8, 0xf0, 0x20, 0xd0, 0xb8, 0xb5, 0xad, 0x0b,
						0x3b, 0x43, 0x2c, 0x4e, 0x1b, 0xe3, 0x48, 0xcd,
						0x24, 0x70, 0xf2, 0x93, 0x9b, 0x87, 0xe9, 0x1e };
	uint8_t hash[KEY_HASH];

	key_hash("e2b_0000000000000000000000000000000000000000", KEY_TEXT, hash);
	assert_memory_equal(hash, want, KEY_HASH);
}

/* ---- the file ---- */

TEST_WITH(a_key_is_known, setup, unit_dir_teardown)
{
	_cleanup_keys_ struct keys k = opened();
	char a[KEY_TEXT + 1], b[KEY_TEXT + 1], unknown[KEY_TEXT + 1];
	struct key_info info, got;
	struct err e = ERR_INIT;

	assert_int_equal(keys_check(&k, "e2b_", 4, &got), -ENOKEY);
	info = added(&k, "a", KEY_ADMIN, 0, a);
	(void)added(&k, "b", KEY_METRICS, clock_wall() + 3600 * NSEC_PER_SEC, b);
	assert_int_equal(keys_check(&k, a, KEY_TEXT, &got), 0);
	assert_memory_equal(&got, &info, sizeof(got));
	assert_int_equal(keys_check(&k, b, KEY_TEXT, &got), 0);
	assert_string_equal(got.name, "b");
	assert_int_equal(got.role, KEY_METRICS);
	assert_int_equal(key_draw("c", KEY_USER, 0, unknown, &info, &e), 0);
	assert_int_equal(keys_check(&k, unknown, KEY_TEXT, &got), -ENOKEY);
	a[KEY_TEXT - 1] = a[KEY_TEXT - 1] == '0' ? '1' : '0';
	assert_int_equal(keys_check(&k, a, KEY_TEXT, &got), -ENOKEY);
	assert_int_equal(keys_check(&k, b, KEY_TEXT - 1, &got), -ENOKEY);
	assert_int_equal(keys_check(&k, b, 0, &got), -ENOKEY);
	assert_false(keys_trouble(&k, &e));
}

TEST_WITH(the_key_itself_is_not_kept, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_keys_ struct keys k = opened();
	_cleanup_buf_ struct buf b = BUF_INIT(TEXT_MAX);
	char text[KEY_TEXT + 1];
	struct err e = ERR_INIT;
	struct stat st;

	(void)added(&k, "a", KEY_USER, 0, text);
	assert_int_equal(fd_read_file(d->fd, KEYS_FILE, &b, &e), 0);
	assert_null(strstr(buf_text(&b), text));
	assert_null(strstr(buf_text(&b), text + 4 + KEY_PREFIX));
	assert_null(strstr(buf_text(&b), text + KEY_TEXT - 4));
	assert_int_equal(fstatat(d->fd, KEYS_FILE, &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

TEST_WITH(an_expired_key, setup, unit_dir_teardown)
{
	_cleanup_keys_ struct keys k = opened();
	char text[KEY_TEXT + 1];
	struct key_info got;

	(void)added(&k, "a", KEY_USER, clock_wall() + 200 * NSEC_PER_MSEC, text);
	sleep_ms(250);
	assert_int_equal(keys_check(&k, text, KEY_TEXT, &got), -EKEYEXPIRED);
}

TEST_WITH(names_and_prefixes_are_taken_once, setup, unit_dir_teardown)
{
	_cleanup_keys_ struct keys k = opened();
	char text[KEY_TEXT + 1];
	struct key_info info = added(&k, "a", KEY_USER, 0, text);
	struct err e = ERR_INIT;

	assert_int_equal(keys_add(&k, &info, text, &e), -EEXIST);
	assert_non_null(strstr(e.msg, "revoke it first"));
	(void)snprintf(info.name, sizeof(info.name), "b");
	assert_int_equal(keys_add(&k, &info, text, &e), -EEXIST);
	assert_int_equal(keys_load(&k, &e), 0);
	assert_int_equal(k.n, 1);
}

TEST_WITH(revoked_by_name_or_prefix, setup, unit_dir_teardown)
{
	_cleanup_keys_ struct keys k = opened();
	char a[KEY_TEXT + 1], b[KEY_TEXT + 1], c[KEY_TEXT + 1], start[4 + KEY_PREFIX + 1];
	struct key_info of_b, got;
	struct err e = ERR_INIT;

	(void)added(&k, "a", KEY_USER, 0, a);
	of_b = added(&k, "b", KEY_USER, 0, b);
	(void)added(&k, "c", KEY_USER, 0, c);
	assert_int_equal(keys_revoke(&k, of_b.prefix, &got, &e), 0);
	assert_string_equal(got.name, "b");
	assert_int_equal(keys_revoke(&k, of_b.prefix, &got, &e), -ENOENT);
	assert_int_equal(keys_check(&k, b, KEY_TEXT, &got), -ENOKEY);
	assert_int_equal(keys_check(&k, a, KEY_TEXT, &got), 0);
	(void)snprintf(start, sizeof(start), "%.*s", 4 + KEY_PREFIX, c);
	assert_int_equal(keys_revoke(&k, start, &got, &e), 0);
	assert_string_equal(got.name, "c");
	assert_int_equal(keys_revoke(&k, "a", &got, &e), 0);
	assert_int_equal(keys_load(&k, &e), 0);
	assert_int_equal(k.n, 0);
	assert_int_equal(keys_revoke(&k, "", &got, &e), -ENOENT);
}

/* Daemon and command line: the daemon rejects a revoked key a second later. */
TEST_WITH(what_another_process_does_is_seen, setup, unit_dir_teardown)
{
	_cleanup_keys_ struct keys daemon = opened(), cli = opened();
	char text[KEY_TEXT + 1];
	struct key_info got;
	struct err e = ERR_INIT;

	assert_int_equal(keys_check(&daemon, "x", 1, &got), -ENOKEY);
	(void)added(&cli, "a", KEY_USER, 0, text);
	/* An unknown key is looked up at once. */
	assert_int_equal(keys_check(&daemon, text, KEY_TEXT, &got), 0);
	assert_int_equal(keys_revoke(&cli, "a", &got, &e), 0);
	sleep_ms(600); /* changes to known keys are seen twice a second */
	assert_int_equal(keys_check(&daemon, text, KEY_TEXT, &got), -ENOKEY);
}

/* ---- fail closed ---- */

static int look_again(struct keys *k, const char *text, struct key_info *got)
{
	k->looked = 0;
	return keys_check(k, text, KEY_TEXT, got);
}

TEST_WITH(in_doubt_nobody_gets_in, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_keys_ struct keys k = opened();
	_cleanup_buf_ struct buf good = BUF_INIT(TEXT_MAX);
	char text[KEY_TEXT + 1];
	struct key_info got;
	struct err e = ERR_INIT;

	(void)added(&k, "a", KEY_USER, 0, text);
	assert_int_equal(look_again(&k, text, &got), 0);
	assert_int_equal(fd_read_file(d->fd, KEYS_FILE, &good, &e), 0);

	assert_int_equal(fchmodat(d->fd, KEYS_FILE, 0640, 0), 0);
	assert_int_equal(look_again(&k, text, &got), -EIO);
	assert_true(keys_trouble(&k, &e));
	assert_non_null(strstr(e.msg, "0600"));
	assert_int_equal(look_again(&k, text, &got), -EIO);
	assert_false(keys_trouble(&k, &e)); /* reported once */
	assert_int_equal(fchmodat(d->fd, KEYS_FILE, 0600, 0), 0);
	assert_int_equal(look_again(&k, text, &got), 0);
	assert_false(keys_trouble(&k, &e));

	unit_dir_write(d, KEYS_FILE, good.data, good.len - 1);
	assert_int_equal(look_again(&k, text, &got), -EIO);
	assert_true(keys_trouble(&k, &e));
	unit_dir_write(d, KEYS_FILE, good.data, good.len);
	assert_int_equal(look_again(&k, text, &got), 0);

	assert_int_equal(unlinkat(d->fd, KEYS_FILE, 0), 0);
	assert_int_equal(look_again(&k, text, &got), -ENOKEY);
	assert_int_equal(symlinkat("/etc/passwd", d->fd, KEYS_FILE), 0);
	assert_int_equal(look_again(&k, text, &got), -EIO);
	assert_int_equal(unlinkat(d->fd, KEYS_FILE, 0), 0);
	assert_int_equal(mkfifoat(d->fd, KEYS_FILE, 0600), 0);
	assert_int_equal(look_again(&k, text, &got), -EIO);
	assert_int_equal(unlinkat(d->fd, KEYS_FILE, 0), 0);
}

TEST_WITH(the_file_of_somebody_else, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_keys_ struct keys k = opened();
	char text[KEY_TEXT + 1];
	struct key_info got;
	struct err e = ERR_INIT;

	if (geteuid() != 0)
		skip();
	(void)added(&k, "a", KEY_USER, 0, text);
	assert_int_equal(fchownat(d->fd, KEYS_FILE, 65534, 65534, 0), 0);
	assert_int_equal(look_again(&k, text, &got), -EIO);
	assert_true(keys_trouble(&k, &e));
	assert_non_null(strstr(e.msg, "65534"));
}

TEST_WITH(a_broken_file_is_not_written_over, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_keys_ struct keys k = opened();
	_cleanup_buf_ struct buf b = BUF_INIT(TEXT_MAX);
	char text[KEY_TEXT + 1];
	struct err e = ERR_INIT;
	struct key_info info;

	unit_dir_write(d, KEYS_FILE, "{", 1);
	assert_int_equal(fchmodat(d->fd, KEYS_FILE, 0600, 0), 0);
	assert_int_equal(key_draw("a", KEY_USER, 0, text, &info, &e), 0);
	assert_true(keys_add(&k, &info, text, &e) < 0);
	assert_true(keys_revoke(&k, "a", &info, &e) < 0);
	assert_int_equal(fd_read_file(d->fd, KEYS_FILE, &b, &e), 0);
	assert_string_equal(buf_text(&b), "{");
}

TEST_WITH(a_directory_of_others, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;
	struct keys k;

	assert_int_equal(fchmod(d->fd, 0770), 0);
	assert_int_equal(keys_open(&k, true, &e), -EPERM);
	assert_int_equal(fchmod(d->fd, 0700), 0);
	(void)setenv("HUTCH_STATE_DIR", "/nonexistent/hutch", 1);
	assert_int_equal(keys_open(&k, false, &e), -ENOENT);
}

/* ---- the text ---- */

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ENTRY(name, prefix, hash, more)                                                       \
	"{\"name\":\"" name "\",\"prefix\":\"" prefix "\",\"role\":\"user\",\"hash\":\"" hash \
	"\",\"created\":\"2026-11-15T08:00:00Z\"" more "}"
#define FILE_OF(keys) "{\"version\":1,\"keys\":[" keys "]}"

static int read_text(const char *text, size_t *ret_n, struct err *e)
{
	_cleanup_free_ char *exact = unit_copy(text, strlen(text));
	_cleanup_free_ struct key_entry *list = NULL;

	return keys_read_text(exact, strlen(text), &list, ret_n, e);
}

TEST(texts_that_are_read)
{
	static const char *const good[] = {
		FILE_OF(""),
		FILE_OF(ENTRY("a", "01234567", HASH, "")),
		FILE_OF(ENTRY("a", "01234567", HASH, ",\"expires\":\"2027-01-01T00:00:00.5Z\"")),
	};
	struct err e = ERR_INIT;
	size_t n;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_int_equal(read_text(good[i], &n, &e), 0);
		assert_int_equal(n, i > 0);
	}
}

TEST(texts_that_are_refused)
{
	static const struct unit_row bad[] = {
		{ "", "line 1" },
		{ "[]", "object" },
		{ "{}", "'version' is missing" },
		{ "{\"version\":2,\"keys\":[]}", "this hutch supports 1" },
		{ "{\"version\":1}", "'keys' is not an array" },
		{ "{\"version\":1,\"keys\":{}}", "'keys' is not an array" },
		{ "{\"version\":1,\"keys\":[],\"x\":1}", "unknown key 'x'" },
		{ "{\"version\":1,\"version\":1,\"keys\":[]}", "duplicate" },
		{ FILE_OF("") "x", "line 1" },
		{ FILE_OF("1"), "key 0: expected a JSON object" },
		{ FILE_OF("{}"), "key 0: 'name' is missing" },
		{ FILE_OF(ENTRY("A", "01234567", HASH, "")), "'name' is not a name" },
		{ FILE_OF(ENTRY("a", "0123456", HASH, "")), "'prefix'" },
		{ FILE_OF(ENTRY("a", "0123456X", HASH, "")), "'prefix'" },
		{ FILE_OF(ENTRY("a", "01234567", "00", "")), "'hash'" },
		{ FILE_OF(ENTRY("a", "01234567", HASH "00", "")), "'hash'" },
		{ FILE_OF(ENTRY("a", "01234567", HASH, ",\"expires\":null")), "'expires'" },
		{ FILE_OF(ENTRY("a", "01234567", HASH, ",\"expires\":\"soon\"")), "not a time" },
		{ FILE_OF(ENTRY("a", "01234567", HASH, ",\"expires\":\"1970-01-01T00:00:00Z\"")),
		  "not a time" },
		{ FILE_OF(ENTRY("a", "01234567", HASH, ",\"uid\":0")), "unknown key 'uid'" },
		{ FILE_OF(ENTRY("a", "01234567", HASH, ",\"role\":\"admin\"")), "duplicate" },
		{ FILE_OF(ENTRY("a", "01234567", HASH, "") "," ENTRY("a", "11234567", HASH, "")),
		  "key 1: name 'a' twice" },
		{ FILE_OF(ENTRY("a", "01234567", HASH, "") "," ENTRY("b", "01234567", HASH, "")),
		  "key 1: prefix" },
		{ FILE_OF(ENTRY("a", "01234567", HASH, "") "," ENTRY("b", "11234567", HASH, "")),
		  "key 1: the same hash twice" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err e = ERR_INIT;
		size_t n;

		if (read_text(bad[i].given, &n, &e) >= 0 || !strstr(e.msg, bad[i].wanted))
			fail_msg("%s: '%s' instead of '%s'", bad[i].given, e.msg, bad[i].wanted);
	}
}

static struct key_entry *many(size_t n)
{
	struct key_entry *list = calloc(n, sizeof(*list));

	assert_non_null(list);
	for (size_t i = 0; i < n; i++) {
		(void)snprintf(list[i].info.name, sizeof(list[i].info.name), "n%zu", i);
		(void)snprintf(list[i].info.prefix, sizeof(list[i].info.prefix), "%08zx", i);
		list[i].info.created = 1;
		memcpy(list[i].hash, &i, sizeof(i));
	}
	return list;
}

TEST_WITH(at_most_so_many, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_keys_ struct keys k = opened();
	_cleanup_free_ struct key_entry *list = many(KEYS_MAX + 1);
	_cleanup_free_ char *full = keys_write_text(list, KEYS_MAX),
			    *more = keys_write_text(list, KEYS_MAX + 1);
	char text[KEY_TEXT + 1];
	struct err e = ERR_INIT;
	struct key_info info;
	size_t n;

	assert_int_equal(read_text(full, &n, &e), 0);
	assert_int_equal(n, KEYS_MAX);
	assert_int_equal(read_text(more, &n, &e), -E2BIG);
	unit_dir_write(d, KEYS_FILE, full, strlen(full));
	assert_int_equal(fchmodat(d->fd, KEYS_FILE, 0600, 0), 0);
	assert_int_equal(key_draw("a", KEY_USER, 0, text, &info, &e), 0);
	assert_int_equal(keys_add(&k, &info, text, &e), -E2BIG);
}

TEST_WITH(a_file_that_is_too_large, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;
	_cleanup_keys_ struct keys k = opened();
	_cleanup_free_ char *big = malloc(KEYS_FILE_MAX + 1);
	struct err e = ERR_INIT;

	memset(big, ' ', KEYS_FILE_MAX + 1);
	unit_dir_write(d, KEYS_FILE, big, KEYS_FILE_MAX + 1);
	assert_int_equal(fchmodat(d->fd, KEYS_FILE, 0600, 0), 0);
	assert_int_equal(keys_load(&k, &e), -EFBIG);
}

/* ---- concurrency and faults ---- */

TEST_WITH(writers_do_not_lose_each_others_keys, setup, unit_dir_teardown)
{
	enum {
		WRITERS = 4,
		EACH = 8
	};
	_cleanup_keys_ struct keys k = opened();
	struct err e = ERR_INIT;
	int status;

	for (int w = 0; w < WRITERS; w++) {
		pid_t pid = fork();

		assert_true(pid >= 0);
		if (pid == 0) {
			_cleanup_keys_ struct keys own = opened();
			char text[KEY_TEXT + 1];

			for (int i = 0; i < EACH; i++)
				(void)added(&own, NULL, KEY_USER, 0, text);
			_exit(0);
		}
	}
	for (int w = 0; w < WRITERS; w++)
		assert_true(wait(&status) > 0 && status == 0);
	assert_int_equal(keys_load(&k, &e), 0);
	assert_int_equal(k.n, WRITERS * EACH);
}

/* A key is created, used and revoked. */
static int a_life(void)
{
	_cleanup_keys_ struct keys k = KEYS_INIT;
	char text[KEY_TEXT + 1];
	struct key_info info, got;
	struct err e = ERR_INIT, ignored = ERR_INIT;
	int r = keys_open(&k, true, &e);

	if (r == 0)
		r = key_draw("life", KEY_USER, 0, text, &info, &e);
	if (r == 0)
		r = keys_add(&k, &info, text, &e);
	if (r == 0)
		r = keys_check(&k, text, KEY_TEXT, &got);
	if (r == 0)
		r = keys_revoke(&k, "life", &got, &e);
	if (r < 0 && k.dir >= 0)
		(void)keys_revoke(&k, "life", &got, &ignored);
	return r;
}

TEST_WITH(sweeps, setup, unit_dir_teardown)
{
	struct unit_dir *d = *state;

	FAIL_SWEEP(a_life());
	assert_int_equal(unit_dir_entries(d), 2); /* keys.json and its lock: nothing half-made */
}
