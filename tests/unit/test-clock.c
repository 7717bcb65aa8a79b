/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/clock.h"

/* The memory after the NUL is not readable. */
static int parse(const char *s, uint64_t *ret)
{
	_cleanup_free_ char *raw = unit_copy(s, strlen(s) + 1);

	return clock_parse(raw, ret);
}

TEST(clocks_run)
{
	uint64_t a = clock_mono(), b = clock_mono();

	assert_true(a > 0 && b >= a);
	assert_true(clock_wall() > UINT64_C(1600000000) * NSEC_PER_SEC);
}

TEST(known_times)
{
	char out[CLOCK_RFC3339_MAX];
	uint64_t t;

	assert_string_equal(clock_format(0, out), "1970-01-01T00:00:00.000000000Z");
	assert_string_equal(clock_format(UINT64_C(1794729600123456789), out),
			    "2026-11-15T08:00:00.123456789Z");
	assert_int_equal(parse("2026-11-15T08:00:00.123456789Z", &t), 0);
	assert_true(t == UINT64_C(1794729600123456789));
	assert_int_equal(parse("2000-02-29T23:59:59Z", &t), 0);
	assert_true(t == UINT64_C(951868799) * NSEC_PER_SEC);
}

TEST(random_times_round_trip)
{
	uint64_t t = 88172645463325252, back;
	char out[CLOCK_RFC3339_MAX];

	for (int i = 0; i < 100000; i++) {
		t ^= t << 13;
		t ^= t >> 7;
		t ^= t << 17;
		assert_int_equal(clock_parse(clock_format(t, out), &back), 0);
		assert_true(back == t);
	}
}

TEST(the_ends_of_time)
{
	char out[CLOCK_RFC3339_MAX];
	uint64_t t = 7;

	assert_string_equal(clock_format(UINT64_MAX, out), "2554-07-21T23:34:33.709551615Z");
	assert_int_equal(parse(out, &t), 0);
	assert_true(t == UINT64_MAX);
	assert_int_equal(parse("1970-01-01T00:00:00Z", &t), 0);
	assert_true(t == 0);
	t = 7;
	assert_int_equal(parse("2554-07-21T23:34:33.709551616Z", &t), -EINVAL);
	assert_int_equal(parse("2554-07-21T23:34:34Z", &t), -EINVAL);
	assert_int_equal(parse("9999-12-31T23:59:59Z", &t), -EINVAL);
	assert_int_equal(parse("1969-12-31T23:59:59Z", &t), -EINVAL);
	assert_true(t == 7);
}

TEST(fractions)
{
	uint64_t t;

	assert_int_equal(parse("1970-01-01T00:00:01.5Z", &t), 0);
	assert_true(t == 1500 * NSEC_PER_MSEC);
	assert_int_equal(parse("1970-01-01T00:00:00.000000001Z", &t), 0);
	assert_true(t == 1);
	assert_int_equal(parse("1970-01-01T00:00:00.0000000010Z", &t), -EINVAL); /* ten digits */
	assert_int_equal(parse("1970-01-01T00:00:00.Z", &t), -EINVAL);
	assert_int_equal(parse("1970-01-01T00:00:00.5", &t), -EINVAL);
	assert_int_equal(parse("1970-01-01T00:00:00.5Zz", &t), -EINVAL);
}

TEST(no_such_day)
{
	static const char *const day[] = { "2026-02-30", "2026-02-29", "1900-02-29", "2026-04-31",
					   "2026-00-10", "2026-13-01", "2026-01-00", "2026-01-32" };
	char text[32];
	uint64_t t;

	for (size_t i = 0; i < ARRAY_SIZE(day); i++) {
		(void)snprintf(text, sizeof(text), "%sT00:00:00Z", day[i]);
		assert_int_equal(parse(text, &t), -EINVAL);
	}
}

TEST(no_such_time)
{
	static const char *const bad[] = {
		"2026-11-15T24:00:00Z",	 "2026-11-15T08:60:00Z",
		"2026-11-15T08:00:60Z",	 "2026-11-15 08:00:00Z",
		"2026-11-15t08:00:00z",	 "2026-11-15T08:00:00",
		"2026-11-15T08:00:00Z ", "2026-11-15T08:00:00+00:00",
		" 2026-11-15T08:00:00Z", "2026-1-15T08:00:00Z",
		"26-11-15T08:00:00Z",	 "+026-11-15T08:00:00Z",
		"2026-11-15T08:00Z",	 "2026-11-15",
		"-026-11-15T08:00:00Z",
	};
	uint64_t t;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(parse(bad[i], &t), -EINVAL);
}

TEST(every_cut_is_refused)
{
	static const char whole[] = "2026-11-15T08:00:00.5Z";
	uint64_t t;

	for (size_t n = 0; n < sizeof(whole) - 1; n++) {
		_cleanup_free_ char *cut = unit_copy(whole, n + 1);

		cut[n] = '\0';
		assert_int_equal(clock_parse(cut, &t), -EINVAL);
	}
}
