/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fail.h"
#include "state/end.h"
#include "unit.h"

static const struct end example = {
	.reason = END_GUEST,
	.time = UINT64_C(1790000000123456789),
	.oom_kills = 3,
	.pids_refused = 4,
	.throttled = 5,
	.memory_peak = 6,
	.cpu_us = 7,
	.disk_full = true,
};

TEST_IN_DIR(what_is_written_is_read)
{
	struct unit_dir *d = *state;
	struct err e = ERR_INIT;

	assert_int_equal(end_read(d->fd, &(struct end){ 0 }, &e), -ENOENT);
	for (int i = 0; i < END_REASONS; i++) {
		struct end end = example, got = { 0 };

		end.reason = (enum end_reason)i;
		end.inodes_full = end.told = i % 2;
		end.disk_lost = i % 3 == 0;
		assert_int_equal(end_write(d->fd, &end, &e), 0);
		assert_int_equal(end_read(d->fd, &got, &e), 0);
		assert_int_equal(got.reason, i);
		assert_int_equal(got.time, end.time);
		assert_int_equal(got.oom_kills, 3);
		assert_int_equal(got.pids_refused, 4);
		assert_int_equal(got.throttled, 5);
		assert_int_equal(got.memory_peak, 6);
		assert_int_equal(got.cpu_us, 7);
		assert_true(got.disk_full);
		assert_int_equal(got.inodes_full, i % 2);
		assert_int_equal(got.told, i % 2);
		assert_int_equal(got.disk_lost, i % 3 == 0);
	}
	assert_int_equal(unit_dir_entries(d), 1);
	assert_null(end_reason_names[END_REASONS]);
}

/* The v1 kernel's "no limit" is too large for many JSON readers. */
TEST_IN_DIR(large_counters)
{
	struct unit_dir *d = *state;
	struct end end = example, got = { 0 };
	struct err e = ERR_INIT;

	end.memory_peak = UINT64_MAX;
	assert_int_equal(end_write(d->fd, &end, &e), 0);
	assert_int_equal(end_read(d->fd, &got, &e), 0);
	assert_int_equal(got.memory_peak, INT64_MAX);
}

TEST(what_the_agent_says_is_added)
{
	struct end end = example;

	(void)state;
	end_add_met(&end, &(struct met){ 0 });
	assert_false(end.told);
	assert_int_equal(end.oom_kills, 3);
	end_add_met(&end, &(struct met){ .oom_kills = 1, .pids_refused = 2, .inodes_full = true });
	assert_true(end.told && end.disk_full && end.inodes_full);
	assert_int_equal(end.oom_kills, 4);
	assert_int_equal(end.pids_refused, 6);
}

static void refused(const struct unit_dir *d, const char *text, const char *want)
{
	struct err e = ERR_INIT;
	struct end got = { 0 };

	unit_dir_write(d, "end.json", text, strlen(text));
	assert_int_equal(end_read(d->fd, &got, &e), -EINVAL);
	assert_string_equal(e.msg, want);
}

TEST_IN_DIR(what_is_wrong_is_refused)
{
	struct unit_dir *d = *state;

	refused(d, "[]", "end.json: expected a JSON object");
	refused(d, "{}", "end.json: 'schema' is missing");
	refused(d, "{\"more\":1}", "end.json: unknown key 'more'");
	refused(d, "{\"schema\":\"x\"}", "end.json: 'schema' is not hutch.end/1");
	refused(d, "{\"schema\":\"hutch.end/1\",\"reason\":\"moon\"}",
		"end.json: 'reason' is not known");
	refused(d, "{\"schema\":\"hutch.end/1\",\"reason\":\"ttl\",\"time\":-1}",
		"end.json: 'time' is not a whole number from 0 on");
}

static int write_and_read(const struct unit_dir *d)
{
	struct err e = ERR_INIT;
	struct end got;
	int r = end_write(d->fd, &example, &e);

	return r < 0 ? r : end_read(d->fd, &got, &e);
}

TEST_IN_DIR(faults)
{
	struct unit_dir *d = *state;

	FAIL_SWEEP(write_and_read(d));
	/* either the complete old file or the complete new one */
	assert_int_equal(unit_dir_entries(d), 1);
}
