/* SPDX-License-Identifier: Apache-2.0 */
/* Kept sandboxes: moved in by one rename, found, and deleted by age, owner, size and number. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"
#include "fail.h"
#include "state/kept.h"
#include "unit.h"

#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define MIB   (UINT64_C(1) << 20)
#define HOUR  (UINT64_C(3600) * NSEC_PER_SEC)

static const struct kept_limits plenty = { .time = 7 * 24 * HOUR, .space = 1024 * MIB };

static void open_root(const struct unit_dir *d, struct state_root *ret)
{
	struct err e = ERR_INIT;

	assert_int_equal(setenv("HUTCH_RUN_DIR", d->path, 1), 0);
	assert_int_equal(state_root_open(ret, &e), 0);
}

/* Makes an ended sandbox that was not moved yet. */
static void make(const struct state_root *r, const char *id, const char *owner, uint64_t time,
		 int *ret_dir)
{
	struct spec spec = { .id = id,
			     .agent = "default",
			     .policy = HEX64,
			     .image = "base",
			     .image_digest = HEX64,
			     .root = "/nonexistent/root",
			     .user = "",
			     .workspace = "/" };
	const struct end end = { .reason = END_KILLED, .time = time };
	struct err e = ERR_INIT;
	char api[100];

	(void)snprintf(api, sizeof(api), "{\"owner\":\"%s\"}", owner);
	spec.api = owner[0] ? api : "";
	assert_int_equal(state_make(r, id, ret_dir), 0);
	assert_int_equal(spec_store(*ret_dir, &spec, &e), 0);
	assert_int_equal(end_write(*ret_dir, &end, &e), 0);
}

/* Makes a kept sandbox whose file states this many bytes. */
static void keep(const struct state_root *r, const char *id, const char *owner, uint64_t time,
		 uint64_t bytes)
{
	_cleanup_close_ int dir = -EBADF;
	struct err e = ERR_INIT;
	char line[200];
	int n;

	make(r, id, owner, time, &dir);
	assert_int_equal(kept_move(r, id, dir, &e), 0);
	n = snprintf(line, sizeof(line), "%llu %llu whole %s\n", (unsigned long long)time,
		     (unsigned long long)bytes, owner);
	assert_int_equal(state_write(dir, "kept", line, (size_t)n, &e), 0);
	assert_int_equal(state_write(dir, "cmd-1", "record", 6, &e), 0);
}

/* The first letters of the remaining ids. */
static const char *left(const struct state_root *r, char out[static 64])
{
	_cleanup_free_ char(*ids)[SPEC_ID + 1] = NULL;
	struct err e = ERR_INIT;
	size_t n = 0;

	assert_int_equal(kept_list(r, &ids, &n, &e), 0);
	assert_true(n < 64);
	for (size_t i = 0; i < n; i++)
		out[i] = ids[i][0];
	out[n] = '\0';
	return out;
}

static void trim(const struct state_root *r, const struct kept_limits *limits)
{
	struct err e = ERR_INIT;

	assert_int_equal(kept_trim(r, limits, false, NULL, NULL, &e), 0);
}

