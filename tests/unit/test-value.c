/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/value.h"

#include "base/str.h"
#include "unit.h"

struct reading {
	const char *text;
	int r;
	uint64_t want;
};

static void assert_readings(int (*parse)(const char *, uint64_t *), const struct reading *v,
			    size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint64_t got = 4711;

		if (parse(v[i].text, &got) != v[i].r || got != (v[i].r < 0 ? 4711 : v[i].want))
			fail_msg("'%s' gives %llu", v[i].text, (unsigned long long)got);
	}
}

TEST(sizes)
{
	static const struct reading cases[] = {
		{ "0B", 0, 0 },
		{ "1B", 0, 1 },
		{ "4KiB", 0, 4096 },
		{ "512MiB", 0, UINT64_C(512) << 20 },
		{ "3GiB", 0, UINT64_C(3) << 30 },
		{ "64TiB", 0, UINT64_C(64) << 40 },
		{ "18446744073709551615B", 0, UINT64_MAX },
		{ "16777215TiB", 0, UINT64_C(16777215) << 40 },
		{ "18446744073709551616B", -ERANGE },
		{ "16777216TiB", -ERANGE },
		{ "99999999999999999999999TiB", -ERANGE },
		{ "", -EINVAL },
		{ "B", -EINVAL },
		{ "MiB", -EINVAL },
		{ "1", -EINVAL },
		{ "1MB", -EINVAL },
		{ "1mib", -EINVAL },
		{ "1 MiB", -EINVAL },
		{ " 1MiB", -EINVAL },
		{ "1MiB ", -EINVAL },
		{ "1.5GiB", -EINVAL },
		{ "-1B", -EINVAL },
		{ "+1B", -EINVAL },
		{ "01B", -EINVAL },
		{ "0x1B", -EINVAL },
		{ "1BB", -EINVAL },
	};

	assert_readings(value_size, cases, ARRAY_SIZE(cases));
}

TEST(durations)
{
	static const struct reading cases[] = {
		{ "0ms", 0, 0 },
		{ "250ms", 0, 250 },
		{ "90s", 0, 90000 },
		{ "10m", 0, 600000 },
		{ "8h", 0, 28800000 },
		{ "365d", 0, UINT64_C(365) * 86400000 },
		{ "213503982334d", 0, UINT64_C(213503982334) * 86400000 },
		{ "213503982335d", -ERANGE },
		{ "10", -EINVAL },
		{ "10min", -EINVAL },
		{ "10M", -EINVAL },
		{ "1h30m", -EINVAL },
		{ "m", -EINVAL },
		{ "010m", -EINVAL },
	};

	assert_readings(value_duration, cases, ARRAY_SIZE(cases));
}

TEST(thousandths)
{
	static const struct reading cases[] = {
		{ "0", 0, 0 },
		{ "2", 0, 2000 },
		{ "0.5", 0, 500 },
		{ "0.05", 0, 50 },
		{ "0.005", 0, 5 },
		{ "1.250", 0, 1250 },
		{ "10.999", 0, 10999 },
		{ "9223372036854775", 0, UINT64_C(9223372036854775000) },
		{ "9223372036854776", -ERANGE },
		{ "99999999999999999999", -ERANGE },
		{ "", -EINVAL },
		{ ".5", -EINVAL },
		{ "1.", -EINVAL },
		{ "1.2345", -EINVAL },
		{ "1.5x", -EINVAL },
		{ "1x", -EINVAL },
		{ "1.5.5", -EINVAL },
		{ "1,5", -EINVAL },
		{ "-1", -EINVAL },
		{ "01", -EINVAL },
		{ "1e3", -EINVAL },
		{ " 1", -EINVAL },
	};

	assert_readings(value_thousandths, cases, ARRAY_SIZE(cases));
}

TEST(hints)
{
	static const struct {
		bool (*hint)(const char *, char *);
		const char *text, *want;
	} cases[] = {
		{ value_size_hint, "512", "512MiB" },
		{ value_size_hint, "1048575", "1048575MiB" },
		{ value_size_hint, "536870912", "512MiB" }, /* bytes, then */
		{ value_size_hint, "1048577", "1048577B" },
		{ value_duration_hint, "3600000", "1h" },
		{ value_size_hint, "512MB", "512MiB" },
		{ value_size_hint, "512 mb", "512MiB" },
		{ value_size_hint, "4G", "4GiB" },
		{ value_size_hint, "4Gi", "4GiB" },
		{ value_size_hint, "1tb", "1TiB" },
		{ value_size_hint, "64k", "64KiB" },
		{ value_size_hint, "9 Bytes", "9B" },
		{ value_size_hint, "0", "0MiB" },
		{ value_size_hint, "4 parsecs", NULL },
		{ value_size_hint, "4 gigabytesandmore", NULL },
		{ value_size_hint, "1.5GiB", NULL },
		{ value_size_hint, "GiB", NULL },
		{ value_size_hint, "", NULL },
		{ value_size_hint, "007MB", NULL },
		{ value_size_hint, "999999999999MB", "999999999999MiB" },
		{ value_size_hint, "1234567890123MB", NULL },
		{ value_duration_hint, "10", "10s" },
		{ value_duration_hint, "10min", "10m" },
		{ value_duration_hint, "10 Minutes", "10m" },
		{ value_duration_hint, "3 hrs", "3h" },
		{ value_duration_hint, "1day", "1d" },
		{ value_duration_hint, "5secs", "5s" },
		{ value_duration_hint, "5 milliseconds", "5ms" },
		{ value_duration_hint, "5 millisecondses", NULL },
		{ value_duration_hint, "5 msec", "5ms" },
		{ value_duration_hint, "2w", NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char out[VALUE_HINT_MAX] = "none";
		bool found = cases[i].hint(cases[i].text, out);

		assert_int_equal(found, cases[i].want != NULL);
		assert_string_equal(out, found ? cases[i].want : "none");
	}
}

TEST(formats)
{
	static const struct {
		const char *(*format)(uint64_t, char *);
		uint64_t value;
		const char *want;
	} cases[] = {
		{ value_format_size, 0, "0B" },
		{ value_format_size, 1, "1B" },
		{ value_format_size, 1023, "1023B" },
		{ value_format_size, 1024, "1KiB" },
		{ value_format_size, 1025, "1025B" },
		{ value_format_size, UINT64_C(512) << 20, "512MiB" },
		{ value_format_size, UINT64_C(64) << 40, "64TiB" },
		{ value_format_size, UINT64_MAX, "18446744073709551615B" },
		{ value_format_duration, 0, "0ms" },
		{ value_format_duration, 100, "100ms" },
		{ value_format_duration, 90000, "90s" },
		{ value_format_duration, 86400000, "1d" },
		{ value_format_duration, 90000000, "25h" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char out[VALUE_HINT_MAX];

		assert_string_equal(cases[i].format(cases[i].value, out), cases[i].want);
	}
}

/* Formatted values can be parsed again. */
TEST(formats_are_read_again)
{
	for (uint64_t v = 1; v < UINT64_MAX / 7; v = v * 7 + v % 3) {
		char out[VALUE_HINT_MAX];
		uint64_t again;

		assert_int_equal(value_size(value_format_size(v, out), &again), 0);
		assert_int_equal(again, v);
		assert_int_equal(value_duration(value_format_duration(v, out), &again), 0);
		assert_int_equal(again, v);
	}
}
