/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <stdbool.h>
#include <string.h>

#include "base/str.h"

uint64_t clock_of(struct timespec t)
{
	return (uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec;
}

static uint64_t now(clockid_t id)
{
	struct timespec ts;

	if (clock_gettime(id, &ts) < 0)
		abort(); /* both clocks always exist */
	return clock_of(ts);
}

uint64_t clock_mono(void)
{
	return now(CLOCK_MONOTONIC);
}

uint64_t clock_wall(void)
{
	return now(CLOCK_REALTIME);
}

static bool is_leap(unsigned int year)
{
	return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static unsigned int days_of(unsigned int year, unsigned int month)
{
	static const uint8_t days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };

	return days[month] + (month == 1 && is_leap(year));
}

/* Avoids gmtime_r(3) and strftime(3): both read /etc/localtime, and a keeper cannot open files. */
const char *clock_format(uint64_t wall, char out[static CLOCK_RFC3339_MAX])
{
	uint64_t sec = wall / NSEC_PER_SEC;
	unsigned int day = (unsigned int)(sec / 86400), of_day = (unsigned int)(sec % 86400);
	unsigned int year = 1970, month = 0;

	for (; day >= 365U + is_leap(year); year++)
		day -= 365U + is_leap(year);
	for (; day >= days_of(year, month); month++)
		day -= days_of(year, month);
	(void)snprintf(out, CLOCK_RFC3339_MAX, "%04u-%02u-%02uT%02u:%02u:%02u.%09uZ", year,
		       month + 1, day + 1, of_day / 3600, of_day / 60 % 60, of_day % 60,
		       (unsigned int)(wall % NSEC_PER_SEC));
	return out;
}

/* Reads `n` digits at *s, a value of at most `max`, followed by `sep`; moves *s behind them. */
static bool field(const char **s, size_t n, unsigned int max, char sep, int *ret)
{
	int value = 0;

	for (size_t i = 0; i < n; i++) {
		if (!ascii_is_digit((*s)[i]))
			return false;
		value = value * 10 + ((*s)[i] - '0');
	}
	if ((unsigned int)value > max || (*s)[n] != sep)
		return false;
	*s += n + 1;
	*ret = value;
	return true;
}

static bool fraction(const char *s, uint64_t *ret)
{
	uint64_t nsec = 0, unit = NSEC_PER_SEC;

	for (; ascii_is_digit(*s) && unit > 1; s++) {
		unit /= 10;
		nsec += (uint64_t)(*s - '0') * unit;
	}
	*ret = nsec;
	return unit < NSEC_PER_SEC && strcmp(s, "Z") == 0;
}

int clock_parse(const char *s, uint64_t *ret)
{
	struct tm tm = { 0 }, check;
	uint64_t nsec = 0, wall;
	time_t sec;

	if (!field(&s, 4, 9999, '-', &tm.tm_year) || !field(&s, 2, 12, '-', &tm.tm_mon) ||
	    !field(&s, 2, 31, 'T', &tm.tm_mday) || !field(&s, 2, 23, ':', &tm.tm_hour) ||
	    !field(&s, 2, 59, ':', &tm.tm_min))
		return -EINVAL;
	/* The seconds end in 'Z', or in a point and a fraction. */
	if (field(&s, 2, 59, '.', &tm.tm_sec) ? !fraction(s, &nsec)
					      : !field(&s, 2, 59, 'Z', &tm.tm_sec) || *s != '\0')
		return -EINVAL;
	if (tm.tm_year < 1970 || tm.tm_mon < 1 || tm.tm_mday < 1)
		return -EINVAL;
	tm.tm_year -= 1900;
	tm.tm_mon -= 1;
	check = tm;
	sec = timegm(&tm);
	if (tm.tm_mday != check.tm_mday) /* 30 February: timegm() moved it into March */
		return -EINVAL;
	/* 64 bits of nanoseconds overflow in July 2554. */
	if (__builtin_mul_overflow((uint64_t)sec, NSEC_PER_SEC, &wall) ||
	    __builtin_add_overflow(wall, nsec, &wall))
		return -EINVAL;
	*ret = wall;
	return 0;
}