TEST_IN_DIR(moved_by_one_rename)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_close_ int dir = -EBADF, found = -EBADF;
	char id[SPEC_ID + 1];
	struct err e = ERR_INIT;
	struct kept k = { 0 };
	struct stat st;

	open_root(d, &r);
	assert_int_equal(fstatat(d->fd, "ended", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_false(kept_is_due(&r));
	make(&r, "aaaaaaaaaaaaaaaa", "alice", 5 * HOUR, &dir);
	assert_int_equal(state_write(dir, "cmd-1", "record", 6, &e), 0);
	assert_int_equal(state_write(dir, "cmd-2", "", 0, &e), 0); /* of no command yet */
	assert_int_equal(kept_move(&r, "aaaaaaaaaaaaaaaa", dir, &e), 0);
	assert_int_equal(kept_move(&r, "aaaaaaaaaaaaaaaa", dir, &e), 0); /* lost the race */
	assert_int_equal(faccessat(r.dir, "aaaaaaaaaaaaaaaa", F_OK, 0), -1);
	assert_int_equal(kept_find(&r, "aaa", id, &found, &e), 0);
	assert_string_equal(id, "aaaaaaaaaaaaaaaa");
	assert_int_equal(faccessat(found, "cmd-1", F_OK, 0), 0);
	assert_int_equal(faccessat(found, "cmd-2", F_OK, 0), -1);
	assert_int_equal(state_phase(found), STATE_ENDED);
	assert_int_equal(kept_read(found, &k, &e), 0);
	assert_int_equal(k.time, 5 * HOUR);
	assert_true(k.bytes >= 3 * 4096);
	assert_string_equal(k.owner, "alice");
	assert_false(k.cut);
	assert_true(kept_is_due(&r));
	assert_int_equal(kept_remove(&r, id), 0);
	assert_int_equal(kept_remove(&r, id), 0);
	assert_int_equal(kept_find(&r, "aaa", id, &found, &e), -ENOENT);
}

/* An obstacle of any type at the target is removed. */
TEST_IN_DIR(the_way_is_free)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	static const char id[] = "aaaaaaaaaaaaaaaa";
	struct err e = ERR_INIT;
	char ids[64];

	open_root(d, &r);
	for (int i = 0; i < 3; i++) {
		_cleanup_close_ int dir = -EBADF;

		if (i == 0)
			assert_int_equal(symlinkat("/etc", r.ended, id), 0);
		if (i == 1)
			assert_int_equal(state_write(r.ended, id, "x", 1, &e), 0);
		if (i == 2)
			keep(&r, id, "", 1, 1);
		make(&r, id, "bob", 7, &dir);
		assert_int_equal(kept_move(&r, id, dir, &e), 0);
		assert_string_equal(left(&r, ids), "a");
		assert_int_equal(faccessat(dir, "cmd-1", F_OK, 0), -1);
		assert_int_equal(kept_remove(&r, id), 0);
	}
	assert_int_equal(access("/etc/passwd", F_OK), 0);
}

TEST_IN_DIR(what_is_damaged_is_listed_and_goes)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	char id[SPEC_ID + 1], ids[64];
	struct err e = ERR_INIT;
	struct kept k = { 0 };
	int dir = -EBADF;

	open_root(d, &r);
	assert_int_equal(symlinkat("/etc", r.ended, "aaaaaaaaaaaaaaaa"), 0);
	assert_int_equal(state_write(r.ended, "bbbbbbbbbbbbbbbb", "x", 1, &e), 0);
	assert_int_equal(mkdirat(r.ended, "cccccccccccccccc", 0700), 0);
	assert_int_equal(mkdirat(r.ended, "cccccccccccccccc/d", 0700), 0);
	assert_int_equal(symlinkat("/etc/passwd", r.ended, "cccccccccccccccc/kept"), 0);
	assert_int_equal(mkdirat(r.ended, "no-id", 0700), 0);
	assert_string_equal(left(&r, ids), "abc");
	assert_int_equal(kept_find(&r, "aa", id, &dir, &e), -ENOTDIR);
	assert_string_equal(e.msg, "the kept sandbox aaaaaaaaaaaaaaaa is damaged: "
				   "hutch rm aaaaaaaaaaaaaaaa");
	assert_int_equal(kept_find(&r, "bb", id, &dir, &e), -ENOTDIR);
	assert_int_equal(kept_find(&r, "cc", id, &dir, &e), 0);
	assert_int_equal(kept_read(dir, &k, &e), 0); /* found out anew */
	assert_true(k.time > 0 && !k.owner[0]);
	(void)close(dir);
	trim(&r, &plenty);
	assert_string_equal(left(&r, ids), "abc");
	trim(&r, &(struct kept_limits){ .space = 1024 * MIB }); /* all of them */
	assert_string_equal(left(&r, ids), "");
	assert_int_equal(access("/etc/passwd", F_OK), 0);
	assert_int_equal(symlinkat("/etc", r.ended, "aaaaaaaaaaaaaaaa"), 0);
	assert_int_equal(state_write(r.ended, "bbbbbbbbbbbbbbbb", "x", 1, &e), 0);
	assert_int_equal(mkdirat(r.ended, "cccccccccccccccc", 0700), 0);
	assert_int_equal(kept_remove(&r, "aaaaaaaaaaaaaaaa"), 0);
	assert_int_equal(kept_remove(&r, "bbbbbbbbbbbbbbbb"), 0);
	assert_int_equal(kept_remove(&r, "cccccccccccccccc"), 0);
	assert_string_equal(left(&r, ids), "");
	assert_int_equal(access("/etc/passwd", F_OK), 0);
}

