/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fail.h"
#include "state/life.h"
#include "unit.h"

TEST_IN_DIR(what_is_written_is_read)
{
	const struct life lives[] = {
		{ .paused = false, .deadline = UINT64_C(1790000000123) },
		{ .paused = true, .on_timeout = ON_TIMEOUT_PAUSE },
		{ .deadline = INT64_MAX, .on_timeout = ON_TIMEOUT_END },
		{ .met = { .oom_kills = 1, .pids_refused = 2, .disk_full = true } },
		{ .met = { .inodes_full = true } },
		{ .stopped = LIFE_DISK_FULL, .deadline = 1 },
		{ .stopped = LIFE_STOPPED, .paused = true },
		{ .disk_lost = true },
	};
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	assert_int_equal(life_read(d->fd, &(struct life){ 0 }, &e), -ENOENT);
	for (size_t i = 0; i < ARRAY_SIZE(lives); i++) {
		struct life got = { 0 };

		assert_int_equal(life_write(d->fd, &lives[i], &e), 0);
		assert_int_equal(life_read(d->fd, &got, &e), 0);
		assert_int_equal(got.paused, lives[i].paused);
		assert_int_equal(got.stopped, lives[i].stopped);
		assert_int_equal(got.disk_lost, lives[i].disk_lost);
		assert_int_equal(got.deadline, lives[i].deadline);
		assert_int_equal(got.on_timeout, lives[i].on_timeout);
		assert_int_equal(got.met.oom_kills, lives[i].met.oom_kills);
		assert_int_equal(got.met.pids_refused, lives[i].met.pids_refused);
		assert_int_equal(got.met.disk_full, lives[i].met.disk_full);
		assert_int_equal(got.met.inodes_full, lives[i].met.inodes_full);
	}
	assert_int_equal(unit_dir_entries(d), 1);
	assert_null(on_timeout_names[ON_TIMEOUTS]);
}

static void refused(const struct unit_dir *d, const char *text, const char *want)
{
	struct err e = ERR_INIT;
	struct life got = { .deadline = 7 };

	unit_dir_write(d, "life.json", text, strlen(text));
	assert_int_equal(life_read(d->fd, &got, &e), -EINVAL);
	assert_string_equal(e.msg, want);
	assert_int_equal(got.deadline, 7);
}

#define HEAD "{\"schema\":\"hutch.life/1\","

TEST_IN_DIR(what_is_wrong_is_refused)
{
	struct unit_dir *d = *state;

	refused(d, "[]", "life.json: expected a JSON object");
	refused(d, "{}", "life.json: 'schema' is missing");
	refused(d, "{\"more\":1}", "life.json: unknown key 'more'");
	refused(d, "{\"schema\":\"x\"}", "life.json: 'schema' is not hutch.life/1");
	refused(d, HEAD "\"state\":\"running\"}", "life.json: 'deadline_ms' is missing");
	refused(d, HEAD "\"state\":\"running\",\"deadline_ms\":-1}",
		"life.json: 'deadline_ms' is not a whole number from 0 on");
	refused(d, HEAD "\"state\":\"asleep\",\"deadline_ms\":0,\"on_timeout\":\"end\"}",
		"life.json: 'state' is not known");
	refused(d, HEAD "\"state\":\"paused\",\"deadline_ms\":0,\"on_timeout\":\"stop\"}",
		"life.json: 'on_timeout' is not known");
	refused(d, HEAD "\"state\":\"paused\",\"deadline_ms\":0,\"on_timeout\":\"end\",\"met\":{}}",
		"life.json: 'oom_kills' is missing");
	refused(d, HEAD "\"state\":\"running\",\"stopped\":\"\"}",
		"life.json: 'stopped' is not known");
	refused(d, HEAD "\"state\":\"running\",\"stopped\":\"x\"}",
		"life.json: 'stopped' is not known");
}

static int write_and_read(const struct unit_dir *d)
{
	const struct life life = { .paused = true, .met.oom_kills = 1 };
	struct err e = ERR_INIT;
	struct life got;
	int r = life_write(d->fd, &life, &e);

	return r < 0 ? r : life_read(d->fd, &got, &e);
}

TEST_IN_DIR(faults)
{
	FAIL_SWEEP(write_and_read(*state));
}
