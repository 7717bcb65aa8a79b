/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/value.h"

#include <string.h>

#include "base/str.h"

enum {
	BARE_IS_SMALL = 1024 * 1024
};

struct unit {
	const char *name; /* the only accepted spelling */
	uint64_t factor;
	const char *also; /* other spellings, for hints; lower case, each between spaces */
};

/* Largest first, as format() expects them. */
static const struct unit sizes[] = {
	{ "TiB", UINT64_C(1) << 40, " t tb ti tib " },
	{ "GiB", UINT64_C(1) << 30, " g gb gi gib " },
	{ "MiB", UINT64_C(1) << 20, " m mb mi mib " },
	{ "KiB", UINT64_C(1) << 10, " k kb ki kib " },
	{ "B", 1, " b byte bytes " },
};

static const struct unit durations[] = {
	{ "d", 86400000, " d day days " },
	{ "h", 3600000, " h hr hrs hour hours " },
	{ "m", 60000, " m min mins minute minutes " },
	{ "s", 1000, " s sec secs second seconds " },
	{ "ms", 1, " ms msec msecs millisecond milliseconds " },
};

static int with_unit(const char *s, const struct unit *units, size_t n, uint64_t *ret)
{
	size_t digits = strspn(s, "0123456789");
	uint64_t value;
	int r;

	for (size_t i = 0; i < n; i++) {
		if (!str_eq(s + digits, units[i].name))
			continue;
		r = str_to_u64(s, digits, UINT64_MAX, &value);
		if (r == 0 && __builtin_mul_overflow(value, units[i].factor, &value))
			r = -ERANGE;
		if (r == 0)
			*ret = value;
		return r;
	}
	return -EINVAL;
}

int value_size(const char *s, uint64_t *ret_bytes)
{
	return with_unit(s, sizes, ARRAY_SIZE(sizes), ret_bytes);
}

int value_duration(const char *s, uint64_t *ret_ms)
{
	return with_unit(s, durations, ARRAY_SIZE(durations), ret_ms);
}

int value_thousandths(const char *s, uint64_t *ret)
{
	size_t whole = strspn(s, "0123456789"), places = 0;
	uint64_t value, part = 0;
	int r = str_to_u64(s, whole, UINT64_MAX / 2000, &value);

	if (r < 0)
		return r;
	if (s[whole] == '.') {
		const char *p = s + whole + 1;

		places = strspn(p, "0123456789");
		if (places == 0 || places > 3)
			return -EINVAL;
		for (size_t i = 0; i < 3; i++)
			part = part * 10 + (i < places ? (uint64_t)(p[i] - '0') : 0);
		places++;
	}
	if (s[whole + places] != '\0')
		return -EINVAL;
	*ret = value * 1000 + part;
	return 0;
}

static const char *format(uint64_t value, const struct unit *units, size_t n, char *out)
{
	size_t i = 0;

	while (i + 1 < n && (value == 0 || value % units[i].factor != 0))
		i++;
	(void)snprintf(out, VALUE_HINT_MAX, "%llu%s", (unsigned long long)(value / units[i].factor),
		       units[i].name);
	return out;
}

static bool hint(const char *s, const struct unit *units, size_t n, const char *bare, char *out)
{
	size_t digits = strspn(s, "0123456789"), k = 0;
	char word[16] = " ";
	const char *p = s + digits;

	if (digits == 0 || digits > 12 || (digits > 1 && s[0] == '0'))
		return false;
	p += strspn(p, " ");
	for (k = 1; *p && k < sizeof(word) - 2; k++)
		word[k] = ascii_lower(*p++);
	word[k] = ' ';
	if (k == 1) {
		uint64_t value = 0;

		/* A large number without a unit probably counts bytes or milliseconds. */
		if (str_to_u64(s, digits, UINT64_MAX, &value) < 0)
			return false;
		if (value >= BARE_IS_SMALL)
			(void)format(value, units, n, out);
		else
			(void)snprintf(out, VALUE_HINT_MAX, "%.*s%s", (int)digits, s, bare);
		return true;
	}
	for (size_t i = 0; i < n; i++) {
		if (*p || !strstr(units[i].also, word))
			continue;
		(void)snprintf(out, VALUE_HINT_MAX, "%.*s%s", (int)digits, s, units[i].name);
		return true;
	}
	return false;
}

bool value_size_hint(const char *s, char out[static VALUE_HINT_MAX])
{
	return hint(s, sizes, ARRAY_SIZE(sizes), "MiB", out);
}

bool value_duration_hint(const char *s, char out[static VALUE_HINT_MAX])
{
	return hint(s, durations, ARRAY_SIZE(durations), "s", out);
}

const char *value_format_size(uint64_t bytes, char out[static VALUE_HINT_MAX])
{
	return format(bytes, sizes, ARRAY_SIZE(sizes), out);
}

const char *value_format_duration(uint64_t ms, char out[static VALUE_HINT_MAX])
{
	return format(ms, durations, ARRAY_SIZE(durations), out);
}