TEST_IN_DIR(lines_that_are_wrong)
{
	static const char *const wrong[] = {
		"",
		"x",
		"1 2 whole",
		"-1 2 whole a",
		"1 x whole a",
		"1 2 half a",
		"1 99999999999999999999999 cut a",
		"1 2 cut "
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		"aaaaaaaaaaaa"
	};
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_close_ int dir = -EBADF;
	struct err e = ERR_INIT;

	open_root(d, &r);
	make(&r, "aaaaaaaaaaaaaaaa", "alice", 9, &dir);
	assert_int_equal(kept_move(&r, "aaaaaaaaaaaaaaaa", dir, &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct kept k = { 0 };

		assert_int_equal(state_write(dir, "kept", wrong[i], strlen(wrong[i]), &e), 0);
		assert_int_equal(kept_read(dir, &k, &e), 0);
		assert_int_equal(k.time, 9);
		assert_string_equal(k.owner, "alice");
	}
}

TEST_IN_DIR(by_age)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	uint64_t now = clock_wall();
	char ids[64];

	open_root(d, &r);
	keep(&r, "aaaaaaaaaaaaaaaa", "", now - 8 * 24 * HOUR, 1);
	keep(&r, "bbbbbbbbbbbbbbbb", "", now - 6 * 24 * HOUR, 1);
	keep(&r, "cccccccccccccccc", "", now + HOUR, 1); /* a clock was set back */
	trim(&r, &plenty);
	assert_string_equal(left(&r, ids), "bc");
	assert_false(kept_is_due(&r));
	trim(&r, &(struct kept_limits){ .space = 1024 * MIB }); /* all of them */
	assert_string_equal(left(&r, ids), "");
}

/* An owner within its share loses nothing, however much others add. */
TEST_IN_DIR(by_space_and_owner)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	const struct kept_limits ten = { .time = 24 * HOUR, .space = 10 * MIB };
	uint64_t now = clock_wall() - HOUR;
	char ids[64];

	open_root(d, &r);
	keep(&r, "aaaaaaaaaaaaaaaa", "alice", now, 2 * MIB); /* the oldest of all */
	keep(&r, "bbbbbbbbbbbbbbbb", "alice", now + 1, 2 * MIB);
	for (char c = 'c'; c < 'k'; c++) {
		const char id[SPEC_ID + 1] = { c,   'x', 'x', 'x', 'x', 'x', 'x', 'x',
					       'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x' };

		keep(&r, id, "mallory", now + (uint64_t)c, 2 * MIB);
	}
	trim(&r, &ten);
	assert_string_equal(left(&r, ids), "abhij");
	trim(&r, &(struct kept_limits){ .time = 24 * HOUR, .space = 4 * MIB });
	assert_string_equal(left(&r, ids), "bj");
}

TEST_IN_DIR(by_number_and_owner)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	struct kept_limits three = { .time = 24 * HOUR, .space = 1024 * MIB, .number = 3 };
	uint64_t now = clock_wall() - HOUR;
	char ids[64];

	open_root(d, &r);
	keep(&r, "aaaaaaaaaaaaaaaa", "", now, 1);
	keep(&r, "bbbbbbbbbbbbbbbb", "mallory", now + 1, 1);
	keep(&r, "cccccccccccccccc", "mallory", now + 2, 1);
	keep(&r, "dddddddddddddddd", "mallory", now + 3, 1);
	trim(&r, &three);
	assert_string_equal(left(&r, ids), "acd");
}

/* A sandbox that alone is too large: its existence and its end stay known. */
TEST_IN_DIR(what_is_too_large_is_cut)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	const struct kept_limits ten = { .time = 24 * HOUR, .space = 10 * MIB };
	_cleanup_close_ int dir = -EBADF;
	char ids[64];

	open_root(d, &r);
	keep(&r, "aaaaaaaaaaaaaaaa", "", clock_wall() - HOUR, 1);
	keep(&r, "bbbbbbbbbbbbbbbb", "mallory", clock_wall() - HOUR, 100 * MIB);
	trim(&r, &ten);
	assert_string_equal(left(&r, ids), "ab");
	dir = kept_open(&r, "bbbbbbbbbbbbbbbb");
	assert_true(kept_is_cut(dir));
	assert_int_equal(faccessat(dir, "cmd-1", F_OK, 0), -1);
	assert_int_equal(faccessat(dir, "end.json", F_OK, 0), 0);
}

TEST_IN_DIR(not_at_every_end)
{
	const struct timespec earlier[2] = {
		{ .tv_nsec = UTIME_OMIT }, { .tv_sec = (time_t)(clock_wall() / NSEC_PER_SEC) - 61 }
	};
	const struct timespec hour[2] = { { .tv_nsec = UTIME_OMIT },
					  { .tv_sec = (time_t)(clock_wall() / NSEC_PER_SEC) -
						      3601 } };
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	_cleanup_close_ int since = -EBADF;
	char many[256] = { 0 }, ids[64];
	struct err e = ERR_INIT;

	open_root(d, &r);
	trim(&r, &plenty);
	assert_false(kept_is_due(&r));
	keep(&r, "aaaaaaaaaaaaaaaa", "", clock_wall(), 1);
	assert_false(kept_is_due(&r));
	assert_int_equal(utimensat(r.ended, "trimmed", earlier, 0), 0);
	assert_true(kept_is_due(&r));
	trim(&r, &plenty);
	assert_int_equal(utimensat(r.ended, "trimmed", earlier, 0), 0);
	assert_false(kept_is_due(&r)); /* nothing has come */
	assert_int_equal(utimensat(r.ended, "trimmed", hour, 0), 0);
	assert_true(kept_is_due(&r));
	trim(&r, &plenty);
	assert_int_equal(state_write(r.ended, "since", many, sizeof(many), &e), 0);
	assert_true(kept_is_due(&r));
	/* a trim does nothing while another process trims */
	since = openat(r.ended, "since", O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(since, LOCK_EX), 0);
	trim(&r, &(struct kept_limits){ .space = 0 });
	assert_string_equal(left(&r, ids), "a");
}

/* This matters on a file system without room for one more file: a directory in place of
 * `trimmed` fails in the same way. */
TEST_IN_DIR(when_nothing_can_be_written)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	struct stat st;
	char ids[64];

	open_root(d, &r);
	keep(&r, "aaaaaaaaaaaaaaaa", "", clock_wall() - 8 * 24 * HOUR, 1);
	keep(&r, "bbbbbbbbbbbbbbbb", "", clock_wall() - HOUR, 1);
	assert_int_equal(mkdirat(r.ended, "trimmed", 0700), 0);
	assert_int_equal(mkdirat(r.ended, "trimmed/d", 0700), 0);
	trim(&r, &plenty);
	assert_string_equal(left(&r, ids), "b");
	assert_int_equal(fstatat(r.ended, "since", &st, 0), 0);
	assert_int_equal(st.st_size, 2); /* as due as before */
}

/* A failure before the list is complete leaves the trim due. */
TEST_IN_DIR(a_failure_leaves_it_due)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	unsigned int failed = 0;
	bool more = true;

	open_root(d, &r);
	keep(&r, "aaaaaaaaaaaaaaaa", "", clock_wall() - HOUR, 1);
	for (unsigned int i = 1; more; i++) {
		struct err e = ERR_INIT;
		int n;

		(void)unlinkat(r.ended, "trimmed", 0);
		assert_int_equal(state_write(r.ended, "since", "x", 1, &e), 0);
		fail_arm(i, EIO);
		n = kept_trim(&r, &plenty, false, NULL, NULL, &e);
		more = fail_reached();
		fail_off();
		if (n < 0 && !str_has_prefix(e.msg, "cannot make room")) {
			failed++;
			assert_true(kept_is_due(&r));
		}
	}
	assert_true(failed > 3);
}

/* A partial removal is not listed, and the next trim completes it. */
TEST_IN_DIR(half_a_removal)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	char ids[64];

	open_root(d, &r);
	keep(&r, "aaaaaaaaaaaaaaaa", "", clock_wall(), 1);
	assert_int_equal(renameat(r.ended, "aaaaaaaaaaaaaaaa", r.ended, "aaaaaaaaaaaaaaaa.gone"),
			 0);
	assert_string_equal(left(&r, ids), "");
	trim(&r, &plenty);
	assert_int_equal(faccessat(r.ended, "aaaaaaaaaaaaaaaa.gone", F_OK, 0), -1);
}

/* Moves one in, lists it, and removes it. */
static int in_and_out(const struct state_root *r, int *calls)
{
	static const char id[] = "aaaaaaaaaaaaaaaa";
	_cleanup_close_ int dir = -EBADF;
	struct err e = ERR_INIT;
	int k;

	fail_off();
	(void)kept_remove(r, id);
	(void)state_remove(r, id);
	make(r, id, "alice", 1, &dir);
	fail_arm((unsigned int)++*calls, EIO);
	k = kept_move(r, id, dir, &e);
	/* The sandbox is in exactly one place, whatever failed. */
	fail_arm((unsigned int)*calls + 100000, EIO);
	assert_true((faccessat(r->dir, id, F_OK, 0) == 0) !=
		    (faccessat(r->ended, id, F_OK, 0) == 0));
	return k;
}

static int trim_once(const struct state_root *r)
{
	struct err e = ERR_INIT;

	return kept_trim(r, &(struct kept_limits){ .space = 5000, .time = UINT64_MAX }, false, NULL,
			 NULL, &e);
}

TEST_IN_DIR(faults)
{
	struct unit_dir *d = *state;
	_cleanup_state_root_ struct state_root r = STATE_ROOT_INIT;
	uint64_t now = clock_wall() - HOUR;
	char ids[64];
	int calls = 0;

	open_root(d, &r);
	for (int i = 0; i < 200; i++) {
		size_t fds = fail_count_fds();

		(void)in_and_out(&r, &calls);
		fail_off();
		assert_int_equal(fail_count_fds(), fds);
	}
	assert_int_equal(kept_remove(&r, "aaaaaaaaaaaaaaaa"), 0);
	keep(&r, "aaaaaaaaaaaaaaaa", "", now, 4000);
	keep(&r, "bbbbbbbbbbbbbbbb", "x", now, 4000);
	keep(&r, "cccccccccccccccc", "x", now + 1, 4000);
	FAIL_SWEEP(trim_once(&r));
	trim(&r, &(struct kept_limits){ .space = 5000, .time = UINT64_MAX });
	assert_true(strlen(left(&r, ids)) <= 1);
}
